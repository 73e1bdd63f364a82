//! Disk images that users upload with virtctl.

use e2e::{VmManifest, images, tiny_vm, wait_for};
use serde_json::{Value, json};

use crate::{TestNamespace, test_namespace};

fn tiny_image() -> String {
    let path = images().join("guest-tiny.qcow2");
    path.to_str().expect("a path of text").to_owned()
}

/// A tiny guest whose first disk is a claim.
fn guest_on(name: &str, claim: &str) -> VmManifest {
    let claim = json!({"claimName": claim});
    let source = json!({"name": "root", "persistentVolumeClaim": claim});
    tiny_vm(name).set("/spec/template/spec/volumes/0", source)
}

async fn claim(test: &TestNamespace, name: &str) -> Value {
    let found = test.kubectl(&["get", "pvc", name, "-o", "json"]).await;
    serde_json::from_str(&found.success()).expect("JSON")
}

async fn wait_no_upload_pod(test: &TestNamespace) {
    let pods = test.objects("", "v1", "Pod");
    for (name, _) in test.pod_list().await {
        if name.starts_with("upload-") {
            test.wait_gone(&pods, &name).await;
        }
    }
}

#[tokio::test]
async fn guest_boots_from_an_uploaded_image() {
    let test = test_namespace().await;
    let image = tiny_image();
    test.virtctl(&[
        "image-upload",
        "dv",
        "disk",
        "--image-path",
        &image,
        "--size",
        "128Mi",
        "--force-bind",
    ])
    .await
    .success();
    let volumes = test.objects("cdi.kubevirt.io", "v1beta1", "DataVolume");
    wait_for(&volumes, "disk", "Succeeded", |volume| {
        volume["status"]["phase"] == "Succeeded"
    })
    .await;
    let notes = claim(&test, "disk").await["metadata"]["annotations"].clone();
    assert_eq!(notes["cdi.kubevirt.io/storage.populatedFor"], "disk");
    wait_no_upload_pod(&test).await;
    test.apply(&guest_on("guest", "disk")).await;
    test.greeting("guest").await;
    test.delete_vms(&["guest"]).await;
}

#[tokio::test]
async fn unusable_image_is_refused_and_the_claim_takes_another() {
    let test = test_namespace().await;
    let folder = tempfile::tempdir().expect("a directory");
    let wrong = folder.path().join("wrong.qcow2");
    let mut bytes = std::fs::read(tiny_image()).expect("read the tiny guest");
    bytes.truncate(bytes.len() / 2);
    std::fs::write(&wrong, bytes).expect("write half of it");
    let wrong = wrong.to_str().expect("a path of text");
    let upload = ["image-upload", "pvc", "disk", "--image-path"];
    let first = [&upload[..], &[wrong, "--size", "128Mi", "--force-bind"]].concat();
    let message = test.virtctl(&first).await.failure();
    assert!(message.contains("the image is damaged"), "{message}");
    let phase = "cdi.kubevirt.io/storage.pod.phase";
    let notes = claim(&test, "disk").await["metadata"]["annotations"].clone();
    assert_eq!(notes[phase], "Running");
    let image = tiny_image();
    let second = [&upload[..], &[&image, "--no-create"]].concat();
    test.virtctl(&second).await.success();
    test.apply(&guest_on("guest", "disk")).await;
    test.greeting("guest").await;
    test.delete_vms(&["guest"]).await;
    // A claim that has its disk receives no other one.
    let message = test.virtctl(&second).await.failure();
    assert!(message.contains("its data is there already"), "{message}");
}
