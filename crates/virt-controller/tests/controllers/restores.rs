//! Restores of VMs; the tests act as the storage driver and as virt-api.

use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams};
use kubevirt_api::restore::{VirtualMachineRestore, VirtualMachineRestoreStatus};
use serde_json::{Value, json};

use super::cluster::{NAMESPACE, TestCluster};
use super::snapshots::{with_storage, with_vm};

impl TestCluster {
    fn restores(&self) -> Api<VirtualMachineRestore> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    async fn create_restore(&self, name: &str, vm: &str, more: Value) {
        let mut spec = json!({
            "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": vm},
            "virtualMachineSnapshotName": "s",
        });
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let restore = json!({
            "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineRestore",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
        });
        self.create(restore).await;
    }

    async fn restore_status(&self, name: &str) -> VirtualMachineRestoreStatus {
        let restore = self.restores().get(name).await.unwrap();
        restore.status.unwrap_or_default()
    }

    async fn wait_for_restore(&self, name: &str) {
        self.wait_until(&format!("restore {name} is complete"), async || {
            self.restore_status(name).await.complete == Some(true)
        })
        .await;
    }

    /// The VM can be started.
    async fn assert_unlocked(&self, vm: &str) {
        let status = self.vms().get(vm).await.unwrap().status.unwrap_or_default();
        assert_eq!(status.restore_in_progress, None);
    }

    async fn delete_restore(&self, name: &str) {
        let now = DeleteParams::default();
        self.restores().delete(name, &now).await.unwrap();
        self.wait_until("the restore is gone", async || {
            self.restores().get_opt(name).await.unwrap().is_none()
        })
        .await;
    }

    /// Reason and message of a condition of a restore.
    async fn wait_for_condition(&self, name: &str, kind: &str, reason: &str) {
        self.wait_until(&format!("restore {name}: {reason}"), async || {
            let conditions = self.restore_status(name).await.conditions;
            conditions
                .iter()
                .any(|one| one.type_.as_str() == kind && one.reason.as_deref() == Some(reason))
        })
        .await;
    }

    async fn claim_of(&self, vm: &str, volume: &str) -> String {
        let vm = json!(self.vms().get(vm).await.unwrap());
        let volumes = vm["spec"]["template"]["spec"]["volumes"]
            .as_array()
            .unwrap();
        let found = volumes.iter().find(|one| one["name"] == volume).unwrap();
        let claim = found["persistentVolumeClaim"]["claimName"].as_str();
        claim.unwrap().to_owned()
    }
}

async fn with_snapshot() -> TestCluster {
    let cluster = with_vm().await;
    take_snapshot(&cluster).await;
    cluster
}

async fn take_snapshot(cluster: &TestCluster) {
    cluster.create_snapshot("s", "a", json!({})).await;
    cluster.wait_for_snapshot("s", "Succeeded").await;
    cluster.wait_for_unlocked("a").await;
}

async fn halt(cluster: &TestCluster) {
    cluster
        .patch_vm("a", json!({"spec": {"runStrategy": "Halted"}}))
        .await;
    cluster.wait_until_gone("a").await;
}

