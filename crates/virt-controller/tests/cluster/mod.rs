//! A cluster in one process on a paused clock: embedded-api, the controllers, and a simulated node
//! that acts as kubelet and virt-handler.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use embedded_api::Identity;
use failpoints::Trap;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolumeClaim, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use kubevirt_api::volume_snapshot::VolumeSnapshot;
use kubevirt_api::{VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceReplicaSet};
use launcher_pod::Acceleration;
use parking_lot::Mutex;
use reconcile::{Clock, Election, Leadership, Store, View};
use serde_json::{Value, json};
use test_cluster::TestApi;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use virt_controller::{AccelerationPolicy, Configuration, CopyRights, Settings, Uploads};

pub(crate) use test_cluster::NAMESPACE;
/// In virtual time; nothing here takes that long unless it hangs.
const DEADLINE: Duration = Duration::from_mins(15);
const STEP: Duration = Duration::from_millis(50);

/// The fault that affects new pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultMode {
    None,
    /// Pods fail before their guest runs.
    PodsFail,
    /// No node takes the pod.
    Unschedulable,
    /// The launcher's image cannot be pulled.
    ImageMissing,
    /// A secret that the pod mounts is missing.
    SecretMissing,
    /// A quota refuses new pods.
    QuotaExceeded,
    /// A quota refuses volume snapshots.
    SnapshotsRefused,
    /// The namespace terminates: nothing can be created in it.
    NamespaceTerminating,
    /// The node is unreachable.
    NodeUnreachable,
}

pub(crate) struct TestCluster {
    pub(crate) client: Client,
    api: TestApi,
    fault_mode: Arc<Mutex<FaultMode>>,
    /// Wakes the node.
    changed: Arc<Notify>,
    /// Method and path of every write by a controller.
    writes: Arc<Mutex<Vec<String>>>,
    /// Shared by all runs of the controllers.
    clock: Clock,
    /// Shared by all runs of the controllers, which use the thread of the test.
    trap: Trap,
    controllers: Option<(CancellationToken, tokio::task::JoinHandle<()>)>,
    /// Of the pods that the controllers create.
    launcher_image: &'static str,
    /// Whether the running controllers have lost their connection to the server.
    is_disconnected: Arc<AtomicBool>,
}

impl TestCluster {
    pub(crate) async fn new() -> Self {
        let api = TestApi::start(Identity::component("test")).await;
        install_node(&api).await;
        install_roles(&api).await;
        let trap = Trap::new();
        trap.enter();
        let mut cluster = Self {
            client: api.client.clone(),
            api,
            fault_mode: Arc::new(Mutex::new(FaultMode::None)),
            changed: Arc::default(),
            writes: Arc::default(),
            clock: Clock::starting_at(test_cluster::start()),
            trap,
            controllers: None,
            launcher_image: "launcher:1",
            is_disconnected: Arc::default(),
        };
        let node = SimulatedNode {
            client: cluster.client.clone(),
            fault_mode: Arc::clone(&cluster.fault_mode),
            changed: Arc::clone(&cluster.changed),
        };
        cluster.watch_changes::<Pod>();
        cluster.watch_changes::<VirtualMachineInstance>();
        cluster.api.tasks.spawn(node.run(cluster.api.stop.clone()));
        cluster.start_controllers();
        cluster
    }

    /// Wakes the node when objects of a kind change.
    fn watch_changes<K: View>(&self) {
        let changed = Arc::clone(&self.changed);
        self.api.tasks.spawn(reconcile::watch::<K>(
            self.client.clone(),
            watcher::Config::default(),
            Store::new(),
            move |_| changed.notify_one(),
            self.api.stop.clone(),
        ));
    }

    pub(crate) fn start_controllers(&mut self) {
        self.start_controllers_as("one");
    }

    pub(crate) fn start_controllers_as(&mut self, identity: &str) {
        let settings = self.settings(identity);
        let stop = self.api.stop.child_token();
        let running = self
            .api
            .tasks
            .spawn(virt_controller::run(settings, stop.clone()));
        self.controllers = Some((stop, running));
    }

