//! Restores of backups that overwrite claims: of stopped VMs, all or none.

use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use kubevirt_api::VirtualMachine;
use serde_json::{Value, json};

use super::backup_restores::{
    DIRECTORY, GIB, MARK, create, end, inspect, mark, message, no_pods, of_directory, pod,
    restores, status, wait_for_message, wait_for_phase, with_backup, write,
};
use super::cluster::TestCluster;

fn overwrites(volumes: &[&str]) -> Value {
    let volumes = volumes.iter();
    let volumes: Vec<Value> = volumes
        .map(|name| json!({"name": name, "claimName": name}))
        .collect();
    json!({"source": of_directory(), "targetPolicy": "Overwrite", "volumes": volumes})
}

async fn delete(cluster: &TestCluster, name: &str) {
    let now = DeleteParams::default();
    restores(cluster).delete(name, &now).await.unwrap();
}

async fn wait_for_mark(cluster: &TestCluster, claim: &str, state: &str) {
    cluster
        .wait_until(&format!("{claim} is {state}"), async || {
            mark(cluster, claim).await["state"] == state
        })
        .await;
}

/// No claim is even reserved while another cannot be.
#[tokio::test(start_paused = true)]
async fn claims_are_overwritten_together() {
    let cluster = with_backup().await;
    for claim in ["data", "root"] {
        cluster.create_claim(claim).await;
    }
    cluster.create_vm_on_claim("a", "root").await;
    cluster.wait_for_printable("a", "Running").await;
    create(&cluster, "back", overwrites(&["data", "root"])).await;
    inspect(&cluster, "back", json!({"data": GIB, "root": GIB})).await;
    wait_for_message(&cluster, "back", "root is in use by pod virt-launcher-a").await;
    cluster.advance(Duration::from_mins(1)).await;
    assert_eq!(mark(&cluster, "data").await, Value::Null);
    let halted = json!({"spec": {"runStrategy": "Halted"}});
    cluster.patch_vm("a", halted).await;
    for claim in ["data", "root"] {
        wait_for_mark(&cluster, claim, "Writing").await;
    }
    // What starts meanwhile waits for the disks, and the disks not for it.
    let always = json!({"spec": {"runStrategy": "Always"}});
    cluster.patch_vm("a", always).await;
    for index in ["0", "1"] {
        write(&cluster, "back", index, true).await;
    }
    wait_for_phase(&cluster, "back", "Succeeded").await;
    cluster.wait_for_printable("a", "Running").await;
    cluster.end().await;
}