#[tokio::test(start_paused = true)]
async fn guest_that_has_shut_itself_down_does_not_run() {
    let cluster = with_snapshot().await;
    let strategy = json!({"spec": {"runStrategy": "Manual"}});
    cluster.patch_vm("a", strategy).await;
    cluster
        .wait_until("the guest has ended", async || {
            // Another write may come in between.
            cluster.set_phase("a", "Succeeded").await;
            let status = json!(cluster.vmis().get("a").await.unwrap().status);
            status["phase"] == "Succeeded"
        })
        .await;
    let policy = json!({"targetReadinessPolicy": "FailImmediate"});
    cluster.create_restore("r", "a", policy).await;
    cluster.wait_for_restore("r").await;
    cluster.assert_unlocked("a").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn stopped_vm_gets_new_claims_and_its_old_spec() {
    let cluster = with_snapshot().await;
    halt(&cluster).await;
    let memory = json!({"guest": "256Mi"});
    let change = json!({"spec": {"template": {"spec": {"domain": {"memory": memory}}}}});
    cluster.patch_vm("a", change).await;
    cluster.create_restore("r", "a", json!({})).await;
    cluster.wait_for_restore("r").await;
    cluster.assert_unlocked("a").await;
    let status = cluster.restore_status("r").await;
    let restore = cluster.restores().get("r").await.unwrap();
    let name = format!("restore-{}-data", restore.uid().unwrap());
    assert_eq!(status.restores.len(), 1);
    assert_eq!(status.restores[0].persistent_volume_claim, name);
    assert!(status.restore_time.is_some());
    assert_eq!(cluster.claim_of("a", "data").await, name);
    let vm = cluster.vms().get("a").await.unwrap();
    let spec = json!(vm.spec);
    assert_eq!(spec["runStrategy"], "Halted");
    assert_eq!(
        spec["template"]["spec"]["domain"]["memory"]["guest"],
        "128Mi"
    );
    let claim = json!(cluster.claims().get(&name).await.unwrap());
    assert_eq!(claim["spec"]["dataSource"]["kind"], "VolumeSnapshot");
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "2Gi");
    assert_eq!(claim["spec"]["volumeName"], Value::Null);
    assert_eq!(claim["metadata"]["labels"]["mine"], "1");
    assert_eq!(
        claim["metadata"]["ownerReferences"][0]["uid"],
        json!(vm.uid())
    );
    // The old data is kept.
    cluster.claims().get("data").await.unwrap();
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn restore_onto_a_running_vm_follows_its_policy() {
    let cluster = with_snapshot().await;
    let old = cluster.claim_of("a", "data").await;
    let now = json!({"targetReadinessPolicy": "FailImmediate"});
    cluster.create_restore("at-once", "a", now).await;
    cluster
        .wait_for_condition("at-once", "Failure", "RestoreTargetFailed")
        .await;
    let begin = tokio::time::Instant::now();
    cluster.create_restore("patient", "a", json!({})).await;
    cluster
        .wait_for_condition("patient", "Ready", "RestoreTargetNotReady")
        .await;
    cluster
        .wait_for_condition("patient", "Failure", "RestoreTargetFailed")
        .await;
    assert!(
        begin.elapsed() >= Duration::from_secs(299),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(cluster.claim_of("a", "data").await, old);
    assert_eq!(cluster.printable("a").await, "Running");
    let stop = json!({"targetReadinessPolicy": "StopTarget"});
    cluster.create_restore("stops", "a", stop).await;
    cluster.wait_for_restore("stops").await;
    assert_ne!(cluster.claim_of("a", "data").await, old);
    cluster.assert_unlocked("a").await;
    cluster.wait_for_printable("a", "Stopped").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn new_vm_is_halted_and_has_claims_of_its_own() {
    let cluster = with_snapshot().await;
    let spec = json!({
        "volumeRestorePolicy": "PrefixTargetName",
        "volumeRestoreOverrides": [{"volumeName": "data", "labels": {"for": "tests"}}],
        "patches": [r#"{"op": "add", "path": "/metadata/labels/copied", "value": "yes"}"#],
    });
    cluster.create_restore("r", "b", spec).await;
    cluster.wait_for_restore("r").await;
    let vm = cluster.vms().get("b").await.unwrap();
    assert_eq!(vm.labels()["copied"], "yes");
    assert_eq!(json!(vm.spec)["runStrategy"], "Halted");
    assert_eq!(cluster.claim_of("b", "data").await, "b-data");
    let claim = cluster.claims().get("b-data").await.unwrap();
    assert_eq!(claim.labels()["for"], "tests");
    assert_eq!(claim.owner_references()[0].uid, vm.uid().unwrap());
    // The name is taken now.
    cluster
        .create_restore(
            "again",
            "c",
            json!({"volumeRestoreOverrides": [
                {"volumeName": "data", "restoreName": "b-data"},
            ]}),
        )
        .await;
    cluster
        .wait_for_condition("again", "Ready", "RestoreNotPossible")
        .await;
    assert!(cluster.vms().get_opt("c").await.unwrap().is_none());
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn restore_waits_for_its_snapshot() {
    let cluster = with_vm().await;
    cluster.create_restore("r", "b", json!({})).await;
    cluster
        .wait_for_condition("r", "Ready", "RestoreSourceNotReady")
        .await;
    cluster.create_snapshot("s", "a", json!({})).await;
    cluster.wait_for_restore("r").await;
    cluster.end().await;
}

/// In place onto a VM that has to be stopped, then to a new VM.
async fn restore_twice(cluster: &TestCluster) {
    let spec = json!({"targetReadinessPolicy": "StopTarget", "volumeRestorePolicy": "InPlace"});
    let before = cluster.claims().get("data").await.unwrap().uid();
    cluster.create_restore("r", "a", spec).await;
    cluster.wait_for_restore("r").await;
    cluster.assert_unlocked("a").await;
    assert_eq!(cluster.claim_of("a", "data").await, "data");
    let claim = cluster.claims().get("data").await.unwrap();
    assert_ne!(claim.uid(), before);
    let vm = cluster.vms().get("a").await.unwrap();
    assert_eq!(claim.owner_references()[0].uid, vm.uid().unwrap());
    cluster.create_restore("new", "b", json!({})).await;
    cluster.wait_for_restore("new").await;
    let all = kube::api::ListParams::default();
    assert_eq!(cluster.claims().list(&all).await.unwrap().items.len(), 2);
    for name in ["r", "new"] {
        cluster.delete_restore(name).await;
    }
    delete_incomplete(cluster).await;
}

/// A VM that the API server refuses: the claim of the restore exists, and no VM has it.
async fn delete_incomplete(cluster: &TestCluster) {
    let patch = r#"{"op": "replace", "path": "/spec/template/spec/domain", "value": 1}"#;
    let spec = json!({"patches": [patch]});
    cluster.create_restore("refused", "c", spec).await;
    cluster
        .wait_for_condition("refused", "Ready", "VirtualMachineRestoreError")
        .await;
    let all = kube::api::ListParams::default();
    assert_eq!(cluster.claims().list(&all).await.unwrap().items.len(), 3);
    cluster.delete_restore("refused").await;
    assert_eq!(cluster.claims().list(&all).await.unwrap().items.len(), 2);
}

/// Deletes the VMs with their claims, and the snapshot.
async fn delete_all(cluster: &TestCluster, failpoint: &str) {
    let (all, now) = (kube::api::ListParams::default(), DeleteParams::default());
    for name in ["a", "b"] {
        cluster.vms().delete(name, &now).await.unwrap();
    }
    cluster.snapshots().delete("s", &now).await.unwrap();
    cluster
        .wait_until(&format!("{failpoint}: nothing is left"), async || {
            cluster.vms().list(&all).await.unwrap().items.is_empty()
                && cluster.claims().list(&all).await.unwrap().items.is_empty()
                && cluster
                    .snapshots()
                    .list(&all)
                    .await
                    .unwrap()
                    .items
                    .is_empty()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn restores_survive_a_crash_at_every_failpoint() {
    let mut cluster = with_storage().await;
    let names = ::failpoints::NAMES.lines();
    for name in names.filter(|name| name.starts_with("virt-controller/restore/")) {
        cluster.run_vm_on_a_disk().await;
        take_snapshot(&cluster).await;
        cluster.crash_after(name);
        restore_twice(&cluster).await;
        assert!(
            !cluster.is_crash_pending(),
            "failpoint {name} was not reached"
        );
        delete_all(&cluster, name).await;
    }
    cluster.end().await;
}