    /// Restarts the controllers with another launcher for new pods, as an update does.
    pub(crate) async fn update_launcher(&mut self, image: &'static str) {
        self.stop_controllers().await;
        self.launcher_image = image;
        self.start_controllers();
    }

    fn settings(&self, identity: &str) -> Settings {
        Settings {
            client: self.controller_client(),
            launcher: launcher_pod::Settings::defaults(self.launcher_image, Acceleration::Kvm),
            acceleration: AccelerationPolicy::ByNodes,
            uploads: Uploads::Received,
            copies: CopyRights::Reviewed,
            exports: None,
            clock: self.clock,
            cluster: Configuration::new(NAMESPACE),
            concurrency: 4,
            leadership: Leadership::Elected(Election {
                namespace: NAMESPACE.to_owned(),
                name: "virt-controller".to_owned(),
                identity: identity.to_owned(),
            }),
        }
    }

    pub(crate) async fn stop_controllers(&mut self) {
        if let Some((stop, running)) = self.controllers.take() {
            stop.cancel();
            running.await.unwrap();
        }
    }

    /// Ends the controllers like a crash: nothing they still send reaches the server.
    pub(crate) fn crash_controllers(&mut self) {
        if let Some((stop, running)) = self.controllers.take() {
            self.is_disconnected.store(true, Ordering::Relaxed);
            self.is_disconnected = Arc::default();
            stop.cancel();
            // They would wait for responses forever.
            running.abort();
        }
    }

    /// Crashes the running controllers right after an effect; successors with the same identity
    /// replace them at once and keep their lease.
    pub(crate) fn crash_after(&mut self, name: &str) {
        let is_disconnected = std::mem::take(&mut self.is_disconnected);
        let (stop, running) = self.controllers.take().unwrap();
        let (begin, begun) = tokio::sync::oneshot::channel();
        let (settings, successor) = (self.settings("one"), self.api.stop.child_token());
        let run = virt_controller::run(settings, successor.clone());
        let next = self.api.tasks.spawn(async move {
            if begun.await.is_ok() {
                run.await;
            }
        });
        self.controllers = Some((successor, next));
        self.trap.set(name, move || {
            is_disconnected.store(true, Ordering::Relaxed);
            stop.cancel();
            running.abort();
            begin.send(()).unwrap();
        });
    }

    /// Crashes the running controllers right after an effect, without successors.
    pub(crate) fn crash_and_stay_down_after(&mut self, name: &str) {
        let is_disconnected = std::mem::take(&mut self.is_disconnected);
        let (stop, running) = self.controllers.take().unwrap();
        self.trap.set(name, move || {
            is_disconnected.store(true, Ordering::Relaxed);
            stop.cancel();
            running.abort();
        });
    }

    /// Whether the controllers have not reached that failpoint yet.
    pub(crate) fn is_crash_pending(&self) -> bool {
        self.trap.is_set()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) async fn end(mut self) {
        self.stop_controllers().await;
        self.api.end().await;
    }

    /// The creates that controllers have tried.
    pub(crate) fn all_creates(&self) -> usize {
        let writes = self.writes.lock();
        writes.iter().filter(|one| one.starts_with("POST ")).count()
    }

    pub(crate) fn set_fault_mode(&self, fault_mode: FaultMode) {
        *self.fault_mode.lock() = fault_mode;
        self.changed.notify_one();
    }

    /// Writes by the controllers to paths that contain this text.
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

