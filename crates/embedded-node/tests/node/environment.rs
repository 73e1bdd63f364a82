//! An API server and a node for tests, with real pods.

use std::{
    fs,
    net::IpAddr,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use ::failpoints::Trap;
use embedded_api::{Database, EmbeddedApi, Identity, ServiceSettings};
use embedded_node::{
    API_SERVER, Addresses, EmbeddedNode, Endpoint, Failure, Images, NETWORK_DEFINITIONS, Network,
    Resolver, SecondaryInterface, Settings, Stopping, VOLUME_REFRESH, VOLUME_SNAPSHOT_DEFINITIONS,
    teardown_all,
};
use futures::future::BoxFuture;
use image_store::{
    Credentials, Digest, Image, ImageConfig, ImageError, InUse, PullPolicy, StoreError,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{Event, Namespace, Node, Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use pod_network::Attachment;
use pod_supervisor::{cgroup, status::Process};
use serde_json::{Value, json};
use tokio::{net::TcpListener, runtime::Runtime, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// A CPU that every host has.
pub(crate) const RESERVED_CPU: u32 = 0;
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);
/// Kills pods without a grace period.
pub(crate) const AT_ONCE: Stopping<'_> = Stopping {
    longest_grace: Duration::ZERO,
    progress: &|_| {},
};

/// An API server and a node directory, on which nodes are started and killed.
pub(crate) struct Environment {
    pub(crate) dir: PathBuf,
    /// Removed with this environment.
    _owned_dir: Option<tempfile::TempDir>,
    pub(crate) cgroup: String,
    pub(crate) runtime: Runtime,
    pub(crate) client: Client,
    /// With the permissions of a node.
    pub(crate) own_client: Client,
    pub(crate) stop: CancellationToken,
    pub(crate) authority: serving::Authority,
    pub(crate) api: EmbeddedApi,
    pub(crate) supervisor: PathBuf,
    pub(crate) node: Option<Runtime>,
    pub(crate) runs: NodeRuns,
    pub(crate) network: Arc<dyn Network>,
    pub(crate) port: u16,
    /// Of the nodes that are started.
    pub(crate) volume_refresh: Duration,
}

/// Shared by all runs of the node: the failpoint, and the number of threads still alive.
#[derive(Clone, Default)]
pub(crate) struct NodeRuns {
    pub(crate) trap: Trap,
    pub(crate) threads: Arc<AtomicUsize>,
}

impl NodeRuns {
    pub(crate) fn runtime(&self) -> Runtime {
        let (trap, started, stopped) = (
            self.trap.clone(),
            Arc::clone(&self.threads),
            Arc::clone(&self.threads),
        );
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .on_thread_start(move || {
                started.fetch_add(1, Ordering::Relaxed);
                trap.enter();
            })
            .on_thread_stop(move || {
                stopped.fetch_sub(1, Ordering::Relaxed);
            })
            .build()
            .unwrap()
    }
}

/// Returns the same image for every reference, except for names with `missing`.
#[derive(Debug)]
pub(crate) struct BusyBox {
    root: PathBuf,
}

impl Images for BusyBox {
    fn ensure<'a>(
        &'a self,
        reference: &'a str,
        _: PullPolicy,
        _: &'a Credentials,
    ) -> BoxFuture<'a, Result<Image, ImageError>> {
        Box::pin(async move {
            if reference.contains("missing") {
                return Err(ImageError::NotPresent {
                    reference: reference.to_owned(),
                });
            }
            let config = ImageConfig {
                env: vec!["PATH=/bin".into()],
                cmd: vec!["sleep".into(), "1000".into()],
                ..ImageConfig::default()
            };
            Ok(Image {
                digest: Digest::of(b"busybox"),
                root: self.root.clone(),
                config,
            })
        })
    }

    fn collect(
        &self,
        _: InUse,
        _: Box<dyn FnMut() -> bool + Send>,
    ) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async { Ok(0) })
    }
}

#[derive(Debug)]
pub(crate) struct NoNetwork;

impl Network for NoNetwork {
    fn add<'a>(
        &'a self,
        _: &'a str,
        namespace: &'a Path,
    ) -> BoxFuture<'a, Result<Addresses, Failure>> {
        assert!(namespace.exists());
        Box::pin(async {
            Ok(Addresses {
                ips: vec![IpAddr::from([10, 9, 8, 7])],
            })
        })
    }

    fn attach<'a>(
        &'a self,
        namespace: &'a Path,
        attachment: Attachment,
    ) -> BoxFuture<'a, Result<SecondaryInterface, Failure>> {
        assert!(namespace.exists());
        let mac = attachment.mac.map(|mac| mac.to_string());
        Box::pin(async {
            Ok(SecondaryInterface {
                mac: mac.unwrap_or_default(),
                ips: vec![],
            })
        })
    }

    fn delete<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }
}