/// More disks than are written at once: the last one is only reserved.
#[tokio::test(start_paused = true)]
async fn deleted_restore_gives_reserved_claims_back() {
    let cluster = with_backup().await;
    let claims = ["a", "b", "c", "d", "root"];
    for claim in claims {
        cluster.create_claim(claim).await;
    }
    create(&cluster, "back", overwrites(&claims)).await;
    let volumes = json!({"a": GIB, "b": GIB, "c": GIB, "d": GIB, "root": GIB});
    inspect(&cluster, "back", volumes).await;
    pod(&cluster, "back", "3").await;
    // A VM that waits for a reserved claim does not stop its restore.
    cluster.create_vm_on_claim("vm", "root").await;
    cluster.advance(Duration::from_mins(1)).await;
    assert_eq!(mark(&cluster, "root").await["state"], "Reserved");
    delete(&cluster, "back").await;
    cluster
        .wait_until("the restore is gone", async || {
            let found = restores(&cluster).get_opt("back").await.unwrap();
            found.is_none()
        })
        .await;
    assert_eq!(mark(&cluster, "root").await, Value::Null);
    assert_eq!(mark(&cluster, "d").await["state"], "Writing");
    cluster.wait_for_printable("vm", "Running").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn disk_is_completed_when_the_backup_is_gone() {
    let cluster = with_backup().await;
    cluster.create_claim("root").await;
    create(&cluster, "back", overwrites(&["root"])).await;
    inspect(&cluster, "back", json!({"root": GIB})).await;
    pod(&cluster, "back", "0").await;
    let now = DeleteParams::default();
    cluster.claims().delete("backups", &now).await.unwrap();
    write(&cluster, "back", "0", true).await;
    wait_for_phase(&cluster, "back", "Succeeded").await;
    assert_eq!(mark(&cluster, "root").await["state"], "Done");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn claim_that_is_being_copied_is_not_overwritten() {
    let cluster = with_backup().await;
    cluster.create_claim("root").await;
    cluster.create_vm_on_claim("a", "root").await;
    let halted = json!({"spec": {"runStrategy": "Halted"}});
    cluster.patch_vm("a", halted).await;
    cluster.wait_for_printable("a", "Stopped").await;
    let lock = json!({"snapshotInProgress": "s"});
    cluster.set_status::<VirtualMachine>("a", lock).await;
    create(&cluster, "back", overwrites(&["root"])).await;
    inspect(&cluster, "back", json!({"root": GIB})).await;
    let expected = "root is in use by VirtualMachineSnapshot s of VM a";
    wait_for_message(&cluster, "back", expected).await;
    assert_eq!(mark(&cluster, "root").await, Value::Null);
    let free = json!({"snapshotInProgress": null});
    cluster.set_status::<VirtualMachine>("a", free).await;
    wait_for_mark(&cluster, "root", "Writing").await;
    cluster.end().await;
}

/// The disk of a stopped VM.
pub(super) async fn overwrite(cluster: &TestCluster) {
    cluster.create_claim("root").await;
    let spec = overwrites(&["root"]);
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
async fn claim_of_a_running_vm_is_not_overwritten() {
    let cluster = with_backup().await;
    cluster.create_claim("root").await;
    cluster.create_vm_on_claim("a", "root").await;
    cluster.wait_for_printable("a", "Running").await;
    let spec = overwrites(&["root"]);
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
    let spec = overwrites(&["root"]);
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
    cluster.advance(Duration::from_mins(10)).await;
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
async fn next_restore_completes_what_a_deleted_one_has_left() {
    let cluster = with_backup().await;
    cluster.create_claim("root").await;
    let spec = overwrites(&["root"]);
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

/// Also of one whose backup was not inspected yet, and by none of its claims: else a VM could get one disk of each.
#[tokio::test(start_paused = true)]
async fn later_restore_waits_as_a_whole() {
    let cluster = with_backup().await;
    for claim in ["data", "root", "more"] {
        cluster.create_claim(claim).await;
    }
    create(&cluster, "first", overwrites(&["data", "root"])).await;
    cluster.advance(Duration::from_secs(2)).await;
    create(&cluster, "second", overwrites(&["root", "more"])).await;
    inspect(&cluster, "second", json!({"more": GIB, "root": GIB})).await;
    let expected = "VirtualMachineBackupRestore first writes to claims of this restore first";
    wait_for_message(&cluster, "second", expected).await;
    cluster.advance(Duration::from_mins(1)).await;
    for claim in ["root", "more"] {
        assert_eq!(mark(&cluster, claim).await, Value::Null, "{claim}");
    }
    inspect(&cluster, "first", json!({"data": GIB, "root": GIB})).await;
    for restore in ["first", "second"] {
        for index in ["0", "1"] {
            write(&cluster, restore, index, true).await;
        }
        wait_for_phase(&cluster, restore, "Succeeded").await;
    }
    for (claim, expected) in [("data", "first"), ("root", "second"), ("more", "second")] {
        let mark = mark(&cluster, claim).await;
        assert_eq!(
            (&mark["name"], &mark["state"]),
            (&json!(expected), &json!("Done"))
        );
    }
    cluster.end().await;
}

/// A claim that something began to use between two steps gets its mark taken back.
pub(super) async fn release(cluster: &TestCluster) {
    cluster.create_claim("root").await;
    cluster.create_vm_on_claim("a", "root").await;
    cluster.wait_for_printable("a", "Running").await;
    let spec = overwrites(&["root"]);
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

#[tokio::test(start_paused = true)]
async fn existing_claim_is_overwritten() {
    let cluster = with_backup().await;
    overwrite(&cluster).await;
    cluster.end().await;
}
