//! The API server as a value: open it, call it in process or through a server, run its tasks.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, OnceLock},
};

use axum::Router;
use metrics::Table;
use parking_lot::RwLock;
use serde_json::json;
use serving::Trust;
use tokio::sync::{Mutex, Notify};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;

use crate::{
    access,
    auth::Identity,
    backend,
    clock::Clock,
    error::ApiError,
    fairness::Fairness,
    plugins, quota,
    registry::{Aggregated, Backend, Registry, Served},
    router,
    services::{self, ServiceSettings},
    store::{Collection, Database, Scope, Snapshot, Store, StoreError},
    tokens::{KeyError, SigningKey, Statements, Tokens},
    upkeep,
    verbs::{
        Call,
        write::{self, Ownership},
    },
};

/// The settings of an API server.
#[derive(Debug)]
pub struct Settings {
    pub database: Database,
    pub clock: Clock,
    /// Presented to aggregated API servers, which trust its holder to identify users.
    pub front_proxy: Option<serving::Identity>,
    /// For kubelets: logs and streams of pods.
    pub kubelet: Option<KubeletClient>,
    pub services: ServiceSettings,
}

/// How to connect to the nodes' kubelets.
#[derive(Debug, Clone)]
pub struct KubeletClient {
    pub trust: Trust,
    pub identity: serving::Identity,
}

/// The certificates that this server presents to others, and the authority that others trust for it.
#[derive(Debug, Clone, Default)]
pub struct Certificates {
    /// As in [`Settings::front_proxy`].
    pub front_proxy: Option<serving::Identity>,
    /// As in [`Settings::kubelet`].
    pub kubelet: Option<KubeletClient>,
    /// As in [`ServiceAccounts::root_ca`].
    pub root_ca: Option<String>,
}

/// Settings for the tokens of service accounts.
#[derive(Debug)]
pub struct ServiceAccounts {
    /// Signs the tokens.
    pub key: SigningKey,
    /// PEM: the authority that pods trust for this API server, published in every namespace.
    pub root_ca: String,
}

