//! `why` on our own API server with the real controllers, on a stopped clock: each situation is
//! made, not written down. Kubelet and node agent are played by hand.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails so")]
#![expect(
    clippy::needless_pass_by_value,
    reason = "objects are written where they are passed"
)]

use std::time::Duration;

use diagnosis::{Cause, Diagnosis, diagnose};
use embedded_api::{Clock as ApiClock, Database, EmbeddedApi, Identity};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Api, Client, ResourceExt as _,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
};
use launcher_pod::Acceleration;
use reconcile::{Clock, Election};
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use virt_controller::{AccelerationPolicy, Settings};

const NAMESPACE: &str = "default";
const NODE: &str = "node1";
const START: &str = "2026-11-21T12:00:00Z";
/// In virtual time; nothing here takes that long unless it hangs.
const DEADLINE: Duration = Duration::from_mins(15);
/// Between two looks: short at first, for most things happen at once.
const STEPS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

struct World {
    client: Client,
    clock: Clock,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl World {
    /// With controllers and a node.
    async fn new() -> Self {
        let world = Self::without_controllers().await;
        world.start_controllers();
        world
    }

    async fn without_controllers() -> Self {
        let settings = embedded_api::Settings {
            database: Database::Memory,
            clock: ApiClock::tokio_from(start()),
            front_proxy: None,
            kubelet: None,
        };
        let api = EmbeddedApi::open(settings).await.unwrap();
        let world = Self {
            client: api.client(Identity::component("test"), NAMESPACE),
            clock: Clock::starting_at(start()),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        api.run(&world.tasks, world.stop.clone());
        for (_, manifest) in kubevirt_api::crds::ALL {
            world
                .create(serde_saphyr::from_str(manifest).unwrap())
                .await;
        }
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": NODE, "labels": {"kubevirt.io/schedulable": "true"}},
            "status": {"allocatable": {"cpu": "2", "devices.kubevirt.io/kvm": "10"}},
        });
        node["status"]["nodeInfo"] = json!({
            "kubeletVersion": "v1.36.0", "containerRuntimeVersion": "containerd://2.2.0",
            "architecture": "amd64", "bootID": "", "kernelVersion": "", "kubeProxyVersion": "",
            "machineID": "", "operatingSystem": "linux", "osImage": "", "systemUUID": "",
        });
        node["status"]["conditions"] = ready_node("True", "KubeletReady");
        world.create(node).await;
        world
    }

    fn start_controllers(&self) {
        let settings = Settings {
            client: self.client.clone(),
            launcher: launcher_pod::Settings::defaults("launcher:1", Acceleration::Kvm),
            acceleration: AccelerationPolicy::ByNodes,
            clock: self.clock,
            concurrency: 4,
            election: Election {
                namespace: NAMESPACE.to_owned(),
                name: "virt-controller".to_owned(),
                identity: "test".to_owned(),
            },
        };
        self.tasks
            .spawn(virt_controller::run(settings, self.stop.clone()));
    }