    /// A client that acts as the mutating webhook for new VMIs and records all writes.
    fn controller_client(&self) -> Client {
        let (router, writes) = (self.api.router(), Arc::clone(&self.writes));
        let identity = Identity::service_account(NAMESPACE, "kubevirt-controller");
        let (is_disconnected, fault_mode) = (
            Arc::clone(&self.is_disconnected),
            Arc::clone(&self.fault_mode),
        );
        let client = self.client.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (router, writes) = (router.clone(), Arc::clone(&writes));
            let client = client.clone();
            let (identity, is_disconnected) = (identity.clone(), Arc::clone(&is_disconnected));
            let fault_mode = *fault_mode.lock();
            async move {
                if is_disconnected.load(Ordering::Relaxed) {
                    return std::future::pending().await;
                }
                let (mut parts, body) = request.into_parts();
                parts.extensions.insert(identity);
                let path = parts.uri.path().to_owned();
                let mut bytes = body.collect().await.unwrap().to_bytes();
                let is_upkeep = path.contains("/events") || path.contains("/leases");
                if parts.method != http::Method::GET && !is_upkeep {
                    writes.lock().push(format!("{} {path}", parts.method));
                }
                if path.starts_with("/apis/subresources.kubevirt.io/") {
                    return Ok(run_verb(&client, &path).await);
                }
                let is_create = parts.method == http::Method::POST && !is_upkeep;
                match fault_mode {
                    FaultMode::QuotaExceeded if is_create && path.ends_with("/pods") => {
                        return Ok(quota_exceeded());
                    }
                    FaultMode::SnapshotsRefused
                        if is_create && path.ends_with("/volumesnapshots") =>
                    {
                        return Ok(quota_of_snapshots_exceeded());
                    }
                    FaultMode::NamespaceTerminating if is_create => {
                        return Ok(namespace_terminating());
                    }
                    _ => {}
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
            "spec": {"runStrategy": strategy, "template": {"spec": test_cluster::guest()}},
        });
        let vm: VirtualMachine = serde_json::from_value(vm).unwrap();
        self.vms()
            .create(&PostParams::default(), &vm)
            .await
            .unwrap();
    }

