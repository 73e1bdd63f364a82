//! Services: DNS names, environment variables and packet forwarding, also of host ports. The API
//! server assigns their addresses and writes their endpoints.
//!
//! - [`forwards`] decides, this file reconciles;
//! - [`variables`] renders the environment variables of containers;
//! - [`server`] answers DNS queries for [`names`] with [`message`]s.
//!
//! **Invariant.** Nothing is written, neither objects nor, when nothing changed, packet rules.

mod forwards;
mod message;
mod names;
mod server;
mod variables;

use std::{collections::BTreeMap, fmt, net::Ipv4Addr, sync::Arc};

use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use kube::runtime::watcher;
use parking_lot::{Mutex, RwLock};
use pod_network::Forward;
use reasons::Reason;
use reconcile::{Key, ReconcileError, Reconciler, Requeue, Retry, Store, Triggers, run_controller};
use tokio_util::sync::CancellationToken;

use crate::{Failure, node::Shared};
use names::Names;
use server::Server;

pub(crate) use names::DOMAIN;

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

    /// The environment variables that name services to the pod's containers, once services are known.
    pub(crate) async fn variables(&self, pod: &Pod) -> BTreeMap<String, String> {
        self.objects.ready().await;
        let all = self.objects.list();
        variables::of(pod, all.iter().map(AsRef::as_ref))
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
        // Services are reconciled together, so no object could have the event of a panic.
        let on_panic = |_: &Key, _: &panics::Panicked| ();
        run_controller(
            controller,
            state.triggers.clone(),
            1,
            on_panic,
            stop.clone(),
        )
        .await;
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
#[error("forward packets to services: {0}")]
struct ServiceError(Failure);

impl ReconcileError for ServiceError {
    fn reason(&self) -> Reason {
        self.0.reason
    }

    fn retry(&self) -> Retry {
        Retry::BackOff
    }
}

struct Controller(Arc<Shared>);

impl Reconciler for Controller {
    const NAME: &'static str = "services";
    type Error = ServiceError;

    async fn reconcile(&self, _: &Key) -> Result<Requeue, ServiceError> {
        self.update_names();
        self.forward_packets().await?;
        Ok(Requeue::OnChange)
    }

    /// A reconcile is of all services.
    fn uid_of(&self, _: &Key) -> Option<String> {
        None
    }
}

impl Controller {
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
        let mut wanted =
            forwards::of_services(offer.range, services.iter().map(AsRef::as_ref), |service| {
                state.endpoints.get(&Key::of(service))
            });
        let node = Some(self.0.settings.node_name.as_str());
        let pods = self.0.pods.list();
        let ours = pods.iter().map(AsRef::as_ref).filter(|pod: &&Pod| {
            let spec = pod.spec.as_ref();
            spec.and_then(|spec| spec.node_name.as_deref()) == node
        });
        wanted.extend(forwards::of_pods(ours));
        wanted.sort();
        if state.forwarded.lock().as_ref() == Some(&wanted) {
            return Ok(());
        }
        network
            .forward(wanted.clone())
            .await
            .map_err(ServiceError)?;
        *state.forwarded.lock() = Some(wanted);
        Ok(())
    }
}