    async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let api_version = object["apiVersion"].as_str().unwrap();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
        let resource = ApiResource::from_gvk(&kind);
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    fn of_kind(&self, kind: &str) -> Api<DynamicObject> {
        let api_version = match kind {
            "VirtualMachine" | "VirtualMachineInstance" => "kubevirt.io/v1",
            _ => "v1",
        };
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {}});
        if kind != "Node" {
            object["metadata"]["namespace"] = json!(NAMESPACE);
        }
        self.api(&object)
    }

    async fn create(&self, object: Value) {
        let typed = serde_json::from_value(object.clone()).unwrap();
        self.api(&object)
            .create(&PostParams::default(), &typed)
            .await
            .unwrap();
    }

    /// A machine with a container disk and what else its template has.
    async fn create_vm(&self, name: &str, strategy: &str, template: Value) {
        let mut spec = guest();
        json_patch::merge(&mut spec, &template);
        self.create(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"runStrategy": strategy, "template": {"spec": spec}},
        }))
        .await;
    }

    async fn patch(&self, kind: &str, name: &str, patch: Value) {
        self.of_kind(kind)
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    async fn patch_status(&self, kind: &str, name: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.of_kind(kind)
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    async fn delete(&self, kind: &str, name: &str) {
        self.of_kind(kind)
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    async fn until<T, F: Future<Output = Option<T>>>(&self, what: &str, look: impl Fn() -> F) -> T {
        let wait = async {
            let (mut step, longest) = STEPS;
            loop {
                if let Some(found) = look().await {
                    return found;
                }
                tokio::time::sleep(step).await;
                step = (step * 3 / 2).min(longest);
            }
        };
        if let Ok(found) = tokio::time::timeout(DEADLINE, wait).await {
            return found;
        }
        let vms = self.of_kind("VirtualMachine");
        let vms = vms.list(&ListParams::default()).await.unwrap().items;
        let mut told = Vec::new();
        for vm in vms {
            let found = self.why(&vm.name_any()).await;
            told.push(json!({"why": found, "status": vm.data["status"]}));
        }
        panic!("not in time: {what}\n{:#}", json!(told));
    }

    async fn why(&self, name: &str) -> Diagnosis {
        let now = Time(self.clock.now());
        let looked = virtctl::observe(&self.client, (NAMESPACE, name), now);
        let seen = Box::pin(looked).await.unwrap();
        diagnose(&seen.unwrap_or_else(|| panic!("{name} is not there")))
    }

    /// Waits until the cause is among those that are found.
    async fn until_cause(&self, name: &str, id: &str) -> Cause {
        let found = self
            .until(&format!("{name} has {id}"), async || {
                let causes = self.why(name).await.causes;
                causes.into_iter().find(|cause| cause.id == id)
            })
            .await;
        assert!(!found.evidence.is_empty(), "{found:?}");
        found
    }

    /// Waits until it is the deepest one.
    async fn until_first(&self, name: &str, id: &str) {
        self.until(&format!("{name} has {id} first"), async || {
            let causes = self.why(name).await.causes;
            causes.into_iter().next().filter(|cause| cause.id == id)
        })
        .await;
    }

    async fn until_well(&self, name: &str) {
        self.until(&format!("{name} is well"), async || {
            let found = self.why(name).await;
            (found.healthy && found.causes.is_empty()).then_some(())
        })
        .await;
    }

    /// The launcher pod of the machine, once there is one that lives.
    async fn pod(&self, name: &str) -> String {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let params = ListParams::default();
        let own = format!("virt-launcher-{name}-");
        self.until(&format!("{name} has a pod"), async || {
            let list = pods.list(&params).await.unwrap();
            let mut living = list.items.into_iter().filter(|pod| {
                let status = pod.status.as_ref();
                let phase = status.and_then(|status| status.phase.as_deref());
                pod.metadata.deletion_timestamp.is_none()
                    && !matches!(phase, Some("Failed" | "Succeeded"))
            });
            living
                .find(|pod| pod.name_any().starts_with(&own))
                .map(|pod| pod.name_any())
        })
        .await
    }

    async fn bind(&self, pod: &str) {
        let body = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
            "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
        });
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}/binding");
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes())
            .unwrap();
        self.client.request::<Value>(request).await.unwrap();
    }

    /// What a scheduler says.
    async fn unschedulable(&self, name: &str, message: &str) {
        let pod = self.pod(name).await;
        let condition = json!({"type": "PodScheduled", "status": "False",
                               "reason": "Unschedulable", "message": message});
        self.patch_status("Pod", &pod, json!({"conditions": [condition]}))
            .await;
    }

    /// What a kubelet says of the container.
    async fn container(&self, name: &str, phase: &str, state: Value) {
        let pod = self.pod(name).await;
        self.bind(&pod).await;
        let container = json!({"name": "compute", "image": "guest:1", "imageID": "",
                               "ready": false, "restartCount": 0, "state": state});
        let status = json!({"phase": phase, "containerStatuses": [container]});
        self.patch_status("Pod", &pod, status).await;
    }

    /// What a node agent says of the guest.
    async fn guest(&self, name: &str, status: Value) {
        self.patch("VirtualMachineInstance", name, json!({"status": status}))
            .await;
    }

    /// Plays kubelet and agent until the guest runs.
    async fn run(&self, name: &str) {
        let running = json!({"running": {"startedAt": START}});
        self.container(name, "Running", running).await;
        let vmis = self.of_kind("VirtualMachineInstance");
        self.until(&format!("{name} is handed over"), async || {
            let vmi = vmis.get(name).await.unwrap();
            (vmi.data["status"]["phase"] == "Scheduled").then_some(())
        })
        .await;
        // Without the time, the guest would count as one that never ran.
        let running = json!({
            "phase": "Running", "conditions": conditions(&[]),
            "phaseTransitionTimestamps": [{"phase": "Running", "phaseTransitionTimestamp": START}],
        });
        self.guest(name, running).await;
        self.until_well(name).await;
    }

    async fn start(&self, name: &str) {
        let start = json!({"stateChangeRequests": [{"action": "Start"}]});
        self.patch_status("VirtualMachine", name, start).await;
    }
}