/// Why the API server could not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("open store")]
    Store(#[from] StoreError),
    #[error("create the default objects: {0}")]
    Prepare(ApiError),
    #[error("prepare tokens of service accounts")]
    Tokens(#[from] KeyError),
}

/// The shared state of this crate. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Api(Arc<Parts>);

pub(crate) struct Parts {
    pub store: Store,
    pub registry: Registry,
    pub clock: Clock,
    pub certificates: RwLock<Certificates>,
    /// Ends watches and proxied streams.
    pub stopping: CancellationToken,
    /// Connections to other servers, and writes whose client may have gone away.
    pub tasks: TaskTracker,
    pub clients: backend::Clients,
    /// The authorization rules.
    pub access: access::Current,
    pub tokens: Tokens,
    /// The authority for pods was replaced.
    pub root_ca_changed: Notify,
    pub quota_gate: quota::Gate,
    pub fairness: Fairness,
    pub services: ServiceSettings,
    pub service_gate: services::Gate,
    /// The tables served at `/metrics`, unless they are this crate's own.
    pub metrics: OnceLock<Vec<&'static Table>>,
    /// Held while the served kinds are being recomputed.
    loading: Mutex<()>,
}

impl Deref for Api {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

impl Api {
    /// Updates the served kinds after a write of a kind that affects them.
    pub(crate) async fn on_write(&self, kind: &Served) -> Result<(), ApiError> {
        match (kind.group.as_str(), kind.plural.as_str()) {
            ("apiextensions.k8s.io", "customresourcedefinitions") => self.load_definitions().await,
            ("apiregistration.k8s.io", "apiservices") => self.load_services().await,
            (access::GROUP, _) => {
                self.access.invalidate();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn load_definitions(&self) -> Result<(), ApiError> {
        // Definitions must not overwrite a newer state.
        let _guard = self.loading.lock().await;
        let collection = Collection::new("apiextensions.k8s.io", "customresourcedefinitions");
        let page = self.store.list(&Scope::all(collection), None, None).await?;
        for (name, violations) in self.registry.set_definitions(&page.items)? {
            tracing::error!(name, ?violations, "stored definition is invalid");
        }
        Ok(())
    }

    pub(crate) async fn load_services(&self) -> Result<(), ApiError> {
        let _guard = self.loading.lock().await;
        let collection = Collection::new("apiregistration.k8s.io", "apiservices");
        let page = self.store.list(&Scope::all(collection), None, None).await?;
        let known = self.registry.all_aggregated();
        let mut aggregated = Vec::new();
        for stored in page.items {
            let object = stored.parse()?;
            let spec = &object["spec"];
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            if !spec["service"].is_object() {
                continue;
            }
            let port = spec["service"]["port"]
                .as_u64()
                .and_then(|port| u16::try_from(port).ok());
            let (group, version) = (text(&spec["group"]), text(&spec["version"]));
            let before = known
                .iter()
                .find(|one| one.group == group && one.version == version)
                .map(|one| (one.resources.clone(), Arc::clone(&one.documents)));
            let (resources, documents) = before.unwrap_or_default();
            aggregated.push(Aggregated {
                group,
                version,
                backend: Backend {
                    namespace: text(&spec["service"]["namespace"]),
                    service: text(&spec["service"]["name"]),
                    port: port.unwrap_or(443),
                    ca_bundle: text(&spec["caBundle"]),
                },
                resources,
                documents,
            });
        }
        self.registry.set_aggregated(aggregated);
        Ok(())
    }

    /// Creates the default objects of every cluster, unless they exist.
    async fn bootstrap(&self) -> Result<(), ApiError> {
        for name in [
            "default",
            "kube-system",
            "kube-public",
            "kube-node-lease",
            "kubevirt",
        ] {
            self.ensure("namespaces", "", name).await?;
            self.ensure("serviceaccounts", name, "default").await?;
        }
        plugins::priority::bootstrap(self).await?;
        // The service is repaired later if this fails, for example because of a webhook.
        if let Err(error) = upkeep::server_service::bootstrap(self).await {
            tracing::warn!(%error, "writing the service `kubernetes` failed, will retry");
        }
        access::bootstrap::make(self).await
    }

    async fn ensure(&self, plural: &str, namespace: &str, name: &str) -> Result<(), ApiError> {
        let Some(kind) = self.registry.find("", "v1", plural) else {
            return Ok(());
        };
        let call = Call::internal(kind, namespace, Some(name));
        let object = json!({
            "apiVersion": "v1", "kind": call.kind.kind,
            "metadata": {"name": name, "namespace": namespace_or_null(namespace)},
        });
        match Box::pin(write::create(self, &call, object, Ownership::Compute)).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_taken() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn namespace_or_null(namespace: &str) -> serde_json::Value {
    if namespace.is_empty() {
        serde_json::Value::Null
    } else {
        namespace.into()
    }
}

/// The API server.
#[derive(Debug, Clone)]
pub struct EmbeddedApi {
    api: Api,
}

impl EmbeddedApi {
    /// Opens the database and creates the default objects. Tokens of service accounts are valid as
    /// long as this server runs.
    pub async fn open(settings: Settings) -> Result<Self, OpenError> {
        let key = SigningKey::generate()?;
        Box::pin(Self::open_all(settings, key, None)).await
    }

    /// Like [`Self::open`], with a persistent key and an authority for pods.
    pub async fn open_with(
        settings: Settings,
        accounts: ServiceAccounts,
    ) -> Result<Self, OpenError> {
        let ServiceAccounts { key, root_ca } = accounts;
        Box::pin(Self::open_all(settings, key, Some(root_ca))).await
    }

    async fn open_all(
        settings: Settings,
        key: SigningKey,
        root_ca: Option<String>,
    ) -> Result<Self, OpenError> {
        let database = settings.database;
        let store = tokio::task::spawn_blocking(move || Store::open(&database))
            .await
            .map_err(StoreError::from)??;
        let api = Api(Arc::new(Parts {
            store,
            registry: Registry::new(),
            clock: settings.clock,
            certificates: RwLock::new(Certificates {
                front_proxy: settings.front_proxy,
                kubelet: settings.kubelet,
                root_ca,
            }),
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
            clients: backend::Clients::default(),
            access: access::Current::default(),
            tokens: Tokens::new(key),
            root_ca_changed: Notify::new(),
            quota_gate: quota::Gate::default(),
            fairness: Fairness::default(),
            services: settings.services,
            service_gate: services::Gate::default(),
            metrics: OnceLock::new(),
            loading: Mutex::default(),
        }));
        api.load_definitions().await.map_err(OpenError::Prepare)?;
        api.load_services().await.map_err(OpenError::Prepare)?;
        api.bootstrap().await.map_err(OpenError::Prepare)?;
        Ok(Self { api })
    }

    /// Serves these tables at `/metrics`, instead of only this crate's and the process's. Call it
    /// once.
    pub fn serve_metrics(&self, tables: Vec<&'static Table>) {
        if self.api.metrics.set(tables).is_err() {
            tracing::error!("metrics are set twice");
        }
    }

    /// Uses other certificates from now on. Open connections stay.
    pub fn replace_certificates(&self, certificates: Certificates) {
        *self.api.certificates.write() = certificates;
        self.api.clients.forget();
        self.api.root_ca_changed.notify_one();
    }

    /// The contents of a database in memory, for [`Database::MemoryFrom`]. Blocks.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.api.store.snapshot()
    }

    /// Keeps copies of the database until `stop`.
    pub fn keep_copies(
        &self,
        copies: upkeep::copies::Copies,
        tasks: &TaskTracker,
        stop: CancellationToken,
    ) {
        tasks.spawn(upkeep::copies::run(self.api.clone(), copies, stop));
    }

    /// The service for requests. Put it behind a [`serving::Server`] with optional client
    /// certificates.
    pub fn router(&self) -> Router {
        router::router(self.api.clone())
    }

    /// A client in this process, without sockets or TLS.
    pub fn client(&self, identity: Identity, default_namespace: &str) -> kube::Client {
        let router = self.router();
        let service = tower::service_fn(move |mut request: http::Request<kube::client::Body>| {
            request.extensions_mut().insert(identity.clone());
            router.clone().oneshot(request.map(axum::body::Body::new))
        });
        kube::Client::new(service, default_namespace)
    }

    /// Signs statements for one purpose with the key of service account tokens. The purpose is a part of a
    /// path, such as `uploads`.
    pub fn statements(&self, purpose: &str) -> Statements {
        Statements::new(self.api.clone(), purpose)
    }

    /// Starts the background tasks; they and all watches end with `stop`.
    pub fn run(&self, tasks: &TaskTracker, stop: CancellationToken) {
        let api = self.api.clone();
        tasks.spawn(upkeep::garbage::run(api.clone(), stop.clone()));
        tasks.spawn(upkeep::periodic::run(api.clone(), stop.clone()));
        tasks.spawn(upkeep::services::run(api.clone(), stop.clone()));
        tasks.spawn(upkeep::accounts::run(api.clone(), stop.clone()));
        tasks.spawn(upkeep::server_service::run(api.clone(), stop.clone()));
        tasks.spawn(upkeep::endpoints::run(api.clone(), stop.clone()));
        tasks.spawn(upkeep::roles::run(api.clone(), stop.clone()));
        tasks.spawn(upkeep::budgets::run(api.clone(), stop.clone()));
        tasks.spawn(upkeep::quotas::run(api.clone(), stop.clone()));
        tasks.spawn(async move {
            stop.cancelled().await;
            api.stopping.cancel();
            api.tasks.close();
            api.tasks.wait().await;
        });
    }
}
