//! Clones of VMs with disks.

use e2e::{claim, tiny_vm, wait_for};
use serde_json::{Value, json};

use crate::test_namespace;

const MAC: &str = "02:00:00:00:0c:01";

/// A firmware with an identity, as admission leaves it.
fn identity(vm: &Value) -> (String, String) {
    let firmware = &vm["spec"]["template"]["spec"]["domain"]["firmware"];
    let text = |field: &str| firmware[field].as_str().unwrap_or_default().to_owned();
    (text("uuid"), text("serial"))
}

#[tokio::test]
async fn clone_boots_with_the_data_and_another_identity() {
    let test = test_namespace().await;
    test.apply_object(&claim("data", "Filesystem")).await;
    let disk = json!({"name": "data", "disk": {"bus": "virtio"}});
    let volume = json!({"persistentVolumeClaim": {"claimName": "data"}});
    let interfaces = json!([{"name": "default", "masquerade": {}, "macAddress": MAC}]);
    let source = tiny_vm("dolly")
        .disk_as(&disk, &volume)
        .device("interfaces", interfaces);
    test.apply(&source).await;
    let mut console = test.shell("dolly").await;
    console
        .shell("echo wool | dd of=/dev/vdc bs=512 conv=sync,notrunc,fsync 2>/dev/null")
        .await;
    let address = console.shell("cat /sys/class/net/eth0/address").await;
    assert!(address.contains(MAC), "{address}");
    let vm =
        |name: &str| json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name});
    let clone = json!({
        "apiVersion": "clone.kubevirt.io/v1beta1", "kind": "VirtualMachineClone",
        "metadata": {"name": "copy"},
        "spec": {"source": vm("dolly"), "target": vm("polly")},
    });
    test.apply_object(&clone).await;
    let clones = test.objects("clone.kubevirt.io", "v1beta1", "VirtualMachineClone");
    let phase = |phase: &'static str| move |clone: &Value| clone["status"]["phase"] == phase;
    let done = wait_for(&clones, "copy", "Succeeded", phase("Succeeded")).await;
    assert_eq!(done["status"]["targetName"], "polly");
    let (dolly, polly) = (
        wait_for(&test.vms(), "dolly", "dolly", |_| true).await,
        wait_for(&test.vms(), "polly", "polly", |_| true).await,
    );
    let ((uuid, serial), (other_uuid, other_serial)) = (identity(&dolly), identity(&polly));
    assert!(!other_uuid.is_empty() && other_uuid != uuid, "{other_uuid}");
    assert!(
        !other_serial.is_empty() && other_serial != serial,
        "{other_serial}"
    );
    test.virtctl(&["start", "polly"]).await.success();
    let mut console = test.shell("polly").await;
    let data = console
        .shell("dd if=/dev/vdc bs=512 count=1 2>/dev/null | head -n 1")
        .await;
    assert!(data.contains("wool"), "{data}");
    let address = console.shell("cat /sys/class/net/eth0/address").await;
    assert!(address.contains(':') && !address.contains(MAC), "{address}");
    // The claim has its data now: snapshot and restore are deleted.
    let released = |clone: &Value| {
        clone["status"]["snapshotName"].is_null() && clone["status"]["restoreName"].is_null()
    };
    wait_for(&clones, "copy", "its helpers are deleted", released).await;
    for (kind, field) in [
        ("VirtualMachineSnapshot", "snapshotName"),
        ("VirtualMachineRestore", "restoreName"),
    ] {
        let name = done["status"][field]
            .as_str()
            .expect("the name of a helper");
        let helpers = test.objects("snapshot.kubevirt.io", "v1beta1", kind);
        test.wait_gone(&helpers, name).await;
    }
    test.delete_vms(&["polly"]).await;
    test.wait_gone(&clones, "copy").await;
}