    /// Creates a VM that runs always and has a disk on that claim.
    pub(crate) async fn create_vm_on_claim(&self, name: &str, claim: &str) {
        let vm = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": name},
            "spec": {"runStrategy": "Always", "template": {"spec": guest_on_claim(claim)}},
        });
        let vm = serde_json::from_value(vm).unwrap();
        self.vms()
            .create(&PostParams::default(), &vm)
            .await
            .unwrap();
    }

    /// Defines the kinds of an importer.
    pub(crate) async fn install_importer(&self) {
        for (plural, kind) in [("datavolumes", "DataVolume"), ("datasources", "DataSource")] {
            let definition = json!({
                "metadata": {"name": format!("{plural}.cdi.kubevirt.io")},
                "spec": {
                    "group": "cdi.kubevirt.io", "scope": "Namespaced",
                    "names": {"plural": plural, "kind": kind},
                    "versions": [{
                        "name": "v1beta1", "served": true, "storage": true,
                        "schema": {"openAPIV3Schema": {
                            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                        }},
                    }],
                },
            });
            let definition = serde_json::from_value(definition).unwrap();
            Api::<CustomResourceDefinition>::all(self.client.clone())
                .create(&PostParams::default(), &definition)
                .await
                .unwrap();
        }
    }

    /// Installs our own importer.
    pub(crate) async fn install_own_importer(&self) {
        self.api.install_importer().await;
    }

    pub(crate) fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Writes the status of any object in the namespace.
    pub(crate) async fn set_status<K>(&self, name: &str, status: Value)
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
    {
        let patch = Patch::Merge(json!({"status": status}));
        Api::<K>::namespaced(self.client.clone(), NAMESPACE)
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Defines volume snapshots, with a class for claims of class `local`, and completes them from now on.
    pub(crate) async fn install_snapshotter(&self) {
        for (plural, kind, scope) in [
            ("volumesnapshots", "VolumeSnapshot", "Namespaced"),
            ("volumesnapshotclasses", "VolumeSnapshotClass", "Cluster"),
        ] {
            let definition = json!({
                "metadata": {
                    "name": format!("{plural}.snapshot.storage.k8s.io"),
                    "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements"},
                },
                "spec": {
                    "group": "snapshot.storage.k8s.io", "scope": scope,
                    "names": {"plural": plural, "kind": kind},
                    "versions": [{
                        "name": "v1", "served": true, "storage": true,
                        "subresources": {"status": {}},
                        "schema": {"openAPIV3Schema": {
                            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                        }},
                    }],
                },
            });
            let definition = serde_json::from_value(definition).unwrap();
            Api::<CustomResourceDefinition>::all(self.client.clone())
                .create(&PostParams::default(), &definition)
                .await
                .unwrap();
        }
        let (client, stop) = (self.client.clone(), self.api.stop.clone());
        let run = async move { stop.run_until_cancelled(snapshotter(client)).await };
        self.api.tasks.spawn(run);
    }

    pub(crate) async fn install_snapshot_class(&self) {
        let storage = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": "local"}, "provisioner": "example.com/disks",
        });
        self.api.create(storage).await.unwrap();
        let class = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
            "metadata": {"name": "copies"},
            "driver": "example.com/disks", "deletionPolicy": "Delete",
        });
        self.api.create(class).await.unwrap();
    }

    /// Creates an object of any kind in the namespace.
    pub(crate) async fn create(&self, object: Value) -> DynamicObject {
        self.api.create(object).await.unwrap()
    }

    pub(crate) fn data_volumes(&self) -> Api<DynamicObject> {
        self.importers("DataVolume", NAMESPACE)
    }

    pub(crate) fn importers(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let kind = kube::api::GroupVersionKind::gvk("cdi.kubevirt.io", "v1beta1", kind);
        let kind = ApiResource::from_gvk(&kind);
        Api::namespaced_with(self.client.clone(), namespace, &kind)
    }

    /// Writes the status as an importer does.
    pub(crate) async fn set_data_volume_phase(&self, name: &str, phase: &str) {
        let patch = Patch::Merge(json!({"status": {"phase": phase}}));
        let parameters = PatchParams::default();
        let patched = self.data_volumes().patch(name, &parameters, &patch).await;
        patched.unwrap();
    }

    /// Creates a running VM that keeps the contents of its TPM.
    pub(crate) async fn create_vm_with_tpm(&self, name: &str) {
        let mut spec = test_cluster::guest();
        spec["domain"]["devices"]["tpm"] = json!({"persistent": true});
        let vm = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": name},
            "spec": {"runStrategy": "Always", "template": {"spec": spec}},
        });
        let vm = serde_json::from_value(vm).unwrap();
        let parameters = PostParams::default();
        self.vms().create(&parameters, &vm).await.unwrap();
    }

    /// Creates a VM with a disk that is populated from that source.
    pub(crate) async fn create_vm_with_template(&self, name: &str, strategy: &str, source: Value) {
        let mut spec = test_cluster::guest();
        let volume = json!({"name": "data", "dataVolume": {"name": format!("{name}-data")}});
        spec["volumes"].as_array_mut().unwrap().push(volume);
        let disk = json!({"name": "data", "disk": {"bus": "virtio"}});
        let disks = &mut spec["domain"]["devices"]["disks"];
        disks.as_array_mut().unwrap().push(disk);
        let mut filled = source;
        filled["storage"] = json!({"resources": {"requests": {"storage": "1Gi"}}});
        let vm = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": name},
            "spec": {
                "runStrategy": strategy, "template": {"spec": spec},
                "dataVolumeTemplates": [{
                    "metadata": {"name": format!("{name}-data"), "labels": {"mine": "1"}},
                    "spec": filled,
                }],
            },
        });
        let vm = serde_json::from_value(vm).unwrap();
        self.vms()
            .create(&PostParams::default(), &vm)
            .await
            .unwrap();
    }

    /// Counts the different events with this reason, once there is one: events are written
    /// asynchronously, after the changes that they report.
    pub(crate) async fn events_of(&self, reason: &str) -> usize {
        self.wait_until(reason, async || self.events_so_far(reason).await > 0)
            .await;
        self.events_so_far(reason).await
    }

    async fn events_so_far(&self, reason: &str) -> usize {
        let events = Api::<Event>::namespaced(self.client.clone(), NAMESPACE);
        let events = events.list(&ListParams::default()).await.unwrap().items;
        let all = events.iter();
        all.filter(|event| event.reason.as_deref() == Some(reason))
            .count()
    }

    /// Creates a VMI without an owner, with a disk on that claim.
    pub(crate) async fn create_vmi_on_claim(&self, name: &str, claim: &str) {
        let vmi = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": name}, "spec": guest_on_claim(claim), "status": {},
        });
        let vmi = serde_json::from_slice(&admit(vmi.to_string().as_bytes())).unwrap();
        self.vmis()
            .create(&PostParams::default(), &vmi)
            .await
            .unwrap();
    }

    /// Creates a claim, owned by the data volume of that name if there is one.
    pub(crate) async fn create_claim(&self, name: &str) {
        // Without an importer the kind is not defined.
        let filler = self.data_volumes().get_opt(name).await.ok().flatten();
        let owners: Vec<Value> = filler
            .iter()
            .map(|filler| {
                json!({
                    "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "name": name,
                    "uid": filler.uid(), "controller": true, "blockOwnerDeletion": true,
                })
            })
            .collect();
        let claim = json!({
            "metadata": {"name": name, "ownerReferences": owners},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        let claim = serde_json::from_value(claim).unwrap();
        Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), NAMESPACE)
            .create(&PostParams::default(), &claim)
            .await
            .unwrap();
    }

    pub(crate) fn sets(&self) -> Api<VirtualMachineInstanceReplicaSet> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) async fn create_set(&self, name: &str, replicas: i32) {
        self.create_set_of(name, replicas, json!({"app": name}))
            .await;
    }

    pub(crate) async fn create_set_of(&self, name: &str, replicas: i32, labels: Value) {
        let set = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet",
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": labels}, "spec": test_cluster::guest()},
            },
        });
        let set = serde_json::from_value(set).unwrap();
        self.sets()
            .create(&PostParams::default(), &set)
            .await
            .unwrap();
    }

    /// Scales a set like `kubectl scale`.
    pub(crate) async fn scale(&self, name: &str, replicas: i32) {
        let patch = json!({"spec": {"replicas": replicas}});
        self.sets()
            .patch_scale(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// Waits until a set has that many replicas, all ready, and there are no other VMIs.
    pub(crate) async fn wait_for_replicas(&self, name: &str, wanted: usize) {
        self.wait_until(&format!("{name} has {wanted}"), async || {
            let status = self.sets().get(name).await.unwrap().status;
            let status = status.unwrap_or_default();
            let count = i32::try_from(wanted).ok();
            let vmis = self.vmis().list(&ListParams::default()).await.unwrap();
            status.replicas == count && status.ready_replicas == count && vmis.items.len() == wanted
        })
        .await;
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
        let status = vm.status.and_then(|status| status.printable_status);
        status.map(|status| status.to_string()).unwrap_or_default()
    }

    pub(crate) async fn wait_for_printable(&self, name: &str, status: &str) {
        self.wait_until(&format!("{name} is {status}"), async || {
            self.printable(name).await == status
        })
        .await;
    }

    /// Waits until the VMI and all pods are gone, which is shortly after the VM is Stopped.
    pub(crate) async fn wait_until_gone(&self, name: &str) {
        self.wait_until("the VMI and pods are gone", async || {
            let pods = self.pods().list(&ListParams::default()).await.unwrap();
            self.vmis().get_opt(name).await.unwrap().is_none() && pods.items.is_empty()
        })
        .await;
    }

    /// Waits for a condition; panics with all objects if it does not hold in time.
    pub(crate) async fn wait_until<F: Future<Output = bool>>(
        &self,
        what: &str,
        holds: impl Fn() -> F,
    ) {
        let wait = async {
            while !holds().await {
                tokio::time::sleep(STEP).await;
            }
        };
        if tokio::time::timeout(DEADLINE, wait).await.is_err() {
            let vms = self.vms().list(&ListParams::default()).await.unwrap();
            let vmis = self.vmis().list(&ListParams::default()).await.unwrap();
            let events = Api::<Event>::namespaced(self.client.clone(), NAMESPACE);
            let events = events.list(&ListParams::default()).await.unwrap().items;
            let events: Vec<_> = events
                .into_iter()
                .map(|event| (event.reason, event.message))
                .collect();
            let observed = json!({
                "vms": vms, "vmis": vmis, "events": events, "writes": *self.writes.lock(),
            });
            panic!("not in time: {what}\n{observed:#}");
        }
    }

    /// Lets virtual time pass.
    pub(crate) async fn advance(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// Completes volume snapshots as a storage driver does.
async fn snapshotter(client: Client) {
    let all = Api::<VolumeSnapshot>::namespaced(client, NAMESPACE);
    loop {
        tokio::time::sleep(STEP).await;
        for one in all.list(&ListParams::default()).await.unwrap() {
            if one.status.is_none() {
                let status = json!({"status": {
                    "readyToUse": true, "creationTime": "2026-11-21T12:00:00Z",
                    "restoreSize": "2Gi", "boundVolumeSnapshotContentName": "x",
                }});
                let patch = Patch::Merge(status);
                // It may be gone.
                let _written = all
                    .patch_status(&one.name_any(), &PatchParams::default(), &patch)
                    .await
                    .is_ok();
            }
        }
    }
}

fn guest_on_claim(claim: &str) -> Value {
    let mut spec = test_cluster::guest();
    let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}});
    spec["volumes"].as_array_mut().unwrap().push(volume);
    let disk = json!({"name": "data", "disk": {"bus": "virtio"}});
    let disks = &mut spec["domain"]["devices"]["disks"];
    disks.as_array_mut().unwrap().push(disk);
    spec
}