/// Installs the roles of a real host, so that tests fail for missing permissions.
async fn install_roles(client: &Client) {
    let target = roles::Environment::Host {
        namespace: "kubevirt",
        node: "here",
    };
    for object in roles::objects(target).unwrap() {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let kind = ApiResource::from_gvk(&object.types.clone().unwrap().try_into().unwrap());
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
            None => Api::all_with(client.clone(), &kind),
        };
        api.create(&PostParams::default(), &object).await.unwrap();
    }
}

/// Serves volume snapshots and secondary networks, as a single host does.
async fn define_kinds(client: &Client) {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    for (_, yaml) in VOLUME_SNAPSHOT_DEFINITIONS
        .iter()
        .chain(&NETWORK_DEFINITIONS)
    {
        let definition = serde_saphyr::from_str(yaml).unwrap();
        let parameters = PostParams::default();
        definitions.create(&parameters, &definition).await.unwrap();
    }
}

/// Pods of these tests use host paths, host ports and sysctls.
async fn allow_host_access(client: &Client) {
    let labels = json!({"metadata": {"labels": {
        "pod-security.kubernetes.io/enforce": "privileged",
    }}});
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let params = PatchParams::default();
    namespaces
        .patch("default", &params, &Patch::Merge(&labels))
        .await
        .unwrap();
}

impl Environment {
    pub(crate) fn new(name: &str) -> Self {
        Self::with_network(name, Arc::new(NoNetwork))
    }

