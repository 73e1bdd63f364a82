//! `virtctl why` on our own API server with the real controllers and a paused clock. The test plays the
//! kubelet and virt-handler.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails so")]
#![expect(
    clippy::needless_pass_by_value,
    reason = "objects are written where they are passed"
)]

mod reading;
mod silence;

use std::time::Duration;

use diagnosis::{Cause, Diagnosis, diagnose};
use embedded_api::Identity;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use launcher_pod::Acceleration;
use reconcile::{Clock, Election, Leadership};
use serde_json::{Value, json};
use test_cluster::{NAMESPACE, TestApi, start};
use virt_controller::{AccelerationPolicy, Configuration, CopyRights, Settings, Uploads};

const NODE: &str = "node1";
const START: &str = "2026-11-21T12:00:00Z";
/// In virtual time; nothing here takes that long unless it hangs.
const DEADLINE: Duration = Duration::from_mins(15);
/// The shortest and longest time between two checks.
const STEPS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

struct Environment {
    api: TestApi,
    client: Client,
    clock: Clock,
}

impl Environment {
    /// With controllers and a node.
    async fn new() -> Self {
        let environment = Self::without_controllers().await;
        environment.start_controllers();
        environment
    }

    async fn without_controllers() -> Self {
        let api = TestApi::start(Identity::component("test")).await;
        let environment = Self {
            client: api.client.clone(),
            api,
            clock: Clock::starting_at(start()),
        };
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
        environment.create(node).await;
        environment
    }

    fn start_controllers(&self) {
        let settings = Settings {
            client: self.client.clone(),
            launcher: launcher_pod::Settings::defaults("launcher:1", Acceleration::Kvm),
            acceleration: AccelerationPolicy::ByNodes,
            uploads: Uploads::Refused,
            copies: CopyRights::OfNamespace,
            exports: None,
            clock: self.clock,
            cluster: Configuration::new(NAMESPACE),
            concurrency: 4,
            leadership: Leadership::Elected(Election {
                namespace: NAMESPACE.to_owned(),
                name: "virt-controller".to_owned(),
                identity: "test".to_owned(),
            }),
        };
        let stop = self.api.stop.clone();
        self.api.tasks.spawn(virt_controller::run(settings, stop));
    }

    async fn end(self) {
        self.api.end().await;
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
        self.api.api_for(&object)
    }

    async fn create(&self, object: Value) {
        let typed = serde_json::from_value(object.clone()).unwrap();
        self.api
            .api_for(&object)
            .create(&PostParams::default(), &typed)
            .await
            .unwrap();
    }