/// Installs the roles of the components, so that a missing right fails a test.
async fn install_roles(api: &TestApi) {
    let home = roles::Environment::Host {
        namespace: NAMESPACE,
        node: "node1",
    };
    for object in roles::objects(home).unwrap() {
        api.create(object).await.unwrap();
    }
}

async fn install_node(api: &TestApi) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1"},
        "status": {"nodeInfo": {"kubeletVersion": "v1.36.0", "containerRuntimeVersion": "containerd://2.2.0"}, "allocatable": {"cpu": "2", "devices.kubevirt.io/kvm": "0"}},
    });
    // The type adds the required fields.
    let node: Node = serde_json::from_value(node).unwrap();
    api.create(json!(node)).await.unwrap();
}

/// Acts as virt-api does on the verbs that the controllers use.
async fn run_verb(client: &Client, path: &str) -> http::Response<axum::body::Body> {
    let parts: Vec<&str> = path.split('/').collect();
    if let [.., name, "stop"] = parts[..] {
        let vms = Api::<VirtualMachine>::namespaced(client.clone(), NAMESPACE);
        let halted = Patch::Merge(json!({"spec": {"runStrategy": "Halted"}}));
        let patched = vms.patch(name, &PatchParams::default(), &halted).await;
        patched.unwrap();
    }
    if let [.., name, verb @ ("pause" | "unpause")] = parts[..] {
        let vmis = Api::<VirtualMachineInstance>::namespaced(client.clone(), NAMESPACE);
        let status = vmis.get(name).await.unwrap().status.unwrap_or_default();
        let mut conditions = json!(status.conditions);
        let all = conditions.as_array_mut().unwrap();
        all.retain(|one| one["type"] != "Paused");
        if verb == "pause" {
            all.push(json!({"type": "Paused", "status": "True"}));
        }
        let shown = Patch::Merge(json!({"status": {"conditions": conditions}}));
        let patched = vmis.patch(name, &PatchParams::default(), &shown).await;
        patched.unwrap();
    }
    http::Response::new(axum::body::Body::empty())
}

