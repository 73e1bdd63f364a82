//! Real pods as root on an API server in this process: start, fail, end, be adopted, be removed.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may panic as tests do"
)]

use std::{
    collections::BTreeSet,
    fs,
    net::IpAddr,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use device_plugin::{
    ContainerAllocateRequest, ContainerAllocateResponse, Device, DeviceSpec, Plugin,
    RegisterRequest, Status,
};
use embedded_api::{Database, EmbeddedApi, Identity};
use embedded_node::{
    Addresses, EmbeddedNode, Endpoint, Failure, Images, Network, Resolver, Settings, teardown_all,
};
use failpoints::Trap;
use futures::{StreamExt as _, future::BoxFuture};
use image_store::{Credentials, Digest, Image, ImageConfig, ImageError, PullPolicy};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod, Secret};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams},
    runtime::{wait::await_condition, watcher},
};
use pod_supervisor::{cgroup, status::Process};
use serde_json::{Value, json};
use tokio::{net::TcpListener, runtime::Runtime, sync::watch, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

mod places;
mod probes;
mod services;
mod storage;
mod streams;

const PATIENCE: Duration = Duration::from_mins(1);

/// An API server and a node directory; nodes come and go on it.
struct Home {
    dir: tempfile::TempDir,
    cgroup: String,
    runtime: Runtime,
    client: Client,
    /// With the rights of a node.
    own_client: Client,
    stop: CancellationToken,
    authority: serving::Authority,
    api: EmbeddedApi,
    supervisor: PathBuf,
    node: Option<Runtime>,
    lives: Lives,
    network: Arc<dyn Network>,
    port: u16,
}

/// What all lives of a node have in common: where they die, and how many threads still live.
#[derive(Clone, Default)]
struct Lives {
    trap: Trap,
    threads: Arc<AtomicUsize>,
}

impl Lives {
    fn runtime(&self) -> Runtime {
        let (trap, begun, ended) = (
            self.trap.clone(),
            Arc::clone(&self.threads),
            Arc::clone(&self.threads),
        );
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .on_thread_start(move || {
                begun.fetch_add(1, Ordering::Relaxed);
                trap.enter();
            })
            .on_thread_stop(move || {
                ended.fetch_sub(1, Ordering::Relaxed);
            })
            .build()
            .unwrap()
    }
}

/// One image, whatever is asked for, and one that nobody has.
#[derive(Debug)]
struct BusyBox {
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
}

#[derive(Debug)]
struct NoNetwork;

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

    fn delete<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }
}

/// What components may do, as on a real home: a right that is missing shows here.
async fn install_roles(client: &Client) {
    let home = roles::Environment::Host {
        namespace: "kubevirt",
        node: "here",
    };
    for object in roles::objects(home).unwrap() {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let kind = ApiResource::from_gvk(&object.types.clone().unwrap().try_into().unwrap());
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
            None => Api::all_with(client.clone(), &kind),
        };
        api.create(&PostParams::default(), &object).await.unwrap();
    }
}

impl Home {
    fn new(name: &str) -> Self {
        Self::with_network(name, Arc::new(NoNetwork))
    }