fn start() -> Timestamp {
    START.parse().unwrap()
}

fn ready_node(status: &str, reason: &str) -> Value {
    json!([{"type": "Ready", "status": status, "reason": reason, "message": "as a test says"}])
}

/// Ready, and others: type, status, reason.
fn conditions(others: &[(&str, &str, &str)]) -> Value {
    let mut all = vec![json!({"type": "Ready", "status": "True"})];
    for (kind, status, reason) in others {
        all.retain(|condition| condition["type"] != *kind);
        all.push(json!({"type": kind, "status": status, "reason": reason,
                        "message": "as a test says", "lastTransitionTime": START}));
    }
    json!(all)
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

/// A second disk.
fn disk(source: Value) -> Value {
    let mut volume = json!({"name": "more"});
    json_patch::merge(&mut volume, &source);
    json!({
        "domain": {"devices": {"disks": [
            {"name": "root", "disk": {"bus": "virtio"}},
            {"name": "more", "disk": {"bus": "virtio"}},
        ]}},
        "volumes": [{"name": "root", "containerDisk": {"image": "guest:1"}}, volume],
    })
}

fn killed() -> Value {
    json!({"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": START}})
}

#[tokio::test(start_paused = true)]
async fn machines_that_are_off_and_machines_that_run() {
    let world = World::new().await;
    world.create_vm("off", "Halted", json!({})).await;
    world.until_cause("off", "halted").await;
    assert!(world.why("off").await.healthy);
    world.create_vm("manual", "Manual", json!({})).await;
    world.until_cause("manual", "not-started").await;

    world.create_vm("runs", "Always", json!({})).await;
    let coming = world.until_cause("runs", "starting").await;
    assert!(coming.next.starts_with("kubectl -n default get vmi runs"));
    assert!(!world.why("runs").await.healthy);
    world.run("runs").await;
    let changed = json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 7}}}});
    world.patch("VirtualMachine", "runs", changed).await;
    world.until_cause("runs", "restart-required").await;
    assert!(world.why("runs").await.healthy);

    world.create_vm("ends", "RerunOnFailure", json!({})).await;
    world.run("ends").await;
    world.guest("ends", json!({"phase": "Succeeded"})).await;
    world.until_cause("ends", "ended-well").await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn guests_that_are_paused_or_have_crashed() {
    let world = World::new().await;
    world.create_vm("tiny", "Manual", json!({})).await;
    world.start("tiny").await;
    world.run("tiny").await;
    for (reason, id) in [
        ("PausedByUser", "paused-by-user"),
        ("PausedIOError", "paused-io-error"),
        ("PausedByMigrationMonitor", "paused-by-migration"),
    ] {
        let paused = conditions(&[
            ("Ready", "False", "GuestNotRunning"),
            ("Paused", "True", reason),
        ]);
        world.guest("tiny", json!({"conditions": paused})).await;
        world.until_first("tiny", id).await;
    }
    let unready = conditions(&[("Ready", "False", "ContainersNotReady")]);
    world.guest("tiny", json!({"conditions": unready})).await;
    world.until_first("tiny", "not-ready").await;
    let stuck = conditions(&[("LiveMigratable", "False", "DisksNotLiveMigratable")]);
    let leaving = json!({"evacuationNodeName": NODE, "conditions": stuck});
    world.guest("tiny", leaving).await;
    world.until_first("tiny", "eviction-blocked").await;
    for (reason, id) in [
        ("GuestPanicked", "guest-crashed"),
        ("QEMUCrashed", "hypervisor-crashed"),
        ("WatchdogExpired", "watchdog-expired"),
        ("LauncherUnresponsive", "launcher-unresponsive"),
        ("ShutdownForced", "shutdown-forced"),
    ] {
        let ended = json!({"phase": "Failed", "reason": reason});
        world.guest("tiny", ended).await;
        world.until_first("tiny", id).await;
    }
    world.guest("tiny", json!({"reason": null})).await;
    world.until_cause("tiny", "guest-failed").await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_guest_needs_is_not_there() {
    let world = World::new().await;
    let claim = disk(json!({"persistentVolumeClaim": {"claimName": "big"}}));
    world.create_vm("claim", "Always", claim).await;
    let cause = world.until_cause("claim", "claim-missing").await;
    assert!(cause.sentence.contains("\"big\""), "{cause:?}");
    // Once it is there, it is not bound yet, for want of its class.
    world
        .create(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "big", "namespace": NAMESPACE},
            "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
                     "resources": {"requests": {"storage": "1Gi"}}},
        }))
        .await;
    world.until_cause("claim", "storage-class-missing").await;
    world
        .create(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": "fast"}, "provisioner": "example.com/none",
        }))
        .await;
    world.until_cause("claim", "claim-pending").await;
    let lost = json!({"phase": "Lost"});
    world
        .patch_status("PersistentVolumeClaim", "big", lost)
        .await;
    world.until_cause("claim", "claim-lost").await;

    for (name, source, id) in [
        (
            "import",
            json!({"dataVolume": {"name": "import"}}),
            "data-volume-missing",
        ),
        (
            "seed",
            json!({"cloudInitNoCloud": {"secretRef": {"name": "user"}}}),
            "secret-missing",
        ),
        (
            "files",
            json!({"configMap": {"name": "files"}}),
            "config-map-missing",
        ),
        (
            "token",
            json!({"serviceAccount": {"serviceAccountName": "robot"}}),
            "service-account-missing",
        ),
    ] {
        world.create_vm(name, "Always", disk(source)).await;
        world.until_cause(name, id).await;
    }
    let secure = json!({"domain": {"launchSecurity": {"sev": {}}}});
    world.create_vm("secure", "Always", secure).await;
    world.until_cause("secure", "feature-not-supported").await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_find_no_node_or_do_not_start() {
    let world = World::new().await;
    for (name, message, id) in [
        ("memory", "3 Insufficient memory.", "memory-short"),
        ("cpu", "3 Insufficient cpu.", "cpu-short"),
        (
            "device",
            "3 Insufficient devices.kubevirt.io/kvm.",
            "device-missing",
        ),
        ("taint", "3 node(s) had untolerated taint {a: b}.", "taint"),
        (
            "match",
            "3 node(s) didn't match Pod's node affinity/selector.",
            "no-matching-node",
        ),
        ("other", "no luck", "unschedulable"),
    ] {
        world.create_vm(name, "Always", json!({})).await;
        let message = format!("0/3 nodes are available: {message}");
        world.unschedulable(name, &message).await;
        world.until_first(name, id).await;
    }
    for (name, reason, message, id) in [
        ("image", "ErrImagePull", "manifest unknown", "image-missing"),
        (
            "secret",
            "ImagePullBackOff",
            "401 Unauthorized",
            "image-forbidden",
        ),
        (
            "registry",
            "ErrImagePull",
            "no such host",
            "registry-unreachable",
        ),
        ("pull", "ErrImagePull", "unexpected EOF", "image-pull"),
        ("name", "InvalidImageName", "what", "image-name-invalid"),
        (
            "config",
            "CreateContainerConfigError",
            "no secret",
            "container-config",
        ),
        ("start", "RunContainerError", "no file", "container-start"),
        ("crash", "CrashLoopBackOff", "back-off", "launcher-crashing"),
    ] {
        world.create_vm(name, "Always", json!({})).await;
        let waiting = json!({"waiting": {"reason": reason, "message": message}});
        world.container(name, "Pending", waiting).await;
        world.until_first(name, id).await;
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn starts_that_are_refused_and_guests_that_never_run() {
    let world = World::new().await;
    for (reason, id) in [
        ("DomainNotRenderable", "description-refused"),
        ("CloudInitNotUsable", "seed-unusable"),
        ("ContainerDiskMissing", "disk-missing"),
        ("DiskImageForbidden", "disk-unusable"),
        ("StartFailed", "start-refused"),
        ("LauncherStorage", "pod-unreachable"),
        ("SomethingNew", "instance-complaint"),
    ] {
        let name = reason.to_ascii_lowercase();
        world.create_vm(&name, "Always", json!({})).await;
        world.run(&name).await;
        let refused = conditions(&[("Synchronized", "False", reason)]);
        world.guest(&name, json!({"conditions": refused})).await;
        world.until_first(&name, id).await;
    }
    // It ends again and again before it runs.
    world.create_vm("loop", "Always", json!({})).await;
    for _ in 0..3 {
        world.container("loop", "Failed", killed()).await;
    }
    let cause = world.until_cause("loop", "crash-loop").await;
    assert!(cause.sentence.contains("in a row"), "{cause:?}");
    // A manual one stays, with its pod, which knows more.
    world.create_vm("hungry", "Manual", json!({})).await;
    world.start("hungry").await;
    world.container("hungry", "Failed", killed()).await;
    world.until_cause("hungry", "out-of-memory").await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn machines_and_guests_that_do_not_go() {
    let world = World::new().await;
    world.create_vm("held", "Halted", json!({})).await;
    world.until_cause("held", "halted").await;
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    world.patch("VirtualMachine", "held", hold).await;
    world.delete("VirtualMachine", "held").await;
    world.until_cause("held", "deleting-held").await;

    world.create_vm("stops", "Always", json!({})).await;
    world.run("stops").await;
    // The finalizer that admission sets; without it the instance would be gone at once.
    let keep = json!({"metadata": {"finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine"]}});
    world.patch("VirtualMachineInstance", "stops", keep).await;
    let halt = json!({"spec": {"runStrategy": "Halted"}});
    world.patch("VirtualMachine", "stops", halt).await;
    world.until_first("stops", "stopping").await;
    // Nobody is there to end it.
    let cause = world.until_cause("stops", "stop-ignored").await;
    assert!(cause.next.contains("--force"), "{cause:?}");
    world.delete("VirtualMachine", "stops").await;
    world.until_cause("stops", "deleting").await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_are_away() {
    let world = World::new().await;
    world.create_vm("tiny", "Always", json!({})).await;
    world.run("tiny").await;
    let silent = json!({"metadata": {"labels": {"kubevirt.io/schedulable": "false"}}});
    world.patch("Node", NODE, silent).await;
    world.until_cause("tiny", "agent-silent").await;
    let lost = json!({"conditions": ready_node("Unknown", "NodeStatusUnknown")});
    world.patch_status("Node", NODE, lost).await;
    world.until_cause("tiny", "node-not-ready").await;

    let closed = json!({"spec": {"unschedulable": true}});
    world.patch("Node", NODE, closed).await;
    world.create_vm("second", "Always", json!({})).await;
    world
        .unschedulable(
            "second",
            "0/1 nodes are available: 1 node(s) were unschedulable.",
        )
        .await;
    world.until_cause("second", "nodes-cordoned").await;
    world.delete("Node", NODE).await;
    world.until_cause("tiny", "node-gone").await;
    world.create_vm("third", "Always", json!({})).await;
    world.until_cause("third", "no-nodes").await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_acts_or_nobody_may() {
    let world = World::without_controllers().await;
    world.create_vm("early", "Always", json!({})).await;
    assert_eq!(world.why("early").await.causes[0].id, "starting");
    world.until_cause("early", "controller-silent").await;
    let owner = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "owner", "namespace": NAMESPACE},
    });
    world.create(owner).await;
    let owner = world.of_kind("ConfigMap").get("owner").await.unwrap();
    let stranger = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {
            "name": "taken", "namespace": NAMESPACE,
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
                                 "uid": owner.uid(), "controller": true}],
        },
        "spec": guest(),
    });
    world.create(stranger).await;
    world.create_vm("taken", "Always", json!({})).await;
    world.start_controllers();
    let name = world.until_cause("taken", "name-taken").await;
    assert!(
        name.sentence.contains("belongs to ConfigMap owner"),
        "{name:?}"
    );
    world
        .create(json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "away"},
            "webhooks": [{
                "name": "away.example.com", "sideEffects": "None", "timeoutSeconds": 1,
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": "https://127.0.0.1:1/check"},
                "rules": [{"apiGroups": ["kubevirt.io"], "apiVersions": ["*"],
                           "operations": ["CREATE"], "resources": ["virtualmachineinstances"]}],
            }],
        }))
        .await;
    world.create_vm("barred", "Always", json!({})).await;
    let cause = world.until_cause("barred", "webhook-unreachable").await;
    assert!(cause.sentence.contains("away.example.com"), "{cause:?}");
    world.end().await;
}
