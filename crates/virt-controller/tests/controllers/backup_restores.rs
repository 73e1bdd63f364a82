//! Restores of backups, with the part of the kubelet and of the pods' programs played by the test.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use kubevirt_api::backup::VirtualMachineBackup;
use kubevirt_api::backup_restore::VirtualMachineBackupRestore;
use serde_json::{Value, json};

use super::cluster::{NAMESPACE, TestCluster};

const DIRECTORY: &str = "wiki-20260102-030405";
const MARK: &str = "ferrovirt.io/backup-restore";
const GIB: u64 = 1 << 30;

fn restores(cluster: &TestCluster) -> Api<VirtualMachineBackupRestore> {
    Api::namespaced(cluster.client.clone(), NAMESPACE)
}

async fn create(cluster: &TestCluster, name: &str, spec: Value) {
    let object = json!({
        "apiVersion": "backup.ferrovirt.io/v1alpha1", "kind": "VirtualMachineBackupRestore",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    });
    let object: VirtualMachineBackupRestore = serde_json::from_value(object).unwrap();
    let parameters = PostParams::default();
    restores(cluster)
        .create(&parameters, &object)
        .await
        .unwrap();
}

async fn status(cluster: &TestCluster, name: &str) -> Value {
    json!(restores(cluster).get(name).await.unwrap().status)
}

async fn wait_for_phase(cluster: &TestCluster, name: &str, phase: &str) -> Value {
    cluster
        .wait_until(&format!("{name} is {phase}"), async || {
            status(cluster, name).await["phase"] == phase
        })
        .await;
    status(cluster, name).await
}

/// The message of the condition that is true.
fn message(status: &Value, kind: &str) -> String {
    let mut all = status["conditions"].as_array().into_iter().flatten();
    let found = all.find(|one| one["type"] == kind && one["status"] == "True");
    let found = found.unwrap_or_else(|| panic!("no {kind}: {status}"));
    found["message"].as_str().unwrap().to_owned()
}

async fn wait_for_message(cluster: &TestCluster, name: &str, part: &str) {
    cluster
        .wait_until(&format!("{name} says {part}"), async || {
            let status = status(cluster, name).await;
            let mut all = status["conditions"].as_array().into_iter().flatten();
            all.any(|one| one["message"].as_str().unwrap().contains(part))
        })
        .await;
}