    fn with_network(name: &str, network: Arc<dyn Network>) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("embedded-node-")
            .tempdir()
            .unwrap();
        busybox_root(&dir.path().join("image"));
        let runtime = Runtime::new().unwrap();
        let stop = CancellationToken::new();
        let validity = serving::Validity::starting(Timestamp::now(), SignedDuration::from_hours(1));
        let authority = serving::Authority::create("test", validity).unwrap();
        let leaf = serving::Leaf::user("api", &[], validity);
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
            })
            .await
            .unwrap();
            api.run(&TaskTracker::new(), stop.clone());
            let client = api.client(Identity::component("test"), "default");
            install_roles(&client).await;
            let own = Identity::new("system:node:here", &["system:nodes"]);
            let own_client = api.client(own, "default");
            (api, client, own_client)
        });
        let mut home = Self {
            cgroup: format!("/embedded-node-test-{name}-{}", std::process::id()),
            authority,
            api,
            dir,
            runtime,
            client,
            own_client,
            stop,
            supervisor: supervisor(),
            node: None,
            lives: Lives::default(),
            network,
            port: 0,
        };
        home.start_node();
        home
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("node")
    }

    fn start_node(&mut self) {
        let (node, port) = self.run_node();
        (self.node, self.port) = (Some(node), port);
    }

    /// A life of the node, and the port on which it listens.
    fn run_node(&self) -> (Runtime, u16) {
        let runtime = self.lives.runtime();
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
                root: self.dir.path().join("image"),
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

    /// As good as SIGKILL: no task of the node runs another instruction when this returns.
    fn kill_node(&mut self) {
        self.node.take().unwrap().shutdown_timeout(PATIENCE);
    }

    fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime
            .block_on(async { timeout(PATIENCE, work).await.unwrap() })
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    fn create(&self, name: &str, spec: Value) -> Pod {
        let mut spec = spec;
        if spec.get("containers").is_none() {
            spec["containers"] = json!([{"name": "main", "image": "busybox:1"}]);
        }
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec,
        });
        let pod = serde_json::from_value(pod).unwrap();
        self.wait(self.pods().create(&PostParams::default(), &pod))
            .unwrap()
    }

    fn script(&self, name: &str, script: &str, policy: &str) -> Pod {
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

    fn wait_until(&self, name: &str, what: &str, done: impl Fn(&Value) -> bool) -> Pod {
        let found = std::cell::RefCell::new(None);
        let wait = async {
            let condition = |pod: Option<&Pod>| {
                let status = pod.and_then(|pod| pod.status.as_ref());
                let value = serde_json::to_value(status).unwrap();
                *found.borrow_mut() = pod.cloned();
                done(&value)
            };
            timeout(PATIENCE, await_condition(self.pods(), name, condition)).await
        };
        let outcome = self.runtime.block_on(wait);
        let pod = found.into_inner();
        assert!(
            outcome.is_ok(),
            "no {what}: {:#?}",
            pod.map(|pod| pod.status)
        );
        pod.unwrap()
    }

    fn wait_phase(&self, name: &str, phase: &str) -> Pod {
        self.wait_until(name, phase, |status| status["phase"] == phase)
    }

    fn delete_and_wait(&self, name: &str) {
        self.wait(self.pods().delete(name, &DeleteParams::default()))
            .unwrap();
        self.wait(await_condition(self.pods(), name, |pod: Option<&Pod>| {
            pod.is_none()
        }))
        .unwrap();
    }

    fn pod_dir(&self, pod: &Pod) -> PathBuf {
        self.root()
            .join("pods")
            .join(pod.metadata.uid.as_deref().unwrap())
    }

    fn process(&self, pod: &Pod) -> Process {
        let status = pod_supervisor::status::read(&self.pod_dir(pod))
            .unwrap()
            .unwrap();
        match status.containers[0].state {
            pod_supervisor::status::State::Running { process, .. } => process,
            ref other => panic!("not running: {other:?}"),
        }
    }

    /// As the API server asks its kubelets.
    fn kubelet_client(&self) -> (serving::HttpsClient, serving::Target) {
        let validity = serving::Validity::starting(Timestamp::now(), SignedDuration::from_hours(1));
        let identity = self
            .authority
            .issue(&serving::Leaf::user("api", &[], validity))
            .unwrap();
        let client =
            serving::HttpsClient::new(&self.authority.trust(), Some(&identity), TaskTracker::new())
                .unwrap();
        let address = ([127, 0, 0, 1], self.port).into();
        (client, serving::Target::at(address, "node"))
    }

    fn log(&self, path: &str) -> (http::StatusCode, String) {
        let (client, target) = self.kubelet_client();
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

    /// Events are written beside the rest, some of them after what they tell of is to be seen; and
    /// others may have been there before.
    fn wait_for_reasons(&self, uid: &str, wanted: &[&str]) {
        let api = Api::<Event>::default_namespaced(self.client.clone());
        self.until(&format!("told of {wanted:?}"), || {
            let events = self.wait(api.list(&ListParams::default())).unwrap().items;
            let ours = events
                .iter()
                .filter(|event| event.involved_object.uid.as_deref() == Some(uid));
            let reasons: Vec<_> = ours.filter_map(|event| event.reason.as_deref()).collect();
            wanted.iter().all(|reason| reasons.contains(reason))
        });
    }

    fn wait_for_events(&self, pod: &Pod, wanted: &[&str]) {
        self.wait_for_reasons(pod.metadata.uid.as_deref().unwrap(), wanted);
    }

    /// Waits until the condition holds; nothing announces most of what the tests look at.
    fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut ticks = self
            .runtime
            .block_on(async { tokio::time::interval(Duration::from_millis(5)) });
        while !condition() {
            assert!(Instant::now() < deadline, "not {what}");
            self.runtime.block_on(ticks.tick());
        }
    }

    /// Also with an API server that forgets pods without grace before they have ended.
    fn assert_nothing_left(&self, pod: &Pod) {
        let uid = pod.metadata.uid.as_deref().unwrap();
        self.until("removed", || !self.pod_dir(pod).exists());
        assert!(!cgroup::exists(&format!("{}/pod{uid}", self.cgroup)).unwrap());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(uid), "{mounts}");
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            node.shutdown_timeout(PATIENCE);
        }
        self.stop.cancel();
        let root = self.root();
        self.runtime
            .block_on(teardown_all(&root, &NoNetwork, Duration::ZERO))
            .unwrap();
        assert!(!cgroup::exists(&self.cgroup).unwrap());
    }
}