/// As an API server answers a create in a namespace that is being deleted.
fn namespace_terminating() -> http::Response<axum::body::Body> {
    let message = "\"a\" is forbidden: unable to create new content in namespace default because it is \
                   being terminated";
    let cause = json!({"reason": "NamespaceTerminating", "field": "metadata.namespace",
        "message": "namespace default is being terminated"});
    forbidden(message, &json!({"name": "a", "causes": [cause]}))
}

/// The response of an API server if a quota is exceeded.
fn quota_exceeded() -> http::Response<axum::body::Body> {
    let message = "pods \"virt-launcher-a\" is forbidden: exceeded quota: small, requested: \
                   pods=1, used: pods=1, limited: pods=1";
    forbidden(message, &Value::Null)
}

fn quota_of_snapshots_exceeded() -> http::Response<axum::body::Body> {
    let count = "count/volumesnapshots.snapshot.storage.k8s.io";
    let message = format!(
        "volumesnapshots.snapshot.storage.k8s.io \"x\" is forbidden: exceeded quota: small, \
         requested: {count}=1, used: {count}=1, limited: {count}=1"
    );
    forbidden(&message, &Value::Null)
}

fn forbidden(message: &str, details: &Value) -> http::Response<axum::body::Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Forbidden", "code": 403, "details": details,
    });
    http::Response::builder()
        .status(403)
        .header("content-type", "application/json")
        .body(axum::body::Body::from(status.to_string()))
        .unwrap()
}

