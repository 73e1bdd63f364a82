//! Services: they have addresses, endpoints and names, and packets find their way.
//!
//! - [`plan`] says what should be, this file sees to it;
//! - [`names`] are what DNS tells, in the words of [`message`], by [`server`].
//!
//! **Invariants.** An address that a service has is never changed. Endpoints of services without a
//! selector are somebody else's. Nothing is written when nothing changed.

mod message;
mod names;
mod plan;
mod server;

use std::{fmt, net::Ipv4Addr, sync::Arc};

use k8s_openapi::api::core::v1::{Endpoints, Service};
use kube::{Api, runtime::watcher};
use parking_lot::{Mutex, RwLock};
use pod_network::Forward;
use reasons::Reason;
use reconcile::{
    Fragment, Key, ReconcileError, Reconciler, Requeue, Retry, Store, Triggers, WriteError,
    run_controller,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{Failure, node::Shared};
use names::Names;
use server::Server;

pub(crate) use names::DOMAIN;

const MANAGER: &str = "endpoint-controller";

/// What is known of services.
pub(crate) struct Services {
    objects: Store<Service>,
    endpoints: Store<Endpoints>,
    names: Arc<RwLock<Names>>,
    triggers: Triggers,
    /// What the network was told last.
    forwarded: Mutex<Option<Vec<Forward>>>,
    /// Where pods ask for names.
    dns: Mutex<Option<Ipv4Addr>>,
}

impl Services {
    pub(crate) fn new() -> Self {
        Self {
            objects: Store::new(),
            endpoints: Store::new(),
            names: Arc::default(),
            triggers: Triggers::new(),
            forwarded: Mutex::new(None),
            dns: Mutex::new(None),
        }
    }

    /// Something changed that services may care for.
    pub(crate) fn changed(&self, trigger: &'static str) {
        // All are looked at together: there are few, and packet rules are one piece.
        self.triggers.add(Key::new("", "services"), trigger);
    }

    pub(crate) fn dns(&self) -> Option<Ipv4Addr> {
        *self.dns.lock()
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Services")
            .field("objects", &self.objects)
            .finish_non_exhaustive()
    }
}

/// Takes the address where pods ask for names, before the first pod is told of it.
pub(crate) async fn open(shared: &Shared) -> Option<Dns> {
    let address = shared.settings.network.services()?.dns;
    match Server::bind(address).await {
        Ok(server) => {
            *shared.services.dns.lock() = Some(address);
            Some(Dns(server))
        }
        Err(error) => {
            tracing::warn!(
                %address, %error,
                "something else answers DNS questions here: pods do not find services by name"
            );
            None
        }
    }
}

/// The opened server.
pub(crate) struct Dns(Server);

pub(crate) async fn run(shared: Arc<Shared>, dns: Option<Dns>, stop: CancellationToken) {
    let here = &shared.services;
    let client = || shared.settings.client.clone();
    let config = watcher::Config::default;
    let serve = async {
        if let Some(Dns(server)) = dns {
            server.run(Arc::clone(&here.names), stop.clone()).await;
        }
    };
    let keep = async {
        tokio::select! {
            () = stop.cancelled() => return,
            () = async {
                tokio::join!(here.objects.ready(), here.endpoints.ready(), shared.pods.ready());
            } => {}
        }
        here.changed("start");
        let keeper = Arc::new(Keeper(Arc::clone(&shared)));
        run_controller(keeper, here.triggers.clone(), 1, stop.clone()).await;
    };
    tokio::join!(
        reconcile::watch(
            client(),
            config(),
            here.objects.clone(),
            |_: &Service| here.changed("service"),
            stop.clone(),
        ),
        reconcile::watch(
            client(),
            config(),
            here.endpoints.clone(),
            |_: &Endpoints| here.changed("endpoints"),
            stop.clone(),
        ),
        serve,
        keep,
    );
}

#[derive(Debug, thiserror::Error)]
enum ServiceError {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("lead packets to services: {0}")]
    Network(Failure),
    #[error("give service {key} an address: all are taken")]
    NoAddress { key: Key },
}