/// The program is of another package, so cargo neither builds it for us nor names it.
/// The program as it was built last: `cargo build --workspace --bins` comes before the tests. To
/// build it from here would replace it under tests that run it.
fn supervisor() -> PathBuf {
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

#[test]
fn pod_runs_and_is_removed_without_a_trace() {
    let home = Home::new("runs");
    let began = Instant::now();
    home.create("a", json!({"terminationGracePeriodSeconds": 1}));
    let pod = home.wait_phase("a", "Running");
    println!("create to Running: {:?}", began.elapsed());
    let status = serde_json::to_value(&pod.status).unwrap();
    assert_eq!(
        pod.spec.as_ref().unwrap().node_name.as_deref(),
        Some("here")
    );
    assert_eq!(status["podIP"], "10.9.8.7");
    assert_eq!(status["hostIP"], "127.0.0.1");
    assert_eq!(status["qosClass"], "BestEffort");
    assert_eq!(status["containerStatuses"][0]["ready"], true);
    let process = home.process(&pod);
    assert!(process.is_alive());
    home.delete_and_wait("a");
    home.assert_nothing_left(&pod);
    assert!(!process.is_alive());
    home.wait_for_events(
        &pod,
        &["Scheduled", "Pulled", "Created", "Started", "Killing"],
    );
}

#[test]
fn start_costs_few_writes_to_the_pod() {
    let home = Home::new("writes");
    home.create("w", json!({}));
    let versions = async {
        let config = watcher::Config::default();
        let mut events = pin!(watcher(home.pods(), config));
        let mut versions = BTreeSet::new();
        while let Some(event) = events.next().await {
            if let watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) = event.unwrap() {
                versions.insert(pod.metadata.resource_version);
                let phase = pod.status.and_then(|status| status.phase);
                if phase.as_deref() == Some("Running") {
                    return versions.len();
                }
            }
        }
        0
    };
    // As created, bound, running; and what it waits for, where a start takes its time.
    assert!(home.wait(versions) <= 4);
}

