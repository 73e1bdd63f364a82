//! Invalid VMs are refused with one message that names the field, and nothing is changed.

use e2e::{tiny_vm, wait_for};
use serde_json::json;

use crate::test_namespace;

#[tokio::test]
async fn wrong_type_is_refused_with_field_path() {
    let test = test_namespace().await;
    let bad = tiny_vm("bad").set("/spec/template/spec/domain/devices/disks", json!("root"));
    let failure = test.try_apply(&bad).await.failure();
    assert!(
        failure.contains("spec.template.spec.domain.devices.disks"),
        "{failure}"
    );
    assert!(
        test.vms()
            .get_opt("bad")
            .await
            .expect("ask for it")
            .is_none()
    );
}

#[tokio::test]
async fn unknown_run_strategy_is_refused_with_field_path() {
    let test = test_namespace().await;
    let failure = test
        .try_apply(&tiny_vm("bad").strategy("Sometimes"))
        .await
        .failure();
    assert!(failure.contains("spec.runStrategy"), "{failure}");
    assert!(failure.contains("Sometimes"), "{failure}");
}

#[tokio::test]
async fn disk_without_volume_is_refused_with_field_path() {
    let test = test_namespace().await;
    let bad = tiny_vm("bad").set("/spec/template/spec/domain/devices/disks/1/name", "nowhere");
    let failure = test.try_apply(&bad).await.failure();
    let path = "spec.template.spec.domain.devices.disks[1].name";
    assert!(
        failure.contains(path) && failure.contains("nowhere"),
        "{failure}"
    );
}

#[tokio::test]
async fn missing_image_shows_in_status() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("lost").image("127.0.0.1:1/missing/image:1"))
        .await;
    let is_reported = |vm: &serde_json::Value| {
        let shown = vm["status"]["printableStatus"].as_str();
        matches!(shown, Some("ErrImagePull" | "ImagePullBackOff"))
    };
    let vm = wait_for(&test.vms(), "lost", "reporting its image", is_reported).await;
    assert!(
        vm["status"].to_string().contains("missing/image"),
        "{}",
        vm["status"]
    );
    test.kubectl(&["delete", "vm", "lost", "--timeout=60s"])
        .await
        .success();
}
