//! Clones of VMs and of snapshots; the tests act as the storage driver and as virt-api.

use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams};
use kubevirt_api::clone::{VirtualMachineClone, VirtualMachineCloneStatus};
use kubevirt_api::restore::VirtualMachineRestore;
use serde_json::{Value, json};

use super::cluster::{NAMESPACE, TestCluster};
use super::snapshots::{with_storage, with_vm};

impl TestCluster {
    fn clones(&self) -> Api<VirtualMachineClone> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn restores_of_clones(&self) -> Api<VirtualMachineRestore> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Of VM `a`, to VM `b`.
    async fn create_clone(&self, name: &str, more: Value) {
        let mut spec = json!({
            "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "a"},
            "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "b"},
        });
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let clone = json!({
            "apiVersion": "clone.kubevirt.io/v1beta1", "kind": "VirtualMachineClone",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
        });
        self.create(clone).await;
    }

    async fn clone_status(&self, name: &str) -> VirtualMachineCloneStatus {
        let clone = self.clones().get(name).await.unwrap();
        clone.status.unwrap_or_default()
    }

    async fn wait_for_clone(&self, name: &str, phase: &str) {
        self.wait_until(&format!("clone {name} is {phase}"), async || {
            let found = self.clone_status(name).await.phase;
            found.is_some_and(|found| found.as_str() == phase)
        })
        .await;
    }

    async fn wait_for_clone_reason(&self, name: &str, reason: &str) {
        self.wait_until(&format!("clone {name}: {reason}"), async || {
            let conditions = self.clone_status(name).await.conditions;
            let mut all = conditions.iter();
            all.any(|one| one.reason.as_deref() == Some(reason))
        })
        .await;
    }

    /// As the driver does when the VM starts.
    async fn bind_claims(&self) {
        for claim in self.claims().list(&ListParams::default()).await.unwrap() {
            let name = claim.name_any();
            self.set_status::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(
                &name,
                json!({"phase": "Bound"}),
            )
            .await;
        }
    }

    async fn wait_for_no_helpers(&self, what: &str) {
        let all = ListParams::default();
        self.wait_until(&format!("{what}: the helpers are gone"), async || {
            let restores = self.restores_of_clones().list(&all).await.unwrap().items;
            let snapshots = self.snapshots().list(&all).await.unwrap().items;
            let is_helper = |name: String| name.starts_with("tmp-");
            !restores.iter().any(|one| is_helper(one.name_any()))
                && !snapshots.iter().any(|one| is_helper(one.name_any()))
        })
        .await;
    }

    pub(crate) async fn delete_vm_and_wait(&self, name: &str) {
        self.vms()
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
        self.wait_until("the VM is gone", async || {
            self.vms().get_opt(name).await.unwrap().is_none()
        })
        .await;
    }

    async fn wait_for_no_clone(&self, name: &str) {
        self.wait_until("the clone is gone", async || {
            self.clones().get_opt(name).await.unwrap().is_none()
        })
        .await;
    }

    pub(crate) async fn claim_names(&self) -> Vec<String> {
        let all = self.claims().list(&ListParams::default()).await.unwrap();
        all.iter().map(kube::ResourceExt::name_any).collect()
    }
}

fn of_snapshot(name: &str) -> Value {
    json!({"source": {
        "apiGroup": "snapshot.kubevirt.io", "kind": "VirtualMachineSnapshot", "name": name,
    }})
}

#[tokio::test(start_paused = true)]
async fn clone_of_a_running_vm_is_a_halted_vm_with_its_own_claims() {
    let cluster = with_vm().await;
    let guest = cluster.vmis().get("a").await.unwrap().uid();
    cluster
        .create_clone("c", json!({"volumeNamePolicy": "PrefixTargetName"}))
        .await;
    cluster.wait_for_clone("c", "Succeeded").await;
    let status = cluster.clone_status("c").await;
    assert_eq!(status.target_name.as_deref(), Some("b"));
    assert!(status.creation_time.is_some());
    let ready = &status.conditions[0];
    assert_eq!(
        (ready.type_.as_str(), ready.status.as_str()),
        ("Ready", "True")
    );
    assert_eq!(ready.reason.as_deref(), Some("Ready"));
    let uid = cluster.clones().get("c").await.unwrap().uid().unwrap();
    assert_eq!(status.snapshot_name, Some(format!("tmp-snapshot-{uid}")));
    assert_eq!(status.restore_name, Some(format!("tmp-restore-{uid}")));
    let vm = cluster.vms().get("b").await.unwrap();
    assert_eq!(json!(vm.spec)["runStrategy"], "Halted");
    let claim = cluster.claims().get("b-data").await.unwrap();
    assert_eq!(claim.owner_references()[0].uid, vm.uid().unwrap());
    // The source runs on.
    assert_eq!(cluster.vmis().get("a").await.unwrap().uid(), guest);
    cluster.wait_for_unlocked("a").await;
    cluster.bind_claims().await;
    cluster.wait_for_no_helpers("bound").await;
    cluster
        .wait_until("the names are gone", async || {
            let status = cluster.clone_status("c").await;
            status.snapshot_name.is_none() && status.restore_name.is_none()
        })
        .await;
    cluster.delete_vm_and_wait("b").await;
    cluster.wait_for_no_clone("c").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn clone_of_a_snapshot_leaves_the_snapshot() {
    let cluster = with_vm().await;
    cluster.create_clone("c", of_snapshot("s")).await;
    cluster
        .wait_for_clone_reason("c", "SourceDoesNotExist")
        .await;
    cluster.create_snapshot("s", "a", json!({})).await;
    cluster.wait_for_clone("c", "Succeeded").await;
    assert_eq!(cluster.clone_status("c").await.snapshot_name, None);
    cluster.bind_claims().await;
    cluster.wait_for_no_helpers("bound").await;
    cluster.snapshots().get("s").await.unwrap();
    // Its source is not overwritten, though the snapshot is of that VM.
    let mut onto_source = of_snapshot("s");
    onto_source["target"] =
        json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "a"});
    cluster.create_clone("bad", onto_source).await;
    cluster.wait_for_clone("bad", "Failed").await;
    cluster
        .wait_for_clone_reason("bad", "CloneTargetExists")
        .await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn clone_waits_for_its_source_and_refuses_a_target_that_exists() {
    let cluster = with_storage().await;
    cluster.create_clone("c", json!({})).await;
    cluster
        .wait_for_clone_reason("c", "SourceDoesNotExist")
        .await;
    assert_eq!(cluster.clone_status("c").await.phase, None);
    cluster.run_vm_on_a_disk().await;
    cluster.wait_for_clone("c", "Succeeded").await;
    cluster.create_clone("again", json!({})).await;
    cluster.wait_for_clone("again", "Failed").await;
    cluster
        .wait_for_clone_reason("again", "CloneTargetExists")
        .await;
    // An operation that cannot be applied is found once the snapshot shows the VM; the snapshot goes.
    let patch = r#"{"op": "remove", "path": "/spec/none"}"#;
    let target = json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "d"});
    cluster
        .create_clone("patched", json!({"patches": [patch], "target": target}))
        .await;
    cluster.wait_for_clone("patched", "Failed").await;
    cluster
        .wait_for_clone_reason("patched", "CloneNotPossible")
        .await;
    cluster.bind_claims().await;
    cluster.wait_for_no_helpers("failed").await;
    assert!(cluster.vms().get_opt("d").await.unwrap().is_none());
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn clone_waits_while_storage_has_no_snapshots() {
    let cluster = TestCluster::new().await;
    cluster.run_vm_on_a_disk().await;
    cluster.create_clone("c", json!({})).await;
    cluster
        .wait_for_clone_reason("c", "VMVolumeSnapshotsInvalid")
        .await;
    cluster.install_snapshotter().await;
    cluster.install_snapshot_class().await;
    cluster.wait_for_clone("c", "Succeeded").await;
    cluster.end().await;
}