#[test]
fn exit_codes_decide_the_phase_and_logs_are_served() {
    let home = Home::new("exits");
    home.script("good", "echo hello; echo world >&2", "Never");
    home.script("bad", "echo -n why > /dev/termination-log; exit 3", "Never");
    home.wait_phase("good", "Succeeded");
    let bad = serde_json::to_value(home.wait_phase("bad", "Failed").status).unwrap();
    let end = &bad["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&end["exitCode"], &end["reason"]),
        (&json!(3), &json!("Error"))
    );
    assert_eq!(end["message"], "why");
    let (code, text) = home.log("/containerLogs/default/good/main");
    assert_eq!(code, 200);
    let lines: BTreeSet<&str> = text.lines().collect();
    assert_eq!(lines, ["hello", "world"].into());
    let (_, text) = home.log("/containerLogs/default/good/main?tailLines=1&timestamps=true");
    assert!(text.contains("Z ") && text.lines().count() == 1, "{text}");
    let (code, text) = home.log("/containerLogs/default/good/other");
    assert_eq!(
        (code.as_u16(), &*text),
        (400, "container other is not valid for pod good")
    );
    assert_eq!(home.log("/healthz").1, "ok");
}

#[test]
fn followed_log_ends_with_its_container() {
    let home = Home::new("follow");
    home.script(
        "f",
        "echo one; while ! ls /tmp/go; do sleep 0.01; done 2> /dev/null; echo two",
        "Never",
    );
    let pod = home.wait_phase("f", "Running");
    let process = home.process(&pod);
    let go = format!("/proc/{}/root/tmp/go", process.pid);
    std::thread::scope(|scope| {
        let log = scope.spawn(|| home.log("/containerLogs/default/f/main?follow=true").1);
        fs::write(go, "").unwrap();
        assert_eq!(log.join().unwrap(), "one\n/tmp/go\ntwo\n");
    });
}

