//! Restores of backups, with the part of the kubelet and of the pods' programs played by the test.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use kubevirt_api::backup::VirtualMachineBackup;
use kubevirt_api::backup_restore::VirtualMachineBackupRestore;
use serde_json::{Value, json};

use super::backup_restores_overwrite::{overwrite, release};
use super::cluster::{NAMESPACE, TestCluster};

pub(super) const DIRECTORY: &str = "wiki-20260102-030405";
pub(super) const MARK: &str = "ferrovirt.io/backup-restore";
pub(super) const GIB: u64 = 1 << 30;

pub(super) fn restores(cluster: &TestCluster) -> Api<VirtualMachineBackupRestore> {
    Api::namespaced(cluster.client.clone(), NAMESPACE)
}

pub(super) async fn create(cluster: &TestCluster, name: &str, spec: Value) {
    try_create(cluster, name, spec).await.unwrap();
}

async fn try_create(cluster: &TestCluster, name: &str, spec: Value) -> kube::Result<()> {
    let object = json!({
        "apiVersion": "backup.ferrovirt.io/v1alpha1", "kind": "VirtualMachineBackupRestore",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    });
    let object: VirtualMachineBackupRestore = serde_json::from_value(object).unwrap();
    let parameters = PostParams::default();
    restores(cluster).create(&parameters, &object).await?;
    Ok(())
}

pub(super) async fn status(cluster: &TestCluster, name: &str) -> Value {
    json!(restores(cluster).get(name).await.unwrap().status)
}

pub(super) async fn wait_for_phase(cluster: &TestCluster, name: &str, phase: &str) -> Value {
    cluster
        .wait_until(&format!("{name} is {phase}"), async || {
            status(cluster, name).await["phase"] == phase
        })
        .await;
    status(cluster, name).await
}

/// The message of the condition that is true.
pub(super) fn message(status: &Value, kind: &str) -> String {
    let mut all = status["conditions"].as_array().into_iter().flatten();
    let found = all.find(|one| one["type"] == kind && one["status"] == "True");
    let found = found.unwrap_or_else(|| panic!("no {kind}: {status}"));
    found["message"].as_str().unwrap().to_owned()
}

pub(super) async fn wait_for_message(cluster: &TestCluster, name: &str, part: &str) {
    cluster
        .wait_until(&format!("{name} says {part}"), async || {
            let status = status(cluster, name).await;
            let mut all = status["conditions"].as_array().into_iter().flatten();
            all.any(|one| one["message"].as_str().unwrap().contains(part))
        })
        .await;
}

pub(super) async fn pod(cluster: &TestCluster, name: &str, kind: &str) -> Pod {
    let uid = restores(cluster).get(name).await.unwrap().uid().unwrap();
    let pod = match kind {
        "inspect" => format!("backup-inspect-{uid}"),
        index => format!("backup-restore-{uid}-{index}"),
    };
    cluster
        .wait_until(&format!("there is a pod {pod}"), async || {
            cluster.pods().get_opt(&pod).await.unwrap().is_some()
        })
        .await;
    cluster.pods().get(&pod).await.unwrap()
}

/// Ends the container of a pod with that report.
pub(super) async fn end(cluster: &TestCluster, pod: &Pod, code: i32, report: Value) {
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let status = json!({"phase": phase, "containerStatuses": [{
        "name": "importer", "ready": false, "image": "launcher:1", "imageID": "", "restartCount": 0,
        "state": {"terminated": {
            "exitCode": code, "finishedAt": "2026-11-21T12:00:00Z", "message": report.to_string(),
        }},
    }]});
    cluster.set_status::<Pod>(&pod.name_any(), status).await;
}

pub(super) async fn inspect(cluster: &TestCluster, name: &str, volumes: Value) {
    let pod = pod(cluster, name, "inspect").await;
    end(cluster, &pod, 0, json!({"message": "", "volumes": volumes})).await;
}

pub(super) async fn write(cluster: &TestCluster, name: &str, index: &str, verified: bool) {
    let pod = pod(cluster, name, index).await;
    let report = json!({"message": "", "diskBytes": GIB, "verified": verified});
    end(cluster, &pod, 0, report).await;
}