    /// A machine with a container disk and what else its template has.
    async fn create_vm(&self, name: &str, strategy: &str, template: Value) {
        let mut spec = test_cluster::guest();
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

    async fn until<T, F: Future<Output = Option<T>>>(
        &self,
        what: &str,
        check: impl Fn() -> F,
    ) -> T {
        let wait = async {
            let (mut step, longest) = STEPS;
            loop {
                if let Some(found) = check().await {
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
        let mut states = Vec::new();
        for vm in vms {
            let found = self.why(&vm.name_any()).await;
            states.push(json!({"why": found, "status": vm.data["status"]}));
        }
        panic!("not in time: {what}\n{:#}", json!(states));
    }

    async fn why(&self, name: &str) -> Diagnosis {
        self.why_as(&self.client, name).await
    }

    /// The answer that the user of a client gets.
    async fn why_as(&self, client: &Client, name: &str) -> Diagnosis {
        let now = Time(self.clock.now());
        let target = observation::Target {
            namespace: NAMESPACE,
            name,
        };
        let observed = Box::pin(observation::observe(client, target, now));
        let observed = observed.await.unwrap();
        diagnose(&observed.unwrap_or_else(|| panic!("{name} does not exist")))
    }

    /// Waits until the cause is one of those found.
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

    /// Waits until it is the deepest cause.
    async fn until_first(&self, name: &str, id: &str) {
        self.until(&format!("{name} has {id} first"), async || {
            let causes = self.why(name).await.causes;
            causes.into_iter().next().filter(|cause| cause.id == id)
        })
        .await;
    }

    async fn until_healthy(&self, name: &str) {
        self.until(&format!("{name} is healthy"), async || {
            let found = self.why(name).await;
            (found.healthy && found.causes.is_empty()).then_some(())
        })
        .await;
    }

    /// The name of the VM's running launcher pod.
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

    /// Reports as a scheduler.
    async fn unschedulable(&self, name: &str, message: &str) {
        let pod = self.pod(name).await;
        let condition = json!({"type": "PodScheduled", "status": "False",
                               "reason": "Unschedulable", "message": message});
        self.patch_status("Pod", &pod, json!({"conditions": [condition]}))
            .await;
    }

    /// Reports the container as a kubelet.
    async fn container(&self, name: &str, phase: &str, state: Value) {
        let pod = self.pod(name).await;
        self.bind(&pod).await;
        let container = json!({"name": "compute", "image": "guest:1", "imageID": "",
                               "ready": false, "restartCount": 0, "state": state});
        let status = json!({"phase": phase, "containerStatuses": [container]});
        self.patch_status("Pod", &pod, status).await;
    }

    /// Reports the guest as virt-handler.
    async fn guest(&self, name: &str, status: Value) {
        self.patch("VirtualMachineInstance", name, json!({"status": status}))
            .await;
    }

    /// Plays the kubelet and virt-handler until the guest runs.
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
        self.until_healthy(name).await;
    }

    async fn start(&self, name: &str) {
        let start = json!({"stateChangeRequests": [{"action": "Start"}]});
        self.patch_status("VirtualMachine", name, start).await;
    }
}

fn ready_node(status: &str, reason: &str) -> Value {
    json!([{"type": "Ready", "status": status, "reason": reason, "message": "set by the test"}])
}

/// Ready, and others: type, status, reason.
fn conditions(others: &[(&str, &str, &str)]) -> Value {
    let mut all = vec![json!({"type": "Ready", "status": "True"})];
    for (kind, status, reason) in others {
        all.retain(|condition| condition["type"] != *kind);
        all.push(json!({"type": kind, "status": status, "reason": reason,
                        "message": "set by the test", "lastTransitionTime": START}));
    }
    json!(all)
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
async fn vms_that_are_off_and_vms_that_run() {
    let environment = Environment::new().await;
    environment.create_vm("off", "Halted", json!({})).await;
    environment.until_cause("off", "halted").await;
    assert!(environment.why("off").await.healthy);
    environment.create_vm("manual", "Manual", json!({})).await;
    environment.until_cause("manual", "not-started").await;

    environment.create_vm("runs", "Always", json!({})).await;
    let starting = environment.until_cause("runs", "starting").await;
    assert!(starting.next.starts_with("kubectl -n default get vmi runs"));
    assert!(!environment.why("runs").await.healthy);
    environment.run("runs").await;
    let changed = json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 7}}}});
    environment.patch("VirtualMachine", "runs", changed).await;
    environment.until_cause("runs", "restart-required").await;
    assert!(environment.why("runs").await.healthy);

    environment
        .create_vm("ends", "RerunOnFailure", json!({}))
        .await;
    environment.run("ends").await;
    environment
        .guest("ends", json!({"phase": "Succeeded"}))
        .await;
    environment.until_cause("ends", "ended-well").await;
    environment.end().await;
}

#[tokio::test(start_paused = true)]
async fn guests_that_are_paused_or_have_crashed() {
    let environment = Environment::new().await;
    environment.create_vm("tiny", "Manual", json!({})).await;
    environment.start("tiny").await;
    environment.run("tiny").await;
    for (reason, id) in [
        ("PausedByUser", "paused-by-user"),
        ("PausedIOError", "paused-io-error"),
        ("PausedByMigrationMonitor", "paused-by-migration"),
    ] {
        let paused = conditions(&[
            ("Ready", "False", "GuestNotRunning"),
            ("Paused", "True", reason),
        ]);
        environment
            .guest("tiny", json!({"conditions": paused}))
            .await;
        environment.until_first("tiny", id).await;
    }
    let unready = conditions(&[("Ready", "False", "ContainersNotReady")]);
    environment
        .guest("tiny", json!({"conditions": unready}))
        .await;
    environment.until_first("tiny", "not-ready").await;
    let stuck = conditions(&[("LiveMigratable", "False", "DisksNotLiveMigratable")]);
    let leaving = json!({"evacuationNodeName": NODE, "conditions": stuck});
    environment.guest("tiny", leaving).await;
    environment.until_first("tiny", "eviction-blocked").await;
    for (reason, id) in [
        ("GuestPanicked", "guest-crashed"),
        ("QEMUCrashed", "hypervisor-crashed"),
        ("WatchdogExpired", "watchdog-expired"),
        ("LauncherUnresponsive", "launcher-unresponsive"),
        ("ShutdownForced", "shutdown-forced"),
    ] {
        let ended = json!({"phase": "Failed", "reason": reason});
        environment.guest("tiny", ended).await;
        environment.until_first("tiny", id).await;
    }
    environment.guest("tiny", json!({"reason": null})).await;
    environment.until_cause("tiny", "guest-failed").await;
    environment.end().await;
}