#[test]
fn volumes_of_all_kinds_are_there() {
    let home = Home::new("volumes");
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "m"}, "data": {"k": "from-map"}}))
            .unwrap();
    let secret: Secret = serde_json::from_value(
        json!({"metadata": {"name": "s"}, "stringData": {"p": "x"}, "data": {"k": "dG9w"}}),
    )
    .unwrap();
    let (maps, secrets) = (
        Api::<ConfigMap>::default_namespaced(home.client.clone()),
        Api::<Secret>::default_namespaced(home.client.clone()),
    );
    home.wait(maps.create(&PostParams::default(), &map))
        .unwrap();
    home.wait(secrets.create(&PostParams::default(), &secret))
        .unwrap();
    let script = "cat /map/k /secret/k /info/name; echo; echo $FROM; id; \
                  stat -c '%a %g' /empty; stat -f -c %T /memory; ls /image/bin/sh; \
                  touch /image/x 2>&1; ls /dev/null; cat /etc/resolv.conf /etc/hosts; \
                  sleep 1000";
    let mount = |name: &str| json!({"name": name, "mountPath": format!("/{name}")});
    home.create(
        "v",
        json!({
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsUser": 107, "runAsGroup": 107, "fsGroup": 4000},
            "volumes": [
                {"name": "map", "configMap": {"name": "m"}},
                {"name": "secret", "secret": {"secretName": "s", "items": [
                    {"key": "k", "path": "k", "mode": 0o400}]}},
                {"name": "info", "downwardAPI": {"items": [
                    {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                {"name": "empty", "emptyDir": {}},
                {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                {"name": "image", "image": {"reference": "busybox:1"}},
            ],
            "containers": [{
                "name": "main", "image": "busybox:1", "command": ["sh", "-c", script],
                "volumeMounts": [mount("map"), mount("secret"), mount("info"), mount("empty"),
                    mount("memory"), mount("image")],
                "env": [{"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                "resources": {"limits": {"memory": "64Mi"}},
            }],
        }),
    );
    let pod = home.wait_phase("v", "Running");
    let log = || home.log("/containerLogs/default/v/main").1;
    let deadline = Instant::now() + PATIENCE;
    let mut text = log();
    while !text.contains("10.9.8.7") {
        assert!(Instant::now() < deadline, "{text}");
        text = log();
    }
    for expected in [
        "from-maptopv\n",
        "\ntop\n",
        "uid=107 gid=107",
        "4000",
        "2770 4000",
        "tmpfs",
        "/image/bin/sh",
        "Read-only file system",
        "nameserver 10.0.0.1",
    ] {
        assert!(text.contains(expected), "no {expected:?} in {text}");
    }
    let empty = home
        .pod_dir(&pod)
        .join("volumes/kubernetes.io~empty-dir/empty");
    assert_eq!(fs::metadata(empty).unwrap().gid(), 4000);
    home.delete_and_wait("v");
    home.assert_nothing_left(&pod);
}

#[test]
fn what_keeps_a_pod_from_starting_is_said() {
    let home = Home::new("obstacles");
    home.create(
        "image",
        json!({"containers": [{"name": "main", "image": "missing:1"}]}),
    );
    home.create(
        "volume",
        json!({"volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]}),
    );
    home.create(
        "image-volume",
        json!({
            "volumes": [{"name": "v", "image": {"reference": "missing:1"}}],
            "containers": [{"name": "main", "image": "busybox:1"}],
        }),
    );
    home.create(
        "config",
        json!({"containers": [{
            "name": "main", "image": "busybox:1",
            "env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "no", "key": "k"}}}],
        }]}),
    );
    home.create(
        "program",
        json!({"restartPolicy": "Never", "containers": [{
        "name": "main", "image": "busybox:1", "command": ["/bin/nothing"]}]}),
    );
    let waiting = |status: &Value| status["containerStatuses"][0]["state"]["waiting"].clone();
    for name in ["image", "image-volume"] {
        home.wait_until(name, "reason", |s| {
            waiting(s)["reason"] == "ErrImageNeverPull"
        });
    }
    home.wait_until("config", "reason", |s| {
        waiting(s)["reason"] == "CreateContainerConfigError"
    });
    home.wait_until("volume", "message", |s| {
        waiting(s)["message"]
            .as_str()
            .is_some_and(|m| m.contains("kind that this node does not"))
    });
    let failed = home.wait_phase("program", "Failed");
    let status = serde_json::to_value(&failed.status).unwrap();
    let end = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(end["reason"], "StartError");
    assert!(end["message"].as_str().unwrap().contains("/bin/nothing"));
    for name in ["image", "volume", "config", "program"] {
        home.delete_and_wait(name);
    }
}

#[test]
fn init_containers_run_first_and_in_order() {
    let home = Home::new("init");
    let step = |name: &str, script: &str| {
        json!({"name": name, "image": "busybox:1", "command": ["sh", "-c", script],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}]})
    };
    home.create(
        "i",
        json!({
            "restartPolicy": "Never",
            "volumes": [{"name": "v", "emptyDir": {}}],
            "initContainers": [step("one", "echo 1 >> /v/f"), step("two", "echo 2 >> /v/f")],
            "containers": [step("main", "cat /v/f")],
        }),
    );
    home.wait_phase("i", "Succeeded");
    assert_eq!(home.log("/containerLogs/default/i/main").1, "1\n2\n");
}

#[test]
fn failing_container_backs_off() {
    let home = Home::new("backoff");
    home.script("b", "exit 1", "Always");
    let pod = home.wait_until("b", "back-off", |status| {
        let one = &status["containerStatuses"][0];
        one["state"]["waiting"]["reason"] == "CrashLoopBackOff" && one["restartCount"] == 1
    });
    let status = serde_json::to_value(&pod.status).unwrap();
    assert_eq!(status["phase"], "Running");
    assert_eq!(
        status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"],
        1
    );
    home.delete_and_wait("b");
    home.assert_nothing_left(&pod);
}

#[test]
fn pods_outlive_the_node_and_are_taken_over() {
    let mut home = Home::new("adopts");
    home.create("stays", json!({}));
    home.create("goes", json!({"terminationGracePeriodSeconds": 0}));
    home.script(
        "ends",
        "while ! ls /tmp/go; do sleep 0.01; done; exit 7",
        "Never",
    );
    let stays = home.wait_phase("stays", "Running");
    let goes = home.wait_phase("goes", "Running");
    let ends = home.wait_phase("ends", "Running");
    let (process, ending) = (home.process(&stays), home.process(&ends));
    home.kill_node();
    assert!(process.is_alive());
    fs::write(format!("/proc/{}/root/tmp/go", ending.pid), "").unwrap();
    home.wait(home.pods().delete("goes", &DeleteParams::default()))
        .unwrap();
    let version = home
        .wait(home.pods().get("stays"))
        .unwrap()
        .metadata
        .resource_version;
    home.start_node();
    // What ended meanwhile is known to have, with its exit code.
    let ended = serde_json::to_value(home.wait_phase("ends", "Failed").status).unwrap();
    assert_eq!(
        ended["containerStatuses"][0]["state"]["terminated"]["exitCode"],
        7
    );
    home.wait(await_condition(home.pods(), "goes", |pod: Option<&Pod>| {
        pod.is_none()
    }))
    .unwrap();
    home.assert_nothing_left(&goes);
    // What ran on was not touched, neither the process nor the object.
    assert_eq!(home.process(&stays), process);
    assert!(process.is_alive());
    let after = home.wait(home.pods().get("stays")).unwrap();
    assert_eq!(after.metadata.resource_version, version);
}

#[test]
fn pod_whose_object_vanished_is_taken_down() {
    let mut home = Home::new("vanishes");
    home.create("v", json!({"terminationGracePeriodSeconds": 0}));
    let pod = home.wait_phase("v", "Running");
    let process = home.process(&pod);
    home.kill_node();
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    home.wait(home.pods().delete("v", &now)).unwrap();
    home.start_node();
    home.assert_nothing_left(&pod);
    assert!(!process.is_alive());
}

#[test]
fn a_node_that_comes_back_ends_its_pods_whose_names_others_have_now() {
    let mut home = Home::new("back");
    let brief = || json!({"terminationGracePeriodSeconds": 0});
    let before = ["again", "moved"].map(|name| {
        home.create(name, brief());
        home.wait_phase(name, "Running")
    });
    let processes = before.each_ref().map(|pod| home.process(pod));
    home.kill_node();
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    for name in ["again", "moved"] {
        home.wait(home.pods().delete(name, &now)).unwrap();
    }
    home.create("again", brief());
    let mut elsewhere = brief();
    elsewhere["nodeName"] = json!("elsewhere");
    let moved = home.create("moved", elsewhere);
    assert!(
        processes.iter().all(|process| process.is_alive()),
        "nobody told them"
    );

    home.start_node();
    let again = home.wait_phase("again", "Running");
    for (pod, process) in before.iter().zip(&processes) {
        home.assert_nothing_left(pod);
        assert!(!process.is_alive());
    }
    assert_ne!(again.metadata.uid, before[0].metadata.uid);
    assert!(home.process(&again).is_alive());
    // The other is not this node's business, whatever it is called.
    let after = home.wait(home.pods().get("moved")).unwrap();
    assert_eq!(
        after.metadata.resource_version,
        moved.metadata.resource_version
    );
    assert!(!home.pod_dir(&moved).exists());
}

#[test]
fn killed_supervisor_is_replaced_under_its_container() {
    let home = Home::new("supervisor");
    home.create("s", json!({"terminationGracePeriodSeconds": 0}));
    let pod = home.wait_phase("s", "Running");
    let process = home.process(&pod);
    let old = pod_supervisor::status::read(&home.pod_dir(&pod))
        .unwrap()
        .unwrap()
        .supervisor;
    let number = rustix::process::Pid::from_raw(old.pid).unwrap();
    rustix::process::kill_process(number, rustix::process::Signal::KILL).unwrap();
    home.until("replaced", || {
        let now = pod_supervisor::status::read(&home.pod_dir(&pod))
            .unwrap()
            .unwrap()
            .supervisor;
        now != old && now.is_alive()
    });
    assert_eq!(home.process(&pod), process);
    assert!(process.is_alive());
    home.delete_and_wait("s");
    home.assert_nothing_left(&pod);
    assert!(!process.is_alive());
}

#[test]
fn everything_goes_without_an_api_server() {
    let mut home = Home::new("teardown");
    home.create(
        "t",
        json!({"volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}]}),
    );
    let pod = home.wait_phase("t", "Running");
    let process = home.process(&pod);
    home.kill_node();
    let root = home.root();
    let count = home
        .wait(teardown_all(&root, &NoNetwork, Duration::ZERO))
        .unwrap();
    assert_eq!(count, 1);
    assert!(!process.is_alive());
    home.assert_nothing_left(&pod);
}

/// Gives each container `/dev/null` by another name.
struct NullDevice;

impl Plugin for NullDevice {
    async fn allocate(
        &self,
        request: &ContainerAllocateRequest,
    ) -> Result<ContainerAllocateResponse, Status> {
        Ok(ContainerAllocateResponse {
            devices: vec![DeviceSpec {
                container_path: "/dev/nothing".into(),
                host_path: "/dev/null".into(),
                permissions: "rw".into(),
            }],
            envs: [("DEVICES".to_owned(), request.device_ids.join(","))].into(),
            ..ContainerAllocateResponse::default()
        })
    }
}

/// A plugin that offers one device for as long as the sender lives.
fn offer_null(home: &Home) -> watch::Sender<device_plugin::Devices> {
    let device = Device {
        id: "null0".into(),
        health: device_plugin::HEALTHY.into(),
        topology: None,
    };
    let (sender, devices) = watch::channel([device].into());
    let dir = home.root().join("device-plugins");
    let stop = home.stop.clone();
    // A node that has just begun may not listen yet, and takes away what plugins have made there.
    home.until("listening", || {
        std::os::unix::net::UnixStream::connect(dir.join("kubelet.sock")).is_ok()
    });
    home.wait(async {
        let listener = device_plugin::bind(&dir, "null.sock").unwrap();
        let plugin = Arc::new(NullDevice);
        home.runtime
            .spawn(device_plugin::serve_plugin(listener, plugin, devices, stop));
        let request = RegisterRequest {
            version: device_plugin::VERSION.into(),
            endpoint: "null.sock".into(),
            resource_name: "example.com/null".into(),
            options: None,
        };
        device_plugin::register(&dir, &request).await.unwrap();
    });
    sender
}

fn allocatable(home: &Home, amount: &str) {
    let shown = |node: Option<&Node>| {
        let status = serde_json::to_value(node.and_then(|node| node.status.as_ref())).unwrap();
        status["allocatable"]["example.com/null"] == amount
            && status["capacity"]["example.com/null"] == "1"
    };
    let api = Api::<Node>::all(home.client.clone());
    home.wait(await_condition(api, "here", shown)).unwrap();
}

#[test]
fn a_device_of_a_plugin_is_given_once_whatever_restarts() {
    let mut home = Home::new("devices");
    let wants = json!({"terminationGracePeriodSeconds": 0, "containers": [{
        "name": "main", "image": "busybox:1",
        "command": ["sh", "-c", "ls -l /dev/nothing; echo has $DEVICES; sleep 1000"],
        "resources": {"limits": {"example.com/null": "1"}},
    }]});
    let refused = |home: &Home, pod: &Pod| {
        home.wait_for_events(pod, &["FailedScheduling"]);
        let pod = home.wait(home.pods().get(pod.metadata.name.as_deref().unwrap()));
        assert_eq!(pod.unwrap().spec.unwrap().node_name, None);
    };
    let first = home.create("a", wants.clone());
    refused(&home, &first);
    let offer = offer_null(&home);
    let first = home.wait_phase("a", "Running");
    allocatable(&home, "1");
    let log = || home.log("/containerLogs/default/a/main").1;
    let deadline = Instant::now() + PATIENCE;
    while !log().contains("has null0") {
        assert!(Instant::now() < deadline, "{}", log());
    }
    assert!(log().contains("crw-rw-rw-"), "{}", log());
    let second = home.create("b", wants);
    refused(&home, &second);

    home.kill_node();
    drop(offer);
    home.start_node();
    let offer = offer_null(&home);
    allocatable(&home, "1");
    home.create("c", json!({}));
    home.wait_phase("c", "Running");
    refused(&home, &second);
    assert!(home.process(&first).is_alive());

    home.delete_and_wait("a");
    home.wait_phase("b", "Running");
    drop(offer);
    allocatable(&home, "0");
    home.delete_and_wait("b");
}