/// The defaults of admission that the controllers rely on.
fn admit(body: &[u8]) -> Vec<u8> {
    let mut vmi: Value = serde_json::from_slice(body).unwrap();
    let finalizer = "kubevirt.io/foregroundDeleteVirtualMachine";
    match vmi["metadata"]["finalizers"].as_array_mut() {
        Some(list) => list.push(finalizer.into()),
        None => vmi["metadata"]["finalizers"] = json!([finalizer]),
    }
    vmi["status"]["phase"] = "Pending".into();
    vmi["status"]["phaseTransitionTimestamps"] = json!([
        {"phase": "Pending", "phaseTransitionTimestamp": "2026-11-21T12:00:00Z"},
    ]);
    vmi.to_string().into_bytes()
}

/// Kubelet and virt-handler in one, which act in the step of virtual time after a change.
struct SimulatedNode {
    client: Client,
    fault_mode: Arc<Mutex<FaultMode>>,
    changed: Arc<Notify>,
}

impl SimulatedNode {
    async fn run(self, stop: CancellationToken) {
        let begin = Instant::now();
        let forever = async {
            loop {
                self.changed.notified().await;
                let steps = begin.elapsed().div_duration_f64(STEP).floor() + 1.0;
                tokio::time::sleep_until(begin + STEP.mul_f64(steps)).await;
                if *self.fault_mode.lock() == FaultMode::NodeUnreachable {
                    continue;
                }
                self.reconcile_pods().await;
                self.reconcile_guests().await;
            }
        };
        Box::pin(stop.run_until_cancelled(forever)).await;
    }