async fn pod(cluster: &TestCluster, name: &str, kind: &str) -> Pod {
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
async fn end(cluster: &TestCluster, pod: &Pod, code: i32, report: Value) {
    let once = pod.spec.as_ref().unwrap().restart_policy.as_deref() == Some("Never");
    let phase = match code {
        0 => "Succeeded",
        _ if once => "Failed",
        _ => "Running",
    };
    let status = json!({"phase": phase, "containerStatuses": [{
        "name": "importer", "ready": false, "image": "launcher:1", "imageID": "", "restartCount": 0,
        "state": {"terminated": {
            "exitCode": code, "finishedAt": "2026-11-21T12:00:00Z", "message": report.to_string(),
        }},
    }]});
    cluster.set_status::<Pod>(&pod.name_any(), status).await;
}

async fn inspect(cluster: &TestCluster, name: &str, volumes: Value) {
    let pod = pod(cluster, name, "inspect").await;
    end(cluster, &pod, 0, json!({"message": "", "volumes": volumes})).await;
}

async fn write(cluster: &TestCluster, name: &str, index: &str, verified: bool) {
    let pod = pod(cluster, name, index).await;
    let report = json!({"message": "", "diskBytes": GIB, "verified": verified});
    end(cluster, &pod, 0, report).await;
}

async fn mark(cluster: &TestCluster, claim: &str) -> Value {
    let claim = cluster.claims().get(claim).await.unwrap();
    let mark = claim.annotations().get(MARK);
    mark.map_or(Value::Null, |mark| serde_json::from_str(mark).unwrap())
}

async fn no_pods(cluster: &TestCluster) {
    cluster
        .wait_until("no pod is left", async || {
            let all = cluster.pods().list(&ListParams::default()).await.unwrap();
            all.items.is_empty()
        })
        .await;
}

async fn with_backup() -> TestCluster {
    let cluster = TestCluster::new().await;
    cluster.create_claim("backups").await;
    cluster
}

fn of_directory() -> Value {
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

/// The disk of a stopped VM.
async fn overwrite(cluster: &TestCluster) {
    cluster.create_claim("root").await;
    let spec = json!({
        "source": of_directory(), "targetPolicy": "Overwrite",
        "volumes": [{"name": "root", "claimName": "root"}],
    });
    create(cluster, "back", spec).await;
    inspect(cluster, "back", json!({"root": GIB})).await;
    write(cluster, "back", "0", false).await;
    let status = wait_for_phase(cluster, "back", "Succeeded").await;
    assert_eq!(status["volumes"][0]["checksums"], "Missing", "{status}");
    let message = message(&status, "Complete");
    assert!(
        message.contains("has no checksums for all files of: root"),
        "{message}"
    );
    assert_eq!(mark(cluster, "root").await["state"], "Done");
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
    end(&cluster, &inspector, 1, report(false)).await;
    let status = wait_for_phase(&cluster, "back", "Failed").await;
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
async fn claim_of_a_running_vm_is_not_overwritten() {
    let cluster = with_backup().await;
    cluster.create_claim("root").await;
    cluster.create_vm_on_claim("a", "root").await;
    cluster.wait_for_printable("a", "Running").await;
    let spec = json!({
        "source": of_directory(), "targetPolicy": "Overwrite",
        "volumes": [{"name": "root", "claimName": "root"}],
    });
    create(&cluster, "back", spec).await;
    inspect(&cluster, "back", json!({"root": GIB})).await;
    wait_for_message(&cluster, "back", "root is in use by pod virt-launcher-a").await;
    assert_eq!(mark(&cluster, "root").await, Value::Null);
    let halted = json!({"spec": {"runStrategy": "Halted"}});
    cluster.patch_vm("a", halted).await;
    cluster
        .wait_until("the guest is gone", async || {
            cluster.vmis().get_opt("a").await.unwrap().is_none()
        })
        .await;
    pod(&cluster, "back", "0").await;
    assert_eq!(mark(&cluster, "root").await["state"], "Writing");
    // Started meanwhile, it waits for the disk.
    cluster
        .patch_vm("a", json!({"spec": {"runStrategy": "Always"}}))
        .await;
    cluster
        .wait_until("the guest waits", async || {
            let vmi = cluster.vmis().get_opt("a").await.unwrap();
            json!(vmi).to_string().contains("ClaimBeingRestored")
        })
        .await;
    write(&cluster, "back", "0", true).await;
    wait_for_phase(&cluster, "back", "Succeeded").await;
    cluster.wait_for_printable("a", "Running").await;
    cluster.end().await;
}

/// The pod that looks reads everything, and the pod that writes says what it has left.
#[tokio::test(start_paused = true)]
async fn claim_that_was_not_touched_is_given_back() {
    let cluster = with_backup().await;
    cluster.create_claim("root").await;
    let spec = json!({
        "source": of_directory(), "targetPolicy": "Overwrite",
        "volumes": [{"name": "root", "claimName": "root"}],
    });
    create(&cluster, "back", spec).await;
    let spec = pod(&cluster, "back", "inspect").await.spec.unwrap();
    let arguments = json!([
        "inspect-backup",
        "--verify",
        "--",
        "/source",
        DIRECTORY,
        "root"
    ]);
    assert_eq!(json!(spec.containers[0].args), arguments);
    inspect(&cluster, "back", json!({"root": GIB})).await;
    let writer = pod(&cluster, "back", "0").await;
    assert_eq!(mark(&cluster, "root").await["state"], "Writing");
    let report = json!({"reason": "BackupNotUsable", "message": "its sha256 is", "isIntact": true});
    end(&cluster, &writer, 1, report).await;
    let status = wait_for_phase(&cluster, "back", "Failed").await;
    let message = message(&status, "Failed");
    assert!(!message.contains("no VM starts"), "{message}");
    no_pods(&cluster).await;
    assert_eq!(mark(&cluster, "root").await, Value::Null);
    cluster.create_vm_on_claim("a", "root").await;
    cluster.wait_for_printable("a", "Running").await;
    cluster.end().await;
}

/// A restore whose disk is complete leaves it to the next one, however long its other disks take.
#[tokio::test(start_paused = true)]
async fn finished_pod_of_one_restore_does_not_complete_the_disk_of_another() {
    let cluster = with_backup().await;
    for claim in ["root", "data"] {
        cluster.create_claim(claim).await;
    }
    let volume = |name: &str| json!({"name": name, "claimName": name});
    let spec = |volumes: Vec<Value>| {
        json!({
            "source": of_directory(), "targetPolicy": "Overwrite", "volumes": volumes,
        })
    };
    create(
        &cluster,
        "first",
        spec(vec![volume("root"), volume("data")]),
    )
    .await;
    inspect(&cluster, "first", json!({"data": GIB, "root": GIB})).await;
    pod(&cluster, "first", "1").await;
    write(&cluster, "first", "0", true).await;
    cluster
        .wait_until("the disk is on record", async || {
            status(&cluster, "first").await["volumes"][0]["phase"] == "Succeeded"
        })
        .await;
    create(&cluster, "second", spec(vec![volume("data")])).await;
    inspect(&cluster, "second", json!({"data": GIB})).await;
    pod(&cluster, "second", "0").await;
    cluster.advance(std::time::Duration::from_mins(10)).await;
    let found = mark(&cluster, "data").await;
    assert_eq!(
        (&found["name"], &found["state"]),
        (&json!("second"), &json!("Writing"))
    );
    write(&cluster, "first", "1", true).await;
    wait_for_phase(&cluster, "first", "Succeeded").await;
    let found = mark(&cluster, "data").await;
    assert_eq!(
        (&found["name"], &found["state"]),
        (&json!("second"), &json!("Writing"))
    );
    write(&cluster, "second", "0", true).await;
    wait_for_phase(&cluster, "second", "Succeeded").await;
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

#[tokio::test(start_paused = true)]
async fn next_restore_completes_what_a_deleted_one_has_left() {
    let cluster = with_backup().await;
    cluster.create_claim("root").await;
    let spec = json!({
        "source": of_directory(), "targetPolicy": "Overwrite",
        "volumes": [{"name": "root", "claimName": "root"}],
    });
    create(&cluster, "first", spec.clone()).await;
    inspect(&cluster, "first", json!({"root": GIB})).await;
    pod(&cluster, "first", "0").await;
    create(&cluster, "second", spec).await;
    inspect(&cluster, "second", json!({"root": GIB})).await;
    wait_for_message(&cluster, "second", "is in use by pod backup-restore-").await;
    restores(&cluster)
        .delete("first", &DeleteParams::default())
        .await
        .unwrap();
    write(&cluster, "second", "0", true).await;
    wait_for_phase(&cluster, "second", "Succeeded").await;
    assert_eq!(mark(&cluster, "root").await["name"], "second");
    cluster.end().await;
}

/// A claim that something began to use between two steps gets its mark taken back.
async fn release(cluster: &TestCluster) {
    cluster.create_claim("root").await;
    cluster.create_vm_on_claim("a", "root").await;
    cluster.wait_for_printable("a", "Running").await;
    let spec = json!({
        "source": of_directory(), "targetPolicy": "Overwrite",
        "volumes": [{"name": "root", "claimName": "root"}],
    });
    create(cluster, "back", spec).await;
    inspect(cluster, "back", json!({"root": GIB})).await;
    wait_for_message(cluster, "back", "root is in use by").await;
    let uid = restores(cluster).get("back").await.unwrap().uid();
    let reserved = json!({"name": "back", "uid": uid, "state": "Reserved"}).to_string();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {MARK: reserved}}}));
    let claims = cluster.claims();
    claims
        .patch("root", &PatchParams::default(), &patch)
        .await
        .unwrap();
    cluster
        .wait_until("the mark is taken back", async || {
            mark(cluster, "root").await.is_null()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn claim_that_is_used_after_all_gets_its_mark_taken_back() {
    let cluster = with_backup().await;
    release(&cluster).await;
    cluster.end().await;
}

/// A pod that ended without its program's consent makes room for another one.
async fn restore_after_an_eviction(cluster: &TestCluster) {
    create(cluster, "back", json!({"source": of_directory()})).await;
    inspect(cluster, "back", json!({"root": GIB})).await;
    let first = pod(cluster, "back", "0").await;
    let evicted = json!({"phase": "Failed", "message": "The node had no memory"});
    cluster.set_status::<Pod>(&first.name_any(), evicted).await;
    wait_for_message(cluster, "back", "The node had no memory").await;
    cluster
        .wait_until("there is another pod", async || {
            let found = cluster.pods().get_opt(&first.name_any()).await.unwrap();
            found.is_some_and(|found| found.uid() != first.uid())
        })
        .await;
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
        } else if name.ends_with("/reserve-claim") || name.ends_with("/mark-claim") {
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

#[tokio::test(start_paused = true)]
async fn existing_claim_is_overwritten() {
    let cluster = with_backup().await;
    overwrite(&cluster).await;
    cluster.end().await;
}
