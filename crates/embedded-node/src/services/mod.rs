//! Services: cluster IPs, endpoints, DNS names and packet forwarding.
//!
//! - [`plan`] decides, this file reconciles;
//! - [`server`] answers DNS queries for [`names`] with [`message`]s.
//!
//! **Invariants.** The address of a service never changes. Endpoints of services without a selector
//! are not ours. Nothing is written when nothing changed.

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

/// Caches of service objects and the state derived from them.
pub(crate) struct Services {
    objects: Store<Service>,
    endpoints: Store<Endpoints>,
    names: Arc<RwLock<Names>>,
    triggers: Triggers,
    /// The rules set last.
    forwarded: Mutex<Option<Vec<Forward>>>,
    /// The address of the DNS server for pods.
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

    /// An object changed on which services may depend.
    pub(crate) fn requeue(&self, trigger: &'static str) {
        // All services are reconciled together: they are few, and their rules are set together.
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

/// Binds the DNS server before the first pod gets its address.
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
                "DNS server cannot be started, as another one may run: pods cannot resolve services"
            );
            None
        }
    }
}

/// The bound DNS server.
pub(crate) struct Dns(Server);

pub(crate) async fn run(shared: Arc<Shared>, dns: Option<Dns>, stop: CancellationToken) {
    let state = &shared.services;
    let client = || shared.settings.client.clone();
    let config = watcher::Config::default;
    let serve = async {
        if let Some(Dns(server)) = dns {
            server.run(Arc::clone(&state.names), stop.clone()).await;
        }
    };
    let reconcile = async {
        tokio::select! {
            () = stop.cancelled() => return,
            () = async {
                tokio::join!(state.objects.ready(), state.endpoints.ready(), shared.pods.ready());
            } => {}
        }
        state.requeue("start");
        let controller = Arc::new(Controller(Arc::clone(&shared)));
        run_controller(controller, state.triggers.clone(), 1, stop.clone()).await;
    };
    tokio::join!(
        reconcile::watch(
            client(),
            config(),
            state.objects.clone(),
            |_: &Service| state.requeue("service"),
            stop.clone(),
        ),
        reconcile::watch(
            client(),
            config(),
            state.endpoints.clone(),
            |_: &Endpoints| state.requeue("endpoints"),
            stop.clone(),
        ),
        serve,
        reconcile,
    );
}

#[derive(Debug, thiserror::Error)]
enum ServiceError {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("forward packets to services: {0}")]
    Network(Failure),
    #[error("assign an address to service {key}: the range is full")]
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

struct Controller(Arc<Shared>);

impl Reconciler for Controller {
    const NAME: &'static str = "services";
    type Error = ServiceError;

    async fn reconcile(&self, _: &Key) -> Result<Requeue, ServiceError> {
        // The failure of one service must not block the others.
        let mut failure = None;
        for service in self.0.services.objects.list() {
            if let Err(error) = self.reconcile_one(&service).await {
                failure.get_or_insert(error);
            }
        }
        self.update_names();
        self.forward_packets().await?;
        failure.map_or(Ok(Requeue::OnChange), Err)
    }
}

impl Controller {
    async fn reconcile_one(&self, service: &Arc<Service>) -> Result<(), ServiceError> {
        let state = &self.0.services;
        let key = Key::of(service.as_ref());
        if let Some(offer) = self.0.settings.network.services()
            && plan::needs_address(service)
        {
            let all = state.objects.list();
            let uid = service.metadata.uid.as_deref().unwrap_or_default();
            let address = plan::free_address(offer.range, all.iter().map(AsRef::as_ref), uid)
                .ok_or_else(|| ServiceError::NoAddress { key: key.clone() })?;
            let body = json!({
                "metadata": {"resourceVersion": service.metadata.resource_version},
                "spec": {"clusterIP": address, "clusterIPs": [address]},
            });
            let api = Api::<Service>::namespaced(self.0.settings.client.clone(), &key.namespace);
            let after = reconcile::merge(&api, MANAGER, &key, &body).await?;
            // So that the next service does not get the same address.
            state.objects.wrote(service, after);
        }
        let pods = self.0.pods.list();
        let Some(wanted) = plan::endpoints(service, pods.iter().map(AsRef::as_ref)) else {
            return Ok(());
        };
        let known = state.endpoints.get(&key);
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
            state.endpoints.wrote(&known, after);
        }
        Ok(())
    }

    fn update_names(&self) {
        let state = &self.0.services;
        let services = state.objects.list();
        let names = Names::of(services.iter().map(AsRef::as_ref), |key| {
            state.endpoints.get(key)
        });
        *state.names.write() = names;
    }

    async fn forward_packets(&self) -> Result<(), ServiceError> {
        let state = &self.0.services;
        let network = &self.0.settings.network;
        let Some(offer) = network.services() else {
            return Ok(());
        };
        let services = state.objects.list();
        let wanted = plan::forwards(offer.range, services.iter().map(AsRef::as_ref), |service| {
            state.endpoints.get(&Key::of(service))
        });
        if state.forwarded.lock().as_ref() == Some(&wanted) {
            return Ok(());
        }
        network
            .forward(wanted.clone())
            .await
            .map_err(ServiceError::Network)?;
        *state.forwarded.lock() = Some(wanted);
        Ok(())
    }
}
