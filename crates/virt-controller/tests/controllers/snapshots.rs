//! Snapshots of VMs; the tests act as the storage driver and as virt-api.

use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kubevirt_api::snapshot::{
    Indication, VirtualMachineSnapshot, VirtualMachineSnapshotContent, VirtualMachineSnapshotStatus,
};
use kubevirt_api::volume_snapshot::VolumeSnapshot;
use serde_json::{Value, json};

use super::cluster::{FaultMode, NAMESPACE, TestCluster};

impl TestCluster {
    pub(crate) fn snapshots(&self) -> Api<VirtualMachineSnapshot> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) fn contents(&self) -> Api<VirtualMachineSnapshotContent> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) fn volume_snapshots(&self) -> Api<VolumeSnapshot> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Creates a claim that has a volume.
    pub(crate) async fn create_bound_claim(&self, name: &str) {
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"mine": "1"}},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
                "resources": {"requests": {"storage": "1Gi"}}, "volumeName": format!("pv-{name}"),
            },
        });
        self.create(claim).await;
        let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
        let parameters = PatchParams::default();
        let claims = self.claims();
        claims
            .patch_status(name, &parameters, &bound)
            .await
            .unwrap();
    }

    pub(crate) async fn run_vm_on_a_disk(&self) {
        self.create_bound_claim("data").await;
        self.create_vm_on_claim("a", "data").await;
        self.wait_for_printable("a", "Running").await;
    }

    pub(crate) async fn create_snapshot(&self, name: &str, vm: &str, more: Value) {
        let mut spec = json!({
            "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": vm},
        });
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let snapshot = json!({
            "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshot",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
        });
        self.create(snapshot).await;
    }

    pub(crate) async fn snapshot_status(&self, name: &str) -> VirtualMachineSnapshotStatus {
        let snapshot = self.snapshots().get(name).await.unwrap();
        snapshot.status.unwrap_or_default()
    }

    pub(crate) async fn wait_for_snapshot(&self, name: &str, phase: &str) {
        self.wait_until(&format!("snapshot {name} is {phase}"), async || {
            let found = self.snapshot_status(name).await.phase;
            found.is_some_and(|found| found.as_str() == phase)
        })
        .await;
    }

    async fn wait_for_reason(&self, name: &str, reason: &str) {
        self.wait_until(&format!("snapshot {name}: {reason}"), async || {
            let conditions = self.snapshot_status(name).await.conditions;
            let mut all = conditions.iter();
            all.any(|one| one.reason.as_deref() == Some(reason))
        })
        .await;
    }

    /// Deletes the contents that have outlived their snapshots.
    pub(crate) async fn delete_contents(&self) {
        let (all, now) = (kube::api::ListParams::default(), DeleteParams::default());
        for content in self.contents().list(&all).await.unwrap() {
            let contents = self.contents();
            contents.delete(&content.name_any(), &now).await.unwrap();
        }
        self.wait_until("all copies are gone", async || {
            let copies = self.volume_snapshots().list(&all).await.unwrap().items;
            let contents = self.contents().list(&all).await.unwrap().items;
            copies.is_empty() && contents.is_empty()
        })
        .await;
    }

    /// The VM is not locked.
    pub(crate) async fn wait_for_unlocked(&self, vm: &str) {
        self.wait_until("the VM is unlocked", async || {
            let vm = self.vms().get(vm).await.unwrap();
            let status = vm.status.clone().unwrap_or_default();
            let finalizers = vm.finalizers().iter();
            status.snapshot_in_progress.is_none()
                && status.restore_in_progress.is_none()
                && !finalizers
                    .into_iter()
                    .any(|one| one.starts_with("snapshot."))
        })
        .await;
    }
}

/// A cluster whose storage has snapshots.
pub(crate) async fn with_storage() -> TestCluster {
    let cluster = TestCluster::new().await;
    cluster.install_snapshotter().await;
    cluster.install_snapshot_class().await;
    cluster
}