pub(super) async fn mark(cluster: &TestCluster, claim: &str) -> Value {
    let claim = cluster.claims().get(claim).await.unwrap();
    let mark = claim.annotations().get(MARK);
    mark.map_or(Value::Null, |mark| serde_json::from_str(mark).unwrap())
}

pub(super) async fn no_pods(cluster: &TestCluster) {
    cluster
        .wait_until("no pod is left", async || {
            let all = cluster.pods().list(&ListParams::default()).await.unwrap();
            all.items.is_empty()
        })
        .await;
}

pub(super) async fn with_backup() -> TestCluster {
    let cluster = TestCluster::new().await;
    cluster.create_claim("backups").await;
    cluster
}

pub(super) fn of_directory() -> Value {
    json!({"pvcName": "backups", "directory": DIRECTORY})
}

/// Two disks to new claims.
async fn restore_to_new_claims(cluster: &TestCluster) {
    let spec = json!({
        "source": of_directory(),
        "claimTemplate": {"size": "2Gi", "storageClassName": "fast"},
    });
    create(cluster, "back", spec).await;
    inspect(cluster, "back", json!({"data": GIB, "root": GIB})).await;
    for (index, claim) in ["back-data", "back-root"].into_iter().enumerate() {
        write(cluster, "back", &index.to_string(), true).await;
        cluster
            .wait_until("the claim is complete", async || {
                mark(cluster, claim).await["state"] == "Done"
            })
            .await;
        let claim = cluster.claims().get(claim).await.unwrap();
        assert!(claim.owner_references().is_empty(), "{claim:?}");
    }
    let status = wait_for_phase(cluster, "back", "Succeeded").await;
    assert_eq!(status["progress"], "100.0%");
    for volume in status["volumes"].as_array().unwrap() {
        assert_eq!(volume["phase"], "Succeeded", "{status}");
        assert_eq!(volume["checksums"], "Verified", "{status}");
    }
    no_pods(cluster).await;
}