    pub(crate) fn with_network(name: &str, network: Arc<dyn Network>) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("embedded-node-")
            .tempdir()
            .unwrap();
        let path = dir.path().to_owned();
        Self::start(name, network, (path, Some(dir)))
    }

    /// With an existing directory.
    pub(crate) fn in_directory(name: &str, dir: &Path) -> Self {
        Self::start(name, Arc::new(NoNetwork), (dir.to_owned(), None))
    }

    fn start(
        name: &str,
        network: Arc<dyn Network>,
        (dir, owned_dir): (PathBuf, Option<tempfile::TempDir>),
    ) -> Self {
        busybox_root(&dir.join("image"));
        let runtime = Runtime::new().unwrap();
        let stop = CancellationToken::new();
        let validity = serving::Validity::starting(Timestamp::now(), SignedDuration::from_hours(1));
        let authority = serving::Authority::create("test", validity).unwrap();
        let leaf = serving::Leaf::user(API_SERVER, &[], validity);
        let kubelet = embedded_api::KubeletClient {
            trust: authority.trust(),
            identity: authority.issue(&leaf).unwrap(),
        };
        let (api, client, own_client) = runtime.block_on(async {
            let api = EmbeddedApi::open(embedded_api::Settings {
                database: Database::Memory,
                clock: embedded_api::Clock::Wall,
                front_proxy: None,
                kubelet: Some(kubelet),
                services: ServiceSettings {
                    prefix_length: 24,
                    ..ServiceSettings::usual()
                },
            })
            .await
            .unwrap();
            api.run(&TaskTracker::new(), stop.clone());
            let client = api.client(Identity::component("test"), "default");
            install_roles(&client).await;
            allow_host_access(&client).await;
            define_kinds(&client).await;
            let own = Identity::new("system:node:here", &["system:nodes"]);
            let own_client = api.client(own, "default");
            (api, client, own_client)
        });
        let mut env = Self {
            cgroup: format!("/embedded-node-test-{name}-{}", std::process::id()),
            authority,
            api,
            dir,
            _owned_dir: owned_dir,
            runtime,
            client,
            own_client,
            stop,
            supervisor: supervisor(),
            node: None,
            runs: NodeRuns::default(),
            network,
            port: 0,
            volume_refresh: VOLUME_REFRESH,
        };
        env.start_node();
        env
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.join("node")
    }

    pub(crate) fn start_node(&mut self) {
        let (node, port) = self.run_node();
        (self.node, self.port) = (Some(node), port);
    }

    /// Starts a node. Returns its runtime and the port on which it listens.
    pub(crate) fn run_node(&self) -> (Runtime, u16) {
        let runtime = self.runs.runtime();
        let validity = serving::Validity::starting(Timestamp::now(), SignedDuration::from_hours(1));
        let mut leaf = serving::Leaf::server("node", validity);
        leaf.addresses.push([127, 0, 0, 1].into());
        let tls = serving::TlsSource::fixed(
            &self.authority.issue(&leaf).unwrap(),
            &serving::ClientCertificates::Required(self.authority.trust()),
        )
        .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let settings = Settings {
            node_name: "here".into(),
            root: self.root(),
            supervisor: self.supervisor.clone(),
            client: self.own_client.clone(),
            images: Arc::new(BusyBox {
                root: self.dir.join("image"),
            }),
            network: Arc::clone(&self.network),
            clock: reconcile::Clock::system(),
            address: [127, 0, 0, 1].into(),
            endpoint: Endpoint { listener, tls },
            labels: [("a".to_owned(), "b".to_owned())].into(),
            cgroup_parent: self.cgroup.clone(),
            resolver: Resolver {
                nameservers: vec![[10, 0, 0, 1].into()],
                searches: vec![],
            },
            volume_refresh: self.volume_refresh,
            reserved_cpus: Some(vec![RESERVED_CPU]),
        };
        let node = EmbeddedNode::new(settings).unwrap();
        let stop = CancellationToken::new();
        runtime.spawn(node.run(stop));
        let ready = |node: Option<&Node>| {
            node.is_some_and(|node| node.status.as_ref().is_some_and(|s| s.conditions.is_some()))
        };
        let api = Api::<Node>::all(self.client.clone());
        self.wait(await_condition(api, "here", ready)).unwrap();
        (runtime, port)
    }

    /// Like SIGKILL: no task of the node runs after this returns.
    pub(crate) fn kill_node(&mut self) {
        self.node.take().unwrap().shutdown_timeout(TIMEOUT);
    }

    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime
            .block_on(async { timeout(TIMEOUT, work).await.unwrap() })
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    /// Creates an object of the cluster, of any kind.
    pub(crate) fn create_object(&self, object: &Value) {
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        let kind = ApiResource::from_gvk(&object.types.clone().unwrap().try_into().unwrap());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
        self.wait(api.create(&PostParams::default(), &object))
            .unwrap();
    }

    pub(crate) fn create(&self, name: &str, spec: Value) -> Pod {
        let mut spec = spec;
        if spec.get("containers").is_none() {
            spec["containers"] = json!([{"name": "main", "image": "busybox:1"}]);
        }
        self.create_pod(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec,
        }))
    }

    /// A pod that runs until it is deleted.
    pub(crate) fn create_annotated(&self, name: &str, annotations: &Value) -> Pod {
        let script = "trap 'exit 0' TERM; sleep 1000 & wait";
        self.create_pod(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"containers": [
                {"name": "main", "image": "busybox:1", "command": ["sh", "-c", script]},
            ]},
        }))
    }

    fn create_pod(&self, pod: &Value) -> Pod {
        let pod = serde_json::from_value(pod.clone()).unwrap();
        self.wait(self.pods().create(&PostParams::default(), &pod))
            .unwrap()
    }

    pub(crate) fn script(&self, name: &str, script: &str, policy: &str) -> Pod {
        self.create(
            name,
            json!({
                "restartPolicy": policy,
                "containers": [{
                    "name": "main", "image": "busybox:1", "command": ["sh", "-c", script],
                }],
            }),
        )
    }

    pub(crate) fn wait_until(
        &self,
        name: &str,
        expected: &str,
        done: impl Fn(&Value) -> bool,
    ) -> Pod {
        let found = std::cell::RefCell::new(None);
        let wait = async {
            let condition = |pod: Option<&Pod>| {
                let status = pod.and_then(|pod| pod.status.as_ref());
                let value = serde_json::to_value(status).unwrap();
                *found.borrow_mut() = pod.cloned();
                done(&value)
            };
            timeout(TIMEOUT, await_condition(self.pods(), name, condition)).await
        };
        let outcome = self.runtime.block_on(wait);
        let pod = found.into_inner();
        assert!(
            outcome.is_ok(),
            "no {expected}: {:#?}",
            pod.map(|pod| pod.status)
        );
        pod.unwrap()
    }

    pub(crate) fn wait_phase(&self, name: &str, phase: &str) -> Pod {
        self.wait_until(name, phase, |status| status["phase"] == phase)
    }

    pub(crate) fn delete_and_wait(&self, name: &str) {
        self.wait(self.pods().delete(name, &DeleteParams::default()))
            .unwrap();
        self.wait(await_condition(self.pods(), name, |pod: Option<&Pod>| {
            pod.is_none()
        }))
        .unwrap();
    }

    pub(crate) fn pod_dir(&self, pod: &Pod) -> PathBuf {
        self.root()
            .join("pods")
            .join(pod.metadata.uid.as_deref().unwrap())
    }

    pub(crate) fn process(&self, pod: &Pod) -> Process {
        let status = pod_supervisor::status::read(&self.pod_dir(pod))
            .unwrap()
            .unwrap();
        match status.containers[0].state {
            pod_supervisor::status::State::Running { process, .. } => process,
            ref other => panic!("not running: {other:?}"),
        }
    }

    /// A client with the identity of the API server.
    pub(crate) fn kubelet_client(&self) -> (serving::HttpsClient, serving::Target) {
        self.client_of_kubelet(API_SERVER)
    }

    /// A client whose certificate has this name.
    fn client_of_kubelet(&self, name: &str) -> (serving::HttpsClient, serving::Target) {
        let validity = serving::Validity::starting(Timestamp::now(), SignedDuration::from_hours(1));
        let identity = self
            .authority
            .issue(&serving::Leaf::user(name, &[], validity))
            .unwrap();
        let client =
            serving::HttpsClient::new(&self.authority.trust(), Some(&identity), TaskTracker::new())
                .unwrap();
        let address = ([127, 0, 0, 1], self.port).into();
        (client, serving::Target::at(address, "node"))
    }

    pub(crate) fn log(&self, path: &str) -> (http::StatusCode, String) {
        self.get_as(API_SERVER, path)
    }

    /// The response to a client whose certificate has this name.
    pub(crate) fn get_as(&self, name: &str, path: &str) -> (http::StatusCode, String) {
        let (client, target) = self.client_of_kubelet(name);
        let request = http::Request::get(path)
            .body(axum::body::Body::empty())
            .unwrap();
        self.wait(async {
            let response = client.send(&target, request).await.unwrap();
            let status = response.status();
            let body = axum::body::Body::new(response.into_body());
            let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            (status, String::from_utf8(bytes.to_vec()).unwrap())
        })
    }

    /// Waits until all these events exist. They are written asynchronously and in no order.
    pub(crate) fn wait_for_reasons(&self, uid: &str, wanted: &[&str]) {
        let api = Api::<Event>::default_namespaced(self.client.clone());
        self.until(&format!("reported {wanted:?}"), || {
            let events = self.wait(api.list(&ListParams::default())).unwrap().items;
            let ours = events
                .iter()
                .filter(|event| event.involved_object.uid.as_deref() == Some(uid));
            let reasons: Vec<_> = ours.filter_map(|event| event.reason.as_deref()).collect();
            wanted.iter().all(|reason| reasons.contains(reason))
        });
    }

    pub(crate) fn wait_for_events(&self, pod: &Pod, wanted: &[&str]) {
        self.wait_for_reasons(pod.metadata.uid.as_deref().unwrap(), wanted);
    }

    /// Polls until the condition holds.
    pub(crate) fn until(&self, expected: &str, condition: impl Fn() -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        let mut ticks = self
            .runtime
            .block_on(async { tokio::time::interval(Duration::from_millis(5)) });
        while !condition() {
            assert!(Instant::now() < deadline, "not {expected}");
            self.runtime.block_on(ticks.tick());
        }
    }

    /// Waits, as the API server may delete a pod object before the pod has ended.
    pub(crate) fn assert_no_leftovers(&self, pod: &Pod) {
        let uid = pod.metadata.uid.as_deref().unwrap();
        self.until("removed", || !self.pod_dir(pod).exists());
        assert!(!cgroup::exists(&format!("{}/pod{uid}", self.cgroup)).unwrap());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(uid), "{mounts}");
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            node.shutdown_timeout(TIMEOUT);
        }
        self.stop.cancel();
        let root = self.root();
        self.runtime
            .block_on(teardown_all(&root, &NoNetwork, AT_ONCE))
            .unwrap();
        assert!(!cgroup::exists(&self.cgroup).unwrap());
    }
}

/// The program of another package, which cargo does not build for this test: run
/// `cargo build --workspace --bins` first. Building it here would replace it under running tests.
pub(crate) fn supervisor() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("pod-supervisor");
    assert!(
        program.exists(),
        "run `cargo build --workspace --bins` first"
    );
    program
}

fn busybox_root(root: &Path) {
    for dir in ["bin", "proc", "sys", "dev", "tmp", "etc"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    for name in [
        "sh", "cat", "echo", "id", "sleep", "ls", "touch", "stat", "dd", "rm", "stty", "tty",
    ] {
        symlink("busybox", root.join("bin").join(name)).unwrap();
    }
}
