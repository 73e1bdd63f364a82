//! A cluster in one process on a stopped clock: our API server, both controllers, and a
//! simulated node that does what kubelet and handler do to pods and VMIs.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use embedded_api::{Clock as ApiClock, Database, EmbeddedApi, Identity, Settings as ApiSettings};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use kubevirt_api::{VirtualMachine, VirtualMachineInstance};
use launcher_pod::Acceleration;
use parking_lot::Mutex;
use reconcile::Clock;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;
use virt_controller::{AccelerationPolicy, Settings};

pub(crate) const NAMESPACE: &str = "default";
/// In virtual time; nothing here takes that long unless it hangs.
const DEADLINE: Duration = Duration::from_mins(15);
const STEP: Duration = Duration::from_millis(50);

/// What the simulated node does to new pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weather {
    Fair,
    /// Pods fail before their guest runs.
    Broken,
    /// No node takes the pod.
    Full,
}

pub(crate) struct World {
    pub(crate) client: Client,
    router: axum::Router,
    stop: CancellationToken,
    tasks: TaskTracker,
    weather: Arc<Mutex<Weather>>,
    /// Method and path of every write by a controller.
    writes: Arc<Mutex<Vec<String>>>,
    controllers: Option<(CancellationToken, tokio::task::JoinHandle<()>)>,
}

impl World {
    pub(crate) async fn new() -> Self {
        let settings = ApiSettings {
            database: Database::Memory,
            clock: ApiClock::tokio_from(start()),
            front_proxy: None,
            kubelet: None,
        };
        let api = EmbeddedApi::open(settings).await.unwrap();
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        api.run(&tasks, stop.clone());
        let client = api.client(Identity::component("test"), NAMESPACE);
        install_kinds(&client).await;
        let mut world = Self {
            client,
            router: api.router(),
            stop,
            tasks,
            weather: Arc::new(Mutex::new(Weather::Fair)),
            writes: Arc::default(),
            controllers: None,
        };
        let node = SimulatedNode {
            client: world.client.clone(),
            weather: Arc::clone(&world.weather),
        };
        world.tasks.spawn(node.run(world.stop.clone()));
        world.start_controllers();
        world
    }

    pub(crate) fn start_controllers(&mut self) {
        let settings = Settings {
            client: self.controller_client(),
            launcher: launcher_pod::Settings::usual("launcher:1", Acceleration::Kvm),
            acceleration: AccelerationPolicy::ByNodes,
            clock: Clock::starting_at(start()),
            concurrency: 4,
        };
        let stop = self.stop.child_token();
        let running = self
            .tasks
            .spawn(virt_controller::run(settings, stop.clone()));
        self.controllers = Some((stop, running));
    }

    pub(crate) async fn stop_controllers(&mut self) {
        if let Some((stop, running)) = self.controllers.take() {
            stop.cancel();
            running.await.unwrap();
        }
    }

    pub(crate) async fn end(mut self) {
        self.stop_controllers().await;
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        *self.weather.lock() = weather;
    }

    /// Writes by the controllers to paths that hold this text.
    pub(crate) fn writes_to(&self, part: &str) -> Vec<String> {
        self.writes
            .lock()
            .iter()
            .filter(|write| write.contains(part))
            .cloned()
            .collect()
    }

    pub(crate) fn all_writes(&self) -> usize {
        self.writes.lock().len()
    }