#[tokio::test(start_paused = true)]
async fn objects_that_a_guest_needs_are_missing() {
    let environment = Environment::new().await;
    let claim = disk(json!({"persistentVolumeClaim": {"claimName": "big"}}));
    environment.create_vm("claim", "Always", claim).await;
    let cause = environment.until_cause("claim", "claim-missing").await;
    assert!(cause.sentence.contains("\"big\""), "{cause:?}");
    // The claim exists now and is not bound, because its storage class is missing.
    environment
        .create(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "big", "namespace": NAMESPACE},
            "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
                     "resources": {"requests": {"storage": "1Gi"}}},
        }))
        .await;
    environment
        .until_cause("claim", "storage-class-missing")
        .await;
    environment
        .create(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": "fast"}, "provisioner": "example.com/none",
        }))
        .await;
    environment.until_cause("claim", "claim-pending").await;
    let lost = json!({"phase": "Lost"});
    environment
        .patch_status("PersistentVolumeClaim", "big", lost)
        .await;
    environment.until_cause("claim", "claim-lost").await;

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
        environment.create_vm(name, "Always", disk(source)).await;
        environment.until_cause(name, id).await;
    }
    let interface = json!({"name": "a", "slirp": {}});
    let bound = json!({
        "domain": {"devices": {"interfaces": [interface]}},
        "networks": [{"name": "a", "pod": {}}],
    });
    environment.create_vm("bound", "Always", bound).await;
    environment
        .until_cause("bound", "feature-not-supported")
        .await;
    environment
        .create_kind(
            "kubevirt.io",
            json!({
                "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
                "metadata": {"name": "kubevirt", "namespace": NAMESPACE},
                "spec": {"configuration": {"permittedHostDevices": {}}},
            }),
        )
        .await;
    let card = json!({"name": "g", "deviceName": "example.com/card"});
    let forbidden = json!({"domain": {"devices": {"gpus": [card]}}});
    environment.create_vm("card", "Always", forbidden).await;
    environment
        .until_cause("card", "device-not-permitted")
        .await;
    environment.end().await;
}

#[tokio::test(start_paused = true)]
async fn pods_without_a_node_and_pods_that_do_not_start() {
    let environment = Environment::new().await;
    for (name, message, id) in [
        ("memory", "3 Insufficient memory.", "memory-short"),
        ("cpu", "3 Insufficient cpu.", "cpu-short"),
        (
            "device",
            "3 Insufficient devices.kubevirt.io/kvm.",
            "device-missing",
        ),
        ("card", "3 Insufficient example.com/card.", "device-missing"),
        ("taint", "3 node(s) had untolerated taint {a: b}.", "taint"),
        (
            "match",
            "3 node(s) didn't match Pod's node affinity/selector.",
            "no-matching-node",
        ),
        ("other", "no luck", "unschedulable"),
    ] {
        environment.create_vm(name, "Always", json!({})).await;
        let message = format!("0/3 nodes are available: {message}");
        environment.unschedulable(name, &message).await;
        environment.until_first(name, id).await;
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
        environment.create_vm(name, "Always", json!({})).await;
        let waiting = json!({"waiting": {"reason": reason, "message": message}});
        environment.container(name, "Pending", waiting).await;
        environment.until_first(name, id).await;
    }
    environment.end().await;
}

#[tokio::test(start_paused = true)]
async fn failed_starts_and_guests_that_never_run() {
    let environment = Environment::new().await;
    for (reason, id) in [
        ("DomainNotRenderable", "description-refused"),
        ("CloudInitNotUsable", "seed-unusable"),
        ("ContainerDiskMissing", "disk-missing"),
        ("DiskImageForbidden", "disk-unusable"),
        ("StartFailed", "start-refused"),
        ("HookSidecarFailed", "hook-sidecar"),
        ("LauncherStorage", "pod-unreachable"),
        ("SomethingNew", "vmi-blocked"),
    ] {
        let name = reason.to_ascii_lowercase();
        environment.create_vm(&name, "Always", json!({})).await;
        environment.run(&name).await;
        let refused = conditions(&[("Synchronized", "False", reason)]);
        environment
            .guest(&name, json!({"conditions": refused}))
            .await;
        environment.until_first(&name, id).await;
    }
    // The guest ends repeatedly before it runs.
    environment.create_vm("loop", "Always", json!({})).await;
    for _ in 0..3 {
        environment.container("loop", "Failed", killed()).await;
    }
    let cause = environment.until_cause("loop", "crash-loop").await;
    assert!(cause.sentence.contains("in a row"), "{cause:?}");
    // A manual VM keeps its failed VMI and the pod, which has the reason.
    environment.create_vm("hungry", "Manual", json!({})).await;
    environment.start("hungry").await;
    environment.container("hungry", "Failed", killed()).await;
    environment.until_cause("hungry", "out-of-memory").await;
    environment.end().await;
}