    async fn reconcile_pods(&self) {
        let all = Api::<Pod>::all(self.client.clone());
        let fault_mode = *self.fault_mode.lock();
        for pod in all.list(&ListParams::default()).await.unwrap() {
            let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
            let is_bound = pod
                .spec
                .as_ref()
                .is_some_and(|spec| spec.node_name.is_some());
            let namespace = pod.namespace().unwrap_or_default();
            let pods = Api::<Pod>::namespaced(self.client.clone(), &namespace);
            let name = pod.name_any();
            if pod.metadata.deletion_timestamp.is_some() {
                let now = DeleteParams {
                    grace_period_seconds: Some(0),
                    ..DeleteParams::default()
                };
                // It may be deleted already.
                let _deleted = pods.delete(&name, &now).await.is_ok();
            } else if pod
                .labels()
                .get("kubevirt.io")
                .is_some_and(|it| it == "disk-import")
            {
                // The tests act as the importer.
            } else if fault_mode == FaultMode::Unschedulable {
                let condition = json!({"type": "PodScheduled", "status": "False",
                                       "reason": "Unschedulable", "message": "no room"});
                set_pod_status(&pods, &name, json!({"conditions": [condition]})).await;
            } else if !is_bound {
                // The pod of a migration is on another node than the guest.
                let is_target = pod.labels().contains_key("kubevirt.io/migrationJobUID");
                let is_on_second = is_target && self.has_guest_on("node1", &pod).await;
                let node = if is_on_second { "node2" } else { "node1" };
                let selector = pod
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.node_selector.as_ref());
                let pinned = selector.and_then(|all| all.get("kubernetes.io/hostname"));
                let node = pinned.map_or(node, String::as_str);
                bind(&self.client, (&namespace, &name), node).await;
            } else if matches!(phase.as_deref(), None | Some("" | "Pending")) {
                let is_binder = pod
                    .annotations()
                    .contains_key("kubevirt.io/ephemeral-provisioning");
                let status = match fault_mode {
                    FaultMode::None if is_binder => pod_status("Succeeded"),
                    FaultMode::PodsFail => pod_status("Failed"),
                    FaultMode::ImageMissing => waiting_status("ImagePullBackOff"),
                    FaultMode::SecretMissing => waiting_status("CreateContainerConfigError"),
                    FaultMode::None
                    | FaultMode::Unschedulable
                    | FaultMode::QuotaExceeded
                    | FaultMode::SnapshotsRefused
                    | FaultMode::NamespaceTerminating
                    | FaultMode::NodeUnreachable => pod_status("Running"),
                };
                set_pod_status(&pods, &name, status).await;
            }
        }
    }

    /// Whether the guest of this pod runs on the node.
    async fn has_guest_on(&self, node: &str, pod: &Pod) -> bool {
        let vmis = Api::<VirtualMachineInstance>::namespaced(self.client.clone(), NAMESPACE);
        let all = vmis.list(&ListParams::default()).await.unwrap();
        let uid = pod.labels().get("kubevirt.io/created-by").cloned();
        let mut all = all.items.into_iter().filter(|vmi| vmi.uid() == uid);
        all.any(|vmi| vmi.status.and_then(|status| status.node_name).as_deref() == Some(node))
    }

    async fn reconcile_guests(&self) {
        let vmis = Api::<VirtualMachineInstance>::namespaced(self.client.clone(), NAMESPACE);
        for vmi in vmis.list(&ListParams::default()).await.unwrap() {
            let phase = vmi.status.as_ref().and_then(|status| status.phase.clone());
            let phase = phase.map(|phase| phase.to_string()).unwrap_or_default();
            let is_deleting = vmi.metadata.deletion_timestamp.is_some();
            match (phase.as_str(), is_deleting) {
                // Its guest comes from another VMI.
                ("Scheduled", false) if model::awaits_guest(&vmi) => {}
                ("Scheduled", false) => write_phase(&self.client, &vmi, "Running").await,
                ("Scheduled" | "Running", true) => {
                    write_phase(&self.client, &vmi, "Succeeded").await;
                }
                _ => {}
            }
        }
    }
}

/// Applies the fields of virt-handler, on condition that the VMI has not changed.
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
    // A conflict is retried in the next step.
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

fn waiting_status(reason: &str) -> Value {
    json!({
        "phase": "Pending", "qosClass": "Burstable",
        "containerStatuses": [{"name": "compute", "ready": false, "image": "launcher:1",
                               "imageID": "", "restartCount": 0,
                               "state": {"waiting": {"reason": reason, "message": "later"}}}],
    })
}

async fn set_pod_status(pods: &Api<Pod>, name: &str, status: Value) {
    let patch = Patch::Merge(json!({"status": status}));
    // The pod may be gone.
    let _patched = pods
        .patch_status(name, &PatchParams::default(), &patch)
        .await
        .is_ok();
}

async fn bind(client: &Client, (namespace, name): (&str, &str), node: &str) {
    let body = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/binding");
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())
        .unwrap();
    let _bound = client.request::<Value>(request).await.is_ok();
}