/// A cluster with snapshots, and a VM with a disk that runs always.
pub(crate) async fn with_vm() -> TestCluster {
    let cluster = with_storage().await;
    cluster.run_vm_on_a_disk().await;
    cluster
}

fn indications(status: &VirtualMachineSnapshotStatus) -> Vec<&str> {
    status.indications.iter().map(Indication::as_str).collect()
}

#[tokio::test(start_paused = true)]
async fn running_guest_without_agent_is_paused_while_its_disks_are_copied() {
    let cluster = with_vm().await;
    cluster.create_snapshot("s", "a", json!({})).await;
    cluster.wait_for_snapshot("s", "Succeeded").await;
    cluster.wait_for_unlocked("a").await;
    let status = cluster.snapshot_status("s").await;
    assert_eq!(status.ready_to_use, Some(true));
    assert_eq!(
        status.source_uid,
        cluster.vms().get("a").await.unwrap().uid()
    );
    assert_eq!(indications(&status), ["Online", "NoGuestAgent"]);
    let volumes = status.snapshot_volumes.unwrap();
    assert_eq!(volumes.included_volumes, ["data"]);
    assert_eq!(volumes.excluded_volumes, ["root"]);
    assert_eq!(cluster.writes_to("/a/pause").len(), 1);
    assert_eq!(cluster.writes_to("/a/unpause").len(), 1);
    let snapshot = cluster.snapshots().get("s").await.unwrap();
    let uid = snapshot.uid().unwrap();
    let name = format!("vmsnapshot-content-{uid}");
    assert_eq!(
        status.virtual_machine_snapshot_content_name.as_ref(),
        Some(&name)
    );
    let content = cluster.contents().get(&name).await.unwrap();
    let source = content.spec.source.virtual_machine.unwrap();
    assert_eq!(source.metadata.unwrap().name.as_deref(), Some("a"));
    let copy = format!("vmsnapshot-{uid}-volume-data");
    let copy = cluster.volume_snapshots().get(&copy).await.unwrap();
    let claim = copy.spec.source.persistent_volume_claim_name.as_deref();
    assert_eq!(claim, Some("data"));
    assert_eq!(
        copy.spec.volume_snapshot_class_name.as_deref(),
        Some("copies")
    );
    let vm = cluster.vms().get("a").await.unwrap();
    let volumes = vm.status.unwrap().volume_snapshot_statuses;
    let enabled: Vec<(&str, bool)> = volumes
        .iter()
        .map(|one| (one.name.as_str(), one.enabled))
        .collect();
    assert_eq!(enabled, [("root", false), ("data", true)]);

    let now = DeleteParams::default();
    cluster.snapshots().delete("s", &now).await.unwrap();
    cluster
        .wait_until("all copies are gone", async || {
            let all = kube::api::ListParams::default();
            let copies = cluster.volume_snapshots().list(&all).await.unwrap().items;
            let contents = cluster.contents().list(&all).await.unwrap().items;
            let snapshots = cluster.snapshots().list(&all).await.unwrap().items;
            copies.is_empty() && contents.is_empty() && snapshots.is_empty()
        })
        .await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn agent_freezes_the_guest() {
    let cluster = with_vm().await;
    let vmi = cluster.vmis().get("a").await.unwrap();
    let mut conditions = json!(vmi.status.unwrap().conditions);
    let agent = json!({"type": "AgentConnected", "status": "True"});
    conditions.as_array_mut().unwrap().push(agent);
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    let vmis = cluster.vmis();
    vmis.patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    cluster.create_snapshot("s", "a", json!({})).await;
    cluster.wait_for_snapshot("s", "Succeeded").await;
    cluster.wait_for_unlocked("a").await;
    let status = cluster.snapshot_status("s").await;
    assert_eq!(indications(&status), ["Online", "GuestAgent"]);
    assert_eq!(cluster.writes_to("/a/freeze").len(), 1);
    assert_eq!(cluster.writes_to("/a/unfreeze").len(), 1);
    assert_eq!(cluster.writes_to("/a/pause").len(), 0);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn snapshot_of_a_stopped_vm_holds_no_guest() {
    let cluster = TestCluster::new().await;
    cluster.install_snapshotter().await;
    cluster.install_snapshot_class().await;
    cluster.create_vm("a", "Halted").await;
    cluster.wait_for_printable("a", "Stopped").await;
    cluster.create_snapshot("s", "a", json!({})).await;
    cluster.wait_for_snapshot("s", "Succeeded").await;
    cluster.wait_for_unlocked("a").await;
    let status = cluster.snapshot_status("s").await;
    assert_eq!(indications(&status), [""; 0]);
    assert_eq!(cluster.writes_to("subresources").len(), 0);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn disks_of_a_stopped_vm_are_not_copied_while_a_pod_uses_them() {
    let cluster = with_vm().await;
    cluster
        .patch_vm("a", json!({"spec": {"runStrategy": "Halted"}}))
        .await;
    cluster.wait_until_gone("a").await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "writer", "namespace": NAMESPACE},
        "spec": {
            "containers": [{"name": "writer", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    });
    cluster.create(pod).await;
    cluster.create_snapshot("s", "a", json!({})).await;
    cluster.wait_for_reason("s", "SnapshotSourceBusy").await;
    let error = cluster.snapshot_status("s").await.error.unwrap();
    let message = error.message.unwrap();
    assert!(
        message.contains("pod writer uses persistentvolumeclaim data"),
        "{message}"
    );
    cluster.wait_for_unlocked("a").await;
    let now = DeleteParams::default();
    cluster.pods().delete("writer", &now).await.unwrap();
    cluster.wait_for_snapshot("s", "Succeeded").await;
    cluster.wait_for_unlocked("a").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn refused_copies_do_not_keep_the_guest_paused() {
    let cluster = with_vm().await;
    cluster.set_fault_mode(FaultMode::SnapshotsRefused);
    let begin = tokio::time::Instant::now();
    cluster
        .create_snapshot("s", "a", json!({"failureDeadline": "0s"}))
        .await;
    cluster.wait_for_snapshot("s", "Failed").await;
    cluster.wait_for_unlocked("a").await;
    cluster
        .wait_until("the guest is unpaused", async || {
            cluster.writes_to("/a/unpause").len() == 1
        })
        .await;
    let elapsed = begin.elapsed();
    assert!(elapsed < Duration::from_mins(1), "{elapsed:?}");
    let error = cluster.snapshot_status("s").await.error.unwrap();
    let message = error.message.unwrap();
    assert!(message.contains("exceeded quota"), "{message}");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn problems_of_a_snapshot_are_shown_until_they_are_solved() {
    let cluster = TestCluster::new().await;
    cluster.create_bound_claim("data").await;
    cluster
        .create_snapshot("s", "a", json!({"failureDeadline": "0s"}))
        .await;
    cluster.wait_for_reason("s", "SnapshotSourceMissing").await;
    cluster.create_vm_on_claim("a", "data").await;
    cluster.wait_for_printable("a", "Running").await;
    cluster.wait_for_reason("s", "SnapshotsNotSupported").await;
    let error = cluster.snapshot_status("s").await.error.unwrap();
    assert!(error.message.unwrap().contains("no volume snapshots"));
    assert_eq!(cluster.writes_to("subresources").len(), 0);
    cluster.install_snapshotter().await;
    cluster.install_snapshot_class().await;
    cluster.wait_for_snapshot("s", "Succeeded").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn snapshot_fails_at_its_deadline() {
    let cluster = TestCluster::new().await;
    cluster.install_snapshotter().await;
    cluster.create_bound_claim("data").await;
    cluster.create_vm_on_claim("a", "data").await;
    cluster.wait_for_printable("a", "Running").await;
    let begin = tokio::time::Instant::now();
    cluster.create_snapshot("s", "a", json!({})).await;
    cluster.wait_for_snapshot("s", "Failed").await;
    assert!(
        begin.elapsed() >= Duration::from_secs(299),
        "{:?}",
        begin.elapsed()
    );
    cluster.wait_for_unlocked("a").await;
    let status = cluster.snapshot_status("s").await;
    assert_eq!(status.ready_to_use, Some(false));
    let error = status.error.unwrap().message.unwrap();
    assert!(
        error.contains("within its deadline: volume data"),
        "{error}"
    );
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn name_of_the_vm_may_be_longer_than_a_label() {
    let cluster = with_storage().await;
    cluster.create_bound_claim("data").await;
    let name = "a".repeat(100);
    cluster.create_vm_on_claim(&name, "data").await;
    cluster.wait_for_printable(&name, "Running").await;
    cluster.create_snapshot("s", &name, json!({})).await;
    cluster.wait_for_snapshot("s", "Succeeded").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn second_snapshot_waits_for_the_first() {
    let cluster = with_vm().await;
    for name in ["s", "t", "u"] {
        cluster.create_snapshot(name, "a", json!({})).await;
    }
    for name in ["s", "t", "u"] {
        cluster.wait_for_snapshot(name, "Succeeded").await;
    }
    cluster.wait_for_unlocked("a").await;
    assert_eq!(cluster.writes_to("/a/unpause").len(), 3);
    cluster.end().await;
}

/// A snapshot that is deleted, and one whose content is kept.
async fn snapshot_and_delete(cluster: &TestCluster) {
    for (name, policy) in [("s", "Delete"), ("kept", "Retain")] {
        let spec = json!({"deletionPolicy": policy});
        cluster.create_snapshot(name, "a", spec).await;
        cluster.wait_for_snapshot(name, "Succeeded").await;
        cluster.wait_for_unlocked("a").await;
        let now = DeleteParams::default();
        cluster.snapshots().delete(name, &now).await.unwrap();
        cluster
            .wait_until("the snapshot is gone", async || {
                cluster.snapshots().get_opt(name).await.unwrap().is_none()
            })
            .await;
    }
    let all = kube::api::ListParams::default();
    let contents = cluster.contents().list(&all).await.unwrap().items;
    assert_eq!(contents.len(), 1);
    assert_eq!(contents[0].spec.virtual_machine_snapshot_name, None);
    cluster
        .wait_until("one copy is left", async || {
            let copies = cluster.volume_snapshots().list(&all).await.unwrap();
            copies.items.len() == 1
        })
        .await;
    let pauses = cluster.writes_to("/a/pause").len();
    let unpauses = cluster.writes_to("/a/unpause").len();
    assert!(unpauses >= 2 && pauses >= 2, "{pauses} {unpauses}");
}

#[tokio::test(start_paused = true)]
async fn vm_and_snapshot_that_are_deleted_after_a_crash_go() {
    let mut cluster = with_vm().await;
    cluster.crash_and_stay_down_after("virt-controller/snapshot/protect-vm");
    cluster.create_snapshot("s", "a", json!({})).await;
    cluster
        .wait_until("the controllers are down", async || {
            !cluster.is_crash_pending()
        })
        .await;
    let now = DeleteParams::default();
    cluster.snapshots().delete("s", &now).await.unwrap();
    cluster.vms().delete("a", &now).await.unwrap();
    cluster.start_controllers();
    cluster
        .wait_until("snapshot and VM are gone", async || {
            let snapshot = cluster.snapshots().get_opt("s").await.unwrap();
            let vm = cluster.vms().get_opt("a").await.unwrap();
            snapshot.is_none() && vm.is_none()
        })
        .await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn snapshots_survive_a_crash_at_every_failpoint() {
    let mut cluster = with_vm().await;
    let names = ::failpoints::NAMES.lines();
    for name in names.filter(|name| name.starts_with("virt-controller/snapshot/")) {
        cluster.crash_after(name);
        snapshot_and_delete(&cluster).await;
        assert!(
            !cluster.is_crash_pending(),
            "failpoint {name} was not reached"
        );
        cluster.delete_contents().await;
    }
    cluster.end().await;
}