#[tokio::test(start_paused = true)]
async fn vms_and_guests_that_are_not_deleted() {
    let environment = Environment::new().await;
    environment.create_vm("held", "Halted", json!({})).await;
    environment.until_cause("held", "halted").await;
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    environment.patch("VirtualMachine", "held", hold).await;
    environment.delete("VirtualMachine", "held").await;
    environment.until_cause("held", "deletion-blocked").await;

    environment.create_vm("stops", "Always", json!({})).await;
    environment.run("stops").await;
    // The finalizer that admission sets; without it the VMI would be deleted at once.
    let keep = json!({"metadata": {"finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine"]}});
    environment
        .patch("VirtualMachineInstance", "stops", keep)
        .await;
    let halt = json!({"spec": {"runStrategy": "Halted"}});
    environment.patch("VirtualMachine", "stops", halt).await;
    environment.until_first("stops", "stopping").await;
    // No virt-handler is there to stop it.
    let cause = environment.until_cause("stops", "stop-ignored").await;
    assert!(cause.next.contains("--force"), "{cause:?}");
    environment.delete("VirtualMachine", "stops").await;
    environment.until_cause("stops", "deleting").await;
    environment.end().await;
}

#[tokio::test(start_paused = true)]
async fn unavailable_nodes() {
    let environment = Environment::new().await;
    environment.create_vm("tiny", "Always", json!({})).await;
    environment.run("tiny").await;
    let silent = json!({"metadata": {"labels": {"kubevirt.io/schedulable": "false"}}});
    environment.patch("Node", NODE, silent).await;
    environment.until_cause("tiny", "handler-silent").await;
    let lost = json!({"conditions": ready_node("Unknown", "NodeStatusUnknown")});
    environment.patch_status("Node", NODE, lost).await;
    environment.until_cause("tiny", "node-not-ready").await;

    let closed = json!({"spec": {"unschedulable": true}});
    environment.patch("Node", NODE, closed).await;
    environment.create_vm("second", "Always", json!({})).await;
    environment
        .unschedulable(
            "second",
            "0/1 nodes are available: 1 node(s) were unschedulable.",
        )
        .await;
    environment.until_cause("second", "nodes-cordoned").await;
    environment.delete("Node", NODE).await;
    environment.until_cause("tiny", "node-gone").await;
    environment.create_vm("third", "Always", json!({})).await;
    let none = environment.until_cause("third", "no-nodes").await;
    assert!(none.next.starts_with("kubectl get nodes "), "{none:?}");
    environment.end().await;
}

#[tokio::test(start_paused = true)]
async fn missing_controllers_and_rejected_requests() {
    let environment = Environment::without_controllers().await;
    environment.create_vm("early", "Always", json!({})).await;
    assert_eq!(environment.why("early").await.causes[0].id, "starting");
    let silent = environment.until_cause("early", "controller-silent").await;
    let next = "kubectl -n kubevirt get pods ";
    assert!(silent.next.starts_with(next), "{silent:?}");
    let owner = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "owner", "namespace": NAMESPACE},
    });
    environment.create(owner).await;
    let owner = environment.of_kind("ConfigMap").get("owner").await.unwrap();
    let unowned = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {
            "name": "taken", "namespace": NAMESPACE,
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
                                 "uid": owner.uid(), "controller": true}],
        },
        "spec": test_cluster::guest(),
    });
    environment.create(unowned).await;
    environment.create_vm("taken", "Always", json!({})).await;
    environment.start_controllers();
    let name = environment.until_cause("taken", "name-taken").await;
    assert!(
        name.sentence.contains("belongs to ConfigMap owner"),
        "{name:?}"
    );
    environment
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
    environment.create_vm("barred", "Always", json!({})).await;
    let cause = environment
        .until_cause("barred", "webhook-unreachable")
        .await;
    assert!(cause.sentence.contains("away.example.com"), "{cause:?}");
    environment.end().await;
}
