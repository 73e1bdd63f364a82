//! The API server that tests run components against: embedded-api in the test's process, in memory,
//! on tokio's clock, with the custom kinds of `KubeVirt` installed.
//!
//! It must not know the tested components: a test adds its nodes, controllers and webhooks.

#![expect(clippy::unwrap_used, reason = "for tests only")]

use std::sync::{LazyLock, OnceLock};

use embedded_api::{Clock, Database, EmbeddedApi, Identity, ServiceSettings, Settings, Snapshot};
use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PostParams, TypeMeta};
use kubevirt_api::crds;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub const NAMESPACE: &str = "default";

/// Manifests that tests of this process have parsed, which takes long.
type Parsed<const COUNT: usize> = [OnceLock<Value>; COUNT];
static KINDS: Parsed<{ crds::ALL.len() }> = [const { OnceLock::new() }; crds::ALL.len()];
static IMPORTER: Parsed<{ crds::IMPORTER.len() }> =
    [const { OnceLock::new() }; crds::IMPORTER.len()];

/// A server with the custom kinds: installing them takes longer than most tests do.
static INSTALLED: LazyLock<Snapshot> = LazyLock::new(|| {
    let install = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.unwrap().block_on(async {
            let clock = Clock::Fixed(start());
            let server = TestApi::open(Database::Memory, clock, Identity::component("test")).await;
            server.install_kinds(|_| true).await;
            let snapshot = server.api.snapshot().unwrap();
            server.end().await;
            snapshot
        })
    };
    // A runtime cannot wait for another one on its own thread.
    std::thread::spawn(install).join().unwrap()
});

/// The time at which every test begins.
pub fn start() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

/// The spec of a small guest with one disk and one interface.
pub fn guest() -> Value {
    json!({
        "terminationGracePeriodSeconds": 5,
        "domain": {
            "memory": {"guest": "128Mi"},
            "devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                "interfaces": [{"name": "default", "masquerade": {}}],
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [{"name": "root", "containerDisk": {"image": "guest:1"}}],
    })
}

/// A running API server.
pub struct TestApi {
    api: EmbeddedApi,
    /// A client of the identity that started the server.
    pub client: Client,
    /// Tasks of the test, which end with the server.
    pub tasks: TaskTracker,
    pub stop: CancellationToken,
}

impl TestApi {
    /// Starts the server with the custom kinds installed.
    pub async fn start(identity: Identity) -> Self {
        let installed = INSTALLED.clone();
        let database = Database::MemoryFrom(installed);
        Self::open(database, Clock::tokio_from(start()), identity).await
    }

    /// Starts the server as Kubernetes is before the installation.
    pub async fn without_kinds(identity: Identity) -> Self {
        Self::open(Database::Memory, Clock::tokio_from(start()), identity).await
    }

    async fn open(database: Database, clock: Clock, identity: Identity) -> Self {
        let settings = Settings {
            database,
            clock,
            front_proxy: None,
            kubelet: None,
            services: ServiceSettings::usual(),
        };
        let api = EmbeddedApi::open(settings).await.unwrap();
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        api.run(&tasks, stop.clone());
        let client = api.client(identity, NAMESPACE);
        Self {
            api,
            client,
            tasks,
            stop,
        }
    }

    /// Installs the custom kinds whose names, such as `virtualmachines.kubevirt.io`, are wanted.
    pub async fn install_kinds(&self, is_wanted: impl Fn(&str) -> bool) {
        let all = crds::ALL.iter().zip(&KINDS);
        for ((_, manifest), parsed) in all.filter(|((name, _), _)| is_wanted(name)) {
            self.install(manifest, parsed).await;
        }
    }

    /// Installs the kinds of our importer.
    pub async fn install_importer(&self) {
        for ((_, manifest), parsed) in crds::IMPORTER.iter().zip(&IMPORTER) {
            self.install(manifest, parsed).await;
        }
    }

    async fn install(&self, manifest: &str, parsed: &OnceLock<Value>) {
        let definition = parsed.get_or_init(|| serde_saphyr::from_str(manifest).unwrap());
        self.create(definition.clone()).await.unwrap();
    }

    /// A client of another identity, with the rights that its roles give.
    pub fn client_of(&self, identity: Identity) -> Client {
        self.api.client(identity, NAMESPACE)
    }

    /// The HTTP routes, for clients that intercept requests.
    pub fn router(&self) -> axum::Router {
        self.api.router()
    }

    /// The requests for objects of the kind and namespace of this one.
    pub fn api_for(&self, object: &Value) -> Api<DynamicObject> {
        let types: TypeMeta = serde_json::from_value(object.clone()).unwrap();
        let kind = ApiResource::from_gvk(&types.try_into().unwrap());
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &kind),
            None => Api::all_with(self.client.clone(), &kind),
        }
    }

    /// Creates an object of any kind.
    pub async fn create(&self, object: Value) -> Result<DynamicObject, kube::Error> {
        let api = self.api_for(&object);
        let object = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await
    }

    /// Stops the server and waits for all tasks.
    pub async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl std::fmt::Debug for TestApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestApi").finish_non_exhaustive()
    }
}