#[tokio::test(start_paused = true)]
async fn disks_are_restored_to_new_claims() {
    let cluster = with_backup().await;
    restore_to_new_claims(&cluster).await;
    let claim = cluster.claims().get("back-root").await.unwrap();
    let spec = json!(claim.spec);
    assert_eq!(spec["storageClassName"], "fast");
    assert_eq!(spec["accessModes"], json!(["ReadWriteOnce"]));
    let events = cluster
        .events_of("VirtualMachineBackupRestoreComplete")
        .await;
    assert_eq!(events, 1);
    // They stay when the restore goes.
    restores(&cluster)
        .delete("back", &DeleteParams::default())
        .await
        .unwrap();
    cluster.advance(std::time::Duration::from_mins(10)).await;
    cluster.claims().get("back-root").await.unwrap();
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn pods_read_the_backup_and_write_one_claim() {
    let cluster = with_backup().await;
    let spec = json!({
        "source": of_directory(), "volumes": [{"name": "root", "claimName": "new"}],
    });
    create(&cluster, "back", spec).await;
    let spec = pod(&cluster, "back", "inspect").await.spec.unwrap();
    let arguments = json!(["inspect-backup", "--", "/source", DIRECTORY, "root"]);
    assert_eq!(json!(spec.containers[0].args), arguments);
    inspect(&cluster, "back", json!({"root": GIB})).await;
    let spec = pod(&cluster, "back", "0").await.spec.unwrap();
    let arguments = json!(spec.containers[0].args);
    let last: Vec<&Value> = arguments.as_array().unwrap().iter().rev().take(5).collect();
    assert_eq!(
        last,
        ["root", DIRECTORY, "/source", "--", "restore"],
        "{arguments}"
    );
    assert!(
        arguments.to_string().contains(&GIB.to_string()),
        "{arguments}"
    );
    let claims = json!(spec.volumes);
    let claims = claims.as_array().unwrap().iter();
    let claims: Vec<&Value> = claims
        .map(|volume| &volume["persistentVolumeClaim"])
        .filter(|claim| !claim.is_null())
        .collect();
    assert_eq!(
        claims,
        [
            &json!({"claimName": "new"}),
            &json!({"claimName": "backups", "readOnly": true}),
        ]
    );
    assert_eq!(spec.automount_service_account_token, Some(false));
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn directory_has_a_plain_name() {
    let cluster = with_backup().await;
    for directory in ["", ".a", "a/b", "a\nb", "\u{1b}a", "a\u{7f}", "a\u{85}"] {
        let spec = json!({"source": {"pvcName": "backups", "directory": directory}});
        let refused = try_create(&cluster, "back", spec).await.unwrap_err();
        let message = refused.to_string();
        assert!(message.contains("spec.source.directory"), "{message}");
    }
    let spec = json!({"source": {"pvcName": "backups", "directory": "ü b-1.x"}});
    create(&cluster, "back", spec).await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn restore_waits_for_its_backup() {
    let cluster = with_backup().await;
    create(
        &cluster,
        "back",
        json!({"source": {"backupName": "nightly"}}),
    )
    .await;
    wait_for_message(&cluster, "back", "there is no VirtualMachineBackup nightly").await;
    let backup = json!({
        "apiVersion": "backup.kubevirt.io/v1alpha1", "kind": "VirtualMachineBackup",
        "metadata": {"name": "nightly", "namespace": NAMESPACE},
        "spec": {
            "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "a"},
            "pvcName": "backups",
        },
    });
    let backup: VirtualMachineBackup = serde_json::from_value(backup).unwrap();
    let backups = Api::<VirtualMachineBackup>::namespaced(cluster.client.clone(), NAMESPACE);
    backups
        .create(&PostParams::default(), &backup)
        .await
        .unwrap();
    wait_for_message(&cluster, "back", "nightly is not complete").await;
    let done = json!({"status": {"conditions": [{
        "type": "Complete", "status": "True", "reason": "Completed",
        "message": format!("claim backups, directory {DIRECTORY} (files: 1, bytes: 7)"),
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }]}});
    let parameters = PatchParams::default();
    backups
        .patch_status("nightly", &parameters, &Patch::Merge(done))
        .await
        .unwrap();
    pod(&cluster, "back", "inspect").await;
    let found = status(&cluster, "back").await;
    assert_eq!(
        (&found["pvcName"], &found["directory"]),
        (&json!("backups"), &json!(DIRECTORY))
    );
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn backup_that_cannot_be_read_fails_its_restore() {
    let cluster = with_backup().await;
    create(&cluster, "back", json!({"source": of_directory()})).await;
    let inspector = pod(&cluster, "back", "inspect").await;
    let report = |transient: bool| json!({"reason": "BackupNotUsable", "message": "no backup.json", "transient": transient});
    end(&cluster, &inspector, 1, report(true)).await;
    wait_for_message(&cluster, "back", "no backup.json").await;
    assert_eq!(status(&cluster, "back").await["phase"], "Inspecting");
    wait_for_another(&cluster, &inspector).await;
    let inspector = pod(&cluster, "back", "inspect").await;
    assert_eq!(inspector.annotations()["ferrovirt.io/import-restarts"], "1");
    let policy = inspector.spec.as_ref().unwrap().restart_policy.as_deref();
    assert_eq!(policy, Some("Never"));
    end(&cluster, &inspector, 1, report(false)).await;
    let status = wait_for_phase(&cluster, "back", "Failed").await;
    assert_eq!(status["restarts"], 1, "{status}");
    let message = message(&status, "Failed");
    assert!(
        message.starts_with("no backup.json. Restore another"),
        "{message}"
    );
    assert_eq!(
        cluster.events_of("VirtualMachineBackupRestoreFailed").await,
        1
    );
    no_pods(&cluster).await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn failed_disk_leaves_a_claim_that_no_vm_starts_with() {
    let cluster = with_backup().await;
    create(&cluster, "back", json!({"source": of_directory()})).await;
    inspect(&cluster, "back", json!({"root": GIB})).await;
    let writer = pod(&cluster, "back", "0").await;
    cluster.create_vm_on_claim("a", "back-root").await;
    cluster
        .wait_until("the guest waits", async || {
            let vmi = cluster.vmis().get_opt("a").await.unwrap();
            json!(vmi).to_string().contains("ClaimBeingRestored")
        })
        .await;
    let report =
        json!({"reason": "BackupNotUsable", "message": "its sha256 is", "transient": false});
    end(&cluster, &writer, 1, report).await;
    let status = wait_for_phase(&cluster, "back", "Failed").await;
    let message = message(&status, "Failed");
    assert!(
        message.contains("no VM starts with them: back-root"),
        "{message}"
    );
    no_pods(&cluster).await;
    assert_eq!(mark(&cluster, "back-root").await["state"], "Writing");
    // It goes with the restore.
    restores(&cluster)
        .delete("back", &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .wait_until("the claim is gone", async || {
            cluster
                .claims()
                .get_opt("back-root")
                .await
                .unwrap()
                .is_none()
        })
        .await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn claims_of_others_are_not_taken() {
    let cluster = with_backup().await;
    cluster.create_claim("back-root").await;
    create(&cluster, "back", json!({"source": of_directory()})).await;
    inspect(&cluster, "back", json!({"root": GIB})).await;
    wait_for_message(&cluster, "back", "this restore did not create it").await;
    assert_eq!(mark(&cluster, "back-root").await, Value::Null);
    cluster
        .claims()
        .delete("back-root", &DeleteParams::default())
        .await
        .unwrap();
    write(&cluster, "back", "0", true).await;
    wait_for_phase(&cluster, "back", "Succeeded").await;
    cluster.end().await;
}

async fn wait_for_another(cluster: &TestCluster, first: &Pod) {
    cluster
        .wait_until("there is another pod", async || {
            let found = cluster.pods().get_opt(&first.name_any()).await.unwrap();
            found.is_some_and(|found| found.uid() != first.uid())
        })
        .await;
}

/// A pod that ended without its program's consent makes room for another one.
async fn restore_after_an_eviction(cluster: &TestCluster) {
    create(cluster, "back", json!({"source": of_directory()})).await;
    inspect(cluster, "back", json!({"root": GIB})).await;
    let first = pod(cluster, "back", "0").await;
    let evicted = json!({"phase": "Failed", "message": "The node had no memory"});
    cluster.set_status::<Pod>(&first.name_any(), evicted).await;
    wait_for_message(cluster, "back", "The node had no memory").await;
    wait_for_another(cluster, &first).await;
    write(cluster, "back", "0", true).await;
    let status = wait_for_phase(cluster, "back", "Succeeded").await;
    assert_eq!(status["volumes"][0]["restarts"], 1, "{status}");
    no_pods(cluster).await;
}

#[tokio::test(start_paused = true)]
async fn evicted_pod_is_replaced() {
    let cluster = with_backup().await;
    restore_after_an_eviction(&cluster).await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn restores_survive_a_crash_of_the_controllers_at_every_failpoint() {
    let names = ::failpoints::NAMES.lines();
    for name in names.filter(|name| name.starts_with("virt-controller/backup-restore/")) {
        let mut cluster = with_backup().await;
        cluster.crash_after(name);
        if name.ends_with("/release-claim") {
            release(&cluster).await;
        } else if [
            "reserve-claim",
            "mark-claim",
            "add-finalizer",
            "remove-finalizer",
        ]
        .iter()
        .any(|step| name.ends_with(step))
        {
            overwrite(&cluster).await;
        } else {
            restore_to_new_claims(&cluster).await;
        }
        cluster
            .wait_until(&format!("{name} is reached"), async || {
                !cluster.is_crash_pending()
            })
            .await;
        cluster.end().await;
    }
    let mut cluster = with_backup().await;
    cluster.crash_after("virt-controller/backup-restore/delete-pod");
    restore_after_an_eviction(&cluster).await;
    assert!(!cluster.is_crash_pending());
    cluster.end().await;
}
