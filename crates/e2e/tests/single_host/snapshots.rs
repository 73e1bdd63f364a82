//! Snapshots of a running guest, and restores.

use e2e::{claim, tiny_vm, wait_for};
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

async fn is_ready(test: &TestNamespace, kind: &str, name: &str) -> Value {
    let api = test.objects(GROUP, "v1beta1", kind);
    let is_ready = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array();
        let mut all = conditions.into_iter().flatten();
        all.any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    wait_for(&api, name, "ready", is_ready).await
}

fn write(disk: &str, text: &str) -> String {
    format!("echo {text} | dd of=/dev/{disk} bs=512 seek=64 conv=notrunc,fsync 2>&1")
}

fn read(disk: &str) -> String {
    format!("dd if=/dev/{disk} bs=512 skip=64 count=1 2>/dev/null | head -n 1")
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
    for disk in ["vdc", "vdd"] {
        console.shell(&write(disk, "before")).await;
    }
    let spec = json!({"source": vm("keeper")});
    let snapshot = object("VirtualMachineSnapshot", "nightly", &spec);
    test.apply_object(&snapshot).await;
    let snapshot = is_ready(&test, "VirtualMachineSnapshot", "nightly").await;
    assert_eq!(snapshot["status"]["phase"], "Succeeded");
    let included = &snapshot["status"]["snapshotVolumes"]["includedVolumes"];
    assert_eq!(*included, json!(["data", "raw"]));
    // The guest goes on.
    for disk in ["vdc", "vdd"] {
        console.shell(&write(disk, "after")).await;
        assert_eq!(console.shell(&read(disk)).await, "after");
    }
    let first = test.wait_vmi_phase("keeper", "Running").await;
    let spec = json!({
        "target": vm("keeper"), "virtualMachineSnapshotName": "nightly",
        "targetReadinessPolicy": "StopTarget",
    });
    let restore = object("VirtualMachineRestore", "undo", &spec);
    test.apply_object(&restore).await;
    is_ready(&test, "VirtualMachineRestore", "undo").await;
    test.virtctl(&["start", "keeper"]).await.success();
    test.wait_new_vmi("keeper", &first).await;
    let mut console = test.shell("keeper").await;
    for disk in ["vdc", "vdd"] {
        assert_eq!(console.shell(&read(disk)).await, "before", "{disk}");
    }
}