    /// What the mutating webhook does to new VMIs, and a record of all writes.
    fn controller_client(&self) -> Client {
        let (router, writes) = (self.router.clone(), Arc::clone(&self.writes));
        let identity = Identity::component("virt-controller");
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (router, writes) = (router.clone(), Arc::clone(&writes));
            let identity = identity.clone();
            async move {
                let (mut parts, body) = request.into_parts();
                parts.extensions.insert(identity);
                let path = parts.uri.path().to_owned();
                let mut bytes = body.collect().await.unwrap().to_bytes();
                if parts.method != http::Method::GET && !path.contains("/events") {
                    writes.lock().push(format!("{} {path}", parts.method));
                }
                if parts.method == http::Method::POST && path.ends_with("instances") {
                    bytes = admit(&bytes).into();
                    parts.headers.remove(http::header::CONTENT_LENGTH);
                }
                let request = http::Request::from_parts(parts, axum::body::Body::from(bytes));
                router.oneshot(request).await
            }
        });
        Client::new(service, NAMESPACE)
    }

    pub(crate) fn vms(&self) -> Api<VirtualMachine> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) fn vmis(&self) -> Api<VirtualMachineInstance> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) async fn create_vm(&self, name: &str, strategy: &str) {
        let vm = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": name},
            "spec": {"runStrategy": strategy, "template": {"spec": guest()}},
        });
        let vm: VirtualMachine = serde_json::from_value(vm).unwrap();
        self.vms()
            .create(&PostParams::default(), &vm)
            .await
            .unwrap();
    }

    pub(crate) async fn patch_vm(&self, name: &str, patch: Value) {
        let parameters = PatchParams::default();
        self.vms()
            .patch(name, &parameters, &Patch::Merge(patch))
            .await
            .unwrap();
    }

    pub(crate) async fn request(&self, name: &str, requests: Value) {
        let patch = json!({"status": {"stateChangeRequests": requests}});
        let parameters = PatchParams::default();
        self.vms()
            .patch_status(name, &parameters, &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// Records a phase as the handler would.
    pub(crate) async fn set_phase(&self, name: &str, phase: &str) {
        write_phase(&self.client, &self.vmis().get(name).await.unwrap(), phase).await;
    }

    pub(crate) async fn printable(&self, name: &str) -> String {
        let vm = self.vms().get(name).await.unwrap();
        let word = vm.status.and_then(|status| status.printable_status);
        word.map(|word| word.to_string()).unwrap_or_default()
    }

    pub(crate) async fn until_printable(&self, name: &str, word: &str) {
        self.until(&format!("{name} is {word}"), async || {
            self.printable(name).await == word
        })
        .await;
    }

    /// Waits until instance and pods are gone; the VM reads Stopped a moment before.
    pub(crate) async fn until_gone(&self, name: &str) {
        self.until("instance and pods are gone", async || {
            let pods = self.pods().list(&ListParams::default()).await.unwrap();
            self.vmis().get_opt(name).await.unwrap().is_none() && pods.items.is_empty()
        })
        .await;
    }

    /// Waits for a condition; fails loudly with the state of things when it does not come.
    pub(crate) async fn until<F: Future<Output = bool>>(&self, what: &str, holds: impl Fn() -> F) {
        let wait = async {
            while !holds().await {
                tokio::time::sleep(STEP).await;
            }
        };
        if tokio::time::timeout(DEADLINE, wait).await.is_err() {
            let vms = self.vms().list(&ListParams::default()).await.unwrap();
            let vmis = self.vmis().list(&ListParams::default()).await.unwrap();
            let seen = json!({"vms": vms, "vmis": vmis, "writes": *self.writes.lock()});
            panic!("not in time: {what}\n{seen:#}");
        }
    }

    /// Lets virtual time pass.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

fn start() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

fn guest() -> Value {
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

async fn install_kinds(client: &Client) {
    let kinds = Api::<CustomResourceDefinition>::all(client.clone());
    for (_, manifest) in kubevirt_api::crds::ALL {
        let kind = serde_saphyr::from_str(manifest).unwrap();
        kinds.create(&PostParams::default(), &kind).await.unwrap();
    }
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1"},
        "status": {"allocatable": {"cpu": "2", "devices.kubevirt.io/kvm": "0"}},
    });
    let node: Node = serde_json::from_value(node).unwrap();
    Api::<Node>::all(client.clone())
        .create(&PostParams::default(), &node)
        .await
        .unwrap();
}

/// The defaults of admission that the controllers rely on.
fn admit(body: &[u8]) -> Vec<u8> {
    let mut vmi: Value = serde_json::from_slice(body).unwrap();
    let list = vmi["metadata"]["finalizers"].as_array_mut().unwrap();
    list.push("kubevirt.io/foregroundDeleteVirtualMachine".into());
    vmi["status"] = json!({"phase": "Pending", "phaseTransitionTimestamps": [
        {"phase": "Pending", "phaseTransitionTimestamp": "2026-11-21T12:00:00Z"},
    ]});
    vmi.to_string().into_bytes()
}

/// Kubelet and handler in one, looking around every step of virtual time.
struct SimulatedNode {
    client: Client,
    weather: Arc<Mutex<Weather>>,
}

impl SimulatedNode {
    async fn run(self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(STEP);
        let forever = async {
            loop {
                ticks.tick().await;
                self.tend_pods().await;
                self.tend_guests().await;
            }
        };
        Box::pin(stop.run_until_cancelled(forever)).await;
    }

    async fn tend_pods(&self) {
        let all = Api::<Pod>::all(self.client.clone());
        let weather = *self.weather.lock();
        for pod in all.list(&ListParams::default()).await.unwrap() {
            let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
            let is_bound = pod
                .spec
                .as_ref()
                .is_some_and(|spec| spec.node_name.is_some());
            let pods = Api::<Pod>::namespaced(self.client.clone(), NAMESPACE);
            let name = pod.name_any();
            if pod.metadata.deletion_timestamp.is_some() {
                let now = DeleteParams {
                    grace_period_seconds: Some(0),
                    ..DeleteParams::default()
                };
                // Somebody else may have been faster.
                let _deleted = pods.delete(&name, &now).await.is_ok();
            } else if weather == Weather::Full {
                let condition = json!({"type": "PodScheduled", "status": "False",
                                       "reason": "Unschedulable", "message": "no room"});
                set_pod_status(&pods, &name, json!({"conditions": [condition]})).await;
            } else if !is_bound {
                bind(&self.client, &name).await;
            } else if matches!(phase.as_deref(), None | Some("" | "Pending")) {
                let state = match weather {
                    Weather::Broken => "Failed",
                    Weather::Fair | Weather::Full => "Running",
                };
                set_pod_status(&pods, &name, pod_status(state)).await;
            }
        }
    }

    async fn tend_guests(&self) {
        let vmis = Api::<VirtualMachineInstance>::namespaced(self.client.clone(), NAMESPACE);
        for vmi in vmis.list(&ListParams::default()).await.unwrap() {
            let phase = vmi.status.as_ref().and_then(|status| status.phase.clone());
            let phase = phase.map(|phase| phase.to_string()).unwrap_or_default();
            let is_deleting = vmi.metadata.deletion_timestamp.is_some();
            match (phase.as_str(), is_deleting) {
                ("Scheduled", false) => write_phase(&self.client, &vmi, "Running").await,
                ("Scheduled" | "Running", true) => {
                    write_phase(&self.client, &vmi, "Succeeded").await;
                }
                _ => {}
            }
        }
    }
}

/// As the handler writes: an apply of what it owns, conditional on what it saw.
async fn write_phase(client: &Client, vmi: &VirtualMachineInstance, phase: &str) {
    let status = json!(vmi.status);
    let now = "2026-11-21T12:00:01Z";
    let mut changes = status["phaseTransitionTimestamps"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    changes.push(json!({"phase": phase, "phaseTransitionTimestamp": now}));
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    if phase == "Running" {
        conditions.retain(|condition| condition["type"] != "Ready");
        conditions.push(json!({"type": "Ready", "status": "True", "lastTransitionTime": now}));
    }
    let body = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": vmi.name_any(), "namespace": NAMESPACE,
                     "resourceVersion": vmi.resource_version()},
        "status": {"phase": phase, "phaseTransitionTimestamps": changes, "conditions": conditions},
    });
    let vmis = Api::<VirtualMachineInstance>::namespaced(client.clone(), NAMESPACE);
    let parameters = PatchParams::apply("virt-handler").force();
    // A conflict is looked at again in the next step.
    let _written = vmis
        .patch(&vmi.name_any(), &parameters, &Patch::Apply(body))
        .await
        .is_ok();
}

fn pod_status(phase: &str) -> Value {
    let now = "2026-11-21T12:00:00Z";
    let is_up = phase == "Running";
    let state = if is_up {
        json!({"running": {"startedAt": now}})
    } else {
        json!({"terminated": {"exitCode": 1, "finishedAt": now}})
    };
    json!({
        "phase": phase, "qosClass": "Burstable", "podIP": "10.0.0.2",
        "conditions": [{"type": "Ready", "status": if is_up { "True" } else { "False" }}],
        "containerStatuses": [{"name": "compute", "ready": is_up, "image": "launcher:1",
                               "imageID": "", "restartCount": 0, "state": state}],
    })
}

async fn set_pod_status(pods: &Api<Pod>, name: &str, status: Value) {
    let patch = Patch::Merge(json!({"status": status}));
    // The pod may have gone meanwhile.
    let _patched = pods
        .patch_status(name, &PatchParams::default(), &patch)
        .await
        .is_ok();
}

async fn bind(client: &Client, name: &str) {
    let body = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node1"},
    });
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/binding");
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())
        .unwrap();
    let _bound = client.request::<Value>(request).await.is_ok();
}