impl ReconcileError for ServiceError {
    fn reason(&self) -> Reason {
        match self {
            Self::Write(error) => error.reason(),
            Self::Network(failure) => failure.reason,
            Self::NoAddress { .. } => Reason::ServiceRangeFull,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Write(error) => error.retry(),
            Self::Network(_) | Self::NoAddress { .. } => Retry::BackOff,
        }
    }
}

struct Keeper(Arc<Shared>);

impl Reconciler for Keeper {
    const NAME: &'static str = "services";
    type Error = ServiceError;

    async fn reconcile(&self, _: &Key) -> Result<Requeue, ServiceError> {
        // What one service cannot have must not keep the others from theirs.
        let mut trouble = None;
        for service in self.0.services.objects.list() {
            if let Err(error) = self.keep(&service).await {
                trouble.get_or_insert(error);
            }
        }
        self.tell_names();
        self.lead_packets().await?;
        trouble.map_or(Ok(Requeue::OnChange), Err)
    }
}

impl Keeper {
    async fn keep(&self, service: &Arc<Service>) -> Result<(), ServiceError> {
        let here = &self.0.services;
        let key = Key::of(service.as_ref());
        if let Some(offer) = self.0.settings.network.services()
            && plan::lacks_address(service)
        {
            let all = here.objects.list();
            let uid = service.metadata.uid.as_deref().unwrap_or_default();
            let address = plan::free_address(offer.range, all.iter().map(AsRef::as_ref), uid)
                .ok_or_else(|| ServiceError::NoAddress { key: key.clone() })?;
            let body = json!({
                "metadata": {"resourceVersion": service.metadata.resource_version},
                "spec": {"clusterIP": address, "clusterIPs": [address]},
            });
            let api = Api::<Service>::namespaced(self.0.settings.client.clone(), &key.namespace);
            let after = reconcile::merge(&api, MANAGER, &key, &body).await?;
            // The next service must not get the same.
            here.objects.wrote(service, after);
        }
        let pods = self.0.pods.list();
        let Some(wanted) = plan::endpoints(service, pods.iter().map(AsRef::as_ref)) else {
            return Ok(());
        };
        let known = here.endpoints.get(&key);
        let same = known
            .as_ref()
            .is_some_and(|known| known.subsets.as_deref().unwrap_or_default() == wanted.as_slice());
        if same {
            return Ok(());
        }
        let body = json!({
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "labels": {"endpoints.kubernetes.io/managed-by": MANAGER},
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Service", "name": key.name,
                    "uid": service.metadata.uid, "controller": true,
                }],
            },
            "subsets": wanted,
        });
        let api = Api::<Endpoints>::namespaced(self.0.settings.client.clone(), &key.namespace);
        let fragment = Fragment {
            manager: MANAGER,
            key: &key,
            subresource: None,
            body,
        };
        let after = reconcile::apply(&api, &fragment).await?;
        if let Some(known) = known {
            here.endpoints.wrote(&known, after);
        }
        Ok(())
    }

    fn tell_names(&self) {
        let here = &self.0.services;
        let services = here.objects.list();
        let names = Names::of(services.iter().map(AsRef::as_ref), |key| {
            here.endpoints.get(key)
        });
        *here.names.write() = names;
    }

    async fn lead_packets(&self) -> Result<(), ServiceError> {
        let here = &self.0.services;
        let network = &self.0.settings.network;
        let Some(offer) = network.services() else {
            return Ok(());
        };
        let services = here.objects.list();
        let wanted = plan::forwards(offer.range, services.iter().map(AsRef::as_ref), |service| {
            here.endpoints.get(&Key::of(service))
        });
        if here.forwarded.lock().as_ref() == Some(&wanted) {
            return Ok(());
        }
        network
            .forward(wanted.clone())
            .await
            .map_err(ServiceError::Network)?;
        *here.forwarded.lock() = Some(wanted);
        Ok(())
    }
}
