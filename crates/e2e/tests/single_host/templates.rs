//! Templates of VMs.

use e2e::{claim, tiny_vm, wait_for};
use serde_json::{Value, json};

use crate::test_namespace;

/// Its disks are copied twice: for the template through an export, and for the VM of the template.
#[tokio::test]
async fn vm_of_a_template_has_the_data_of_a_vm_in_another_namespace() {
    let images = test_namespace().await;
    let test = images.beside().await;
    images.apply_object(&claim("data", "Filesystem")).await;
    let disk = json!({"name": "data", "disk": {"bus": "virtio"}});
    let volume = json!({"persistentVolumeClaim": {"claimName": "data"}});
    images
        .apply(&tiny_vm("golden").disk_as(&disk, &volume))
        .await;
    let mut console = images.shell("golden").await;
    console
        .shell("echo wool | dd of=/dev/vdc bs=512 conv=sync,notrunc,fsync 2>/dev/null")
        .await;
    drop(console);

    let of = images.namespace.as_str();
    let create = ["template", "create", "--name", "golden"];
    let source = ["--vm-name", "golden", "--vm-namespace", of];
    test.virtctl(&[&create[..], &source].concat())
        .await
        .success();
    let requests = test.objects(
        "template.kubevirt.io",
        "v1beta1",
        "VirtualMachineTemplateRequest",
    );
    let is_ready = |request: &Value| {
        let all = request["status"]["conditions"].as_array();
        let mut all = all.into_iter().flatten();
        all.any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    let done = wait_for(&requests, "golden", "Ready", is_ready).await;
    // The VM in the other namespace is left as it was.
    let uid = done["metadata"]["uid"].as_str().expect("it has a UID");
    let snapshots = images.objects("snapshot.kubevirt.io", "v1beta1", "VirtualMachineSnapshot");
    images
        .wait_gone(&snapshots, &format!("tmp-template-{uid}"))
        .await;
    images.wait_vm_status("golden", "Running").await;

    let process = ["template", "process", "golden", "--create"];
    test.virtctl(&[&process[..], &["-p", "NAME=woolly"]].concat())
        .await
        .success();
    let mut console = test.shell("woolly").await;
    let data = console
        .shell("dd if=/dev/vdc bs=512 count=1 2>/dev/null | head -n 1")
        .await;
    assert!(data.contains("wool"), "{data}");
    test.delete_vms(&["woolly"]).await;
}
