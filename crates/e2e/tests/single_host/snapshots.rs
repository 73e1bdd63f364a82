//! Snapshots of a running guest, and restores.

use e2e::{Console, claim, tiny_vm, wait_for};
use serde_json::{Value, json};

use crate::{TestNamespace, test_namespace};

const GROUP: &str = "snapshot.kubevirt.io";

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1beta1"), "kind": kind,
        "metadata": {"name": name}, "spec": spec,
    })
}

fn vm(name: &str) -> Value {
    json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name})
}

/// Waits until the object has a condition with status True.
async fn becomes(test: &TestNamespace, kind: &str, name: &str, condition: &str) -> Value {
    let api = test.objects(GROUP, "v1beta1", kind);
    let is_there = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array();
        let mut all = conditions.into_iter().flatten();
        all.any(|one| one["type"] == condition && one["status"] == "True")
    };
    wait_for(&api, name, condition, is_there).await
}

/// Counts on both disks, first on the one, then on the other.
const COUNT: &str = "(i=0; while true; do i=$((i+1)); for d in vdc vdd; do echo $i | \
                     dd of=/dev/$d bs=512 seek=64 count=1 conv=sync,notrunc,fsync 2>/dev/null; \
                     done; done) &\n";

/// The last number on a disk.
async fn number(console: &mut Console, disk: &str) -> u64 {
    let read = format!("dd if=/dev/{disk} bs=512 skip=64 count=1 2>/dev/null | head -n 1");
    let shown = console.shell(&read).await;
    let number = shown.lines().next_back().unwrap_or_default().trim();
    let parsed = number.parse();
    parsed.unwrap_or_else(|_| panic!("disk {disk} has no number: {shown:?}"))
}

/// Waits until the guest has counted on.
async fn counts_beyond(console: &mut Console, last: u64) -> u64 {
    loop {
        let now = number(console, "vdd").await;
        if now > last {
            return now;
        }
    }
}

#[tokio::test]
async fn restored_guest_has_the_data_of_its_snapshot() {
    let test = test_namespace().await;
    let mut keeper = tiny_vm("keeper");
    for (name, mode) in [("data", "Filesystem"), ("raw", "Block")] {
        test.apply_object(&claim(name, mode)).await;
        let disk = json!({"name": name, "disk": {"bus": "virtio"}});
        let volume = json!({"persistentVolumeClaim": {"claimName": name}});
        keeper = keeper.disk_as(&disk, &volume);
    }
    test.apply(&keeper).await;
    let mut console = test.shell("keeper").await;
    console.send(COUNT).await;
    console.shell("sleep 1").await;
    let before = number(&mut console, "vdd").await;
    let spec = json!({"source": vm("keeper")});
    let snapshot = object("VirtualMachineSnapshot", "nightly", &spec);
    test.apply_object(&snapshot).await;
    let snapshot = becomes(&test, "VirtualMachineSnapshot", "nightly", "Ready").await;
    assert_eq!(snapshot["status"]["phase"], "Succeeded");
    let included = &snapshot["status"]["snapshotVolumes"]["includedVolumes"];
    assert_eq!(*included, json!(["data", "raw"]));
    // The guest goes on.
    let after = number(&mut console, "vdd").await;
    let after = counts_beyond(&mut console, after).await;
    let first = test.wait_vmi_phase("keeper", "Running").await;
    let restore = |name: &str, policy: &str| {
        let spec = json!({
            "target": vm("keeper"), "virtualMachineSnapshotName": "nightly",
            "targetReadinessPolicy": policy,
        });
        object("VirtualMachineRestore", name, &spec)
    };
    // A running VM keeps its disks unless the restore may stop it.
    test.apply_object(&restore("refused", "FailImmediate"))
        .await;
    let refused = becomes(&test, "VirtualMachineRestore", "refused", "Failure").await;
    let conditions = refused["status"]["conditions"].to_string();
    assert!(conditions.contains("RestoreTargetFailed"), "{conditions}");
    let later = counts_beyond(&mut console, after).await;
    // As long as it is there, others are refused.
    let delete = ["delete", "virtualmachinerestore", "refused"];
    test.kubectl(&delete).await.success();
    test.apply_object(&restore("undo", "StopTarget")).await;
    becomes(&test, "VirtualMachineRestore", "undo", "Ready").await;
    test.virtctl(&["start", "keeper"]).await.success();
    test.wait_new_vmi("keeper", &first).await;
    let mut console = test.shell("keeper").await;
    let data = number(&mut console, "vdc").await;
    let raw = number(&mut console, "vdd").await;
    // Both disks are of one moment, which was that of the snapshot.
    assert!(data == raw || data == raw + 1, "{data} {raw}");
    assert!(
        (before..=after).contains(&raw),
        "{before} {raw} {after} {later}"
    );
}