/// A VM that the API server refuses: the claim of the clone exists, and no VM has it.
async fn get_stuck(cluster: &TestCluster, name: &str) {
    let patch = r#"{"op": "replace", "path": "/spec/template/spec/domain", "value": 1}"#;
    cluster
        .create_clone(name, json!({"patches": [patch]}))
        .await;
    cluster
        .wait_for_clone_reason(name, "VirtualMachineRestoreError")
        .await;
    assert_eq!(cluster.claim_names().await.len(), 2);
}

async fn delete_stuck(cluster: &TestCluster, name: &str) {
    let now = DeleteParams::default();
    cluster.clones().delete(name, &now).await.unwrap();
    cluster.wait_for_no_clone(name).await;
    cluster.wait_for_no_helpers(name).await;
    cluster
        .wait_until("the claim of the clone is gone", async || {
            cluster.claim_names().await == ["data"]
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn deleted_clone_leaves_nothing() {
    let cluster = with_vm().await;
    get_stuck(&cluster, "c").await;
    assert_eq!(
        cluster.clone_status("c").await.phase.unwrap().as_str(),
        "RestoreInProgress"
    );
    delete_stuck(&cluster, "c").await;
    cluster.delete_contents().await;
    cluster.wait_for_unlocked("a").await;
    assert!(cluster.vms().get_opt("b").await.unwrap().is_none());
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn source_deleted_midway_fails_the_clone() {
    let cluster = with_vm().await;
    cluster.create_snapshot("s", "a", json!({})).await;
    cluster.wait_for_snapshot("s", "Succeeded").await;
    let patch = r#"{"op": "replace", "path": "/spec/template/spec/domain", "value": 1}"#;
    let mut spec = of_snapshot("s");
    spec["patches"] = json!([patch]);
    cluster.create_clone("c", spec).await;
    cluster
        .wait_for_clone_reason("c", "VirtualMachineRestoreError")
        .await;
    let now = DeleteParams::default();
    cluster.snapshots().delete("s", &now).await.unwrap();
    cluster.wait_for_clone("c", "Failed").await;
    cluster.wait_for_clone_reason("c", "SnapshotDeleted").await;
    cluster.wait_for_no_helpers("failed").await;
    cluster
        .wait_until("the claim of the clone is gone", async || {
            cluster.claim_names().await == ["data"]
        })
        .await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn clones_survive_a_crash_at_every_failpoint() {
    let mut cluster = with_storage().await;
    let own = |name: &&str| name.starts_with("virt-controller/clone/");
    for name in ::failpoints::NAMES.lines().filter(own) {
        cluster.run_vm_on_a_disk().await;
        cluster.crash_after(name);
        cluster.create_clone("c", json!({})).await;
        cluster.wait_for_clone("c", "Succeeded").await;
        cluster.bind_claims().await;
        cluster.wait_for_no_helpers(name).await;
        cluster.delete_vm_and_wait("b").await;
        cluster.wait_for_no_clone("c").await;
        assert!(
            !cluster.is_crash_pending(),
            "failpoint {name} was not reached"
        );
        cluster.delete_vm_and_wait("a").await;
        let now = DeleteParams::default();
        cluster.claims().delete("data", &now).await.unwrap();
        cluster
            .wait_until(&format!("{name}: nothing is left"), async || {
                cluster.claim_names().await.is_empty()
            })
            .await;
        cluster.delete_contents().await;
    }
    cluster.end().await;
}
