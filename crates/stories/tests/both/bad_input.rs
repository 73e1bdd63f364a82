//! What is wrong is refused in one sentence that says where, and nothing is half done.

use serde_json::json;
use stories::{machine, wait_for};

use crate::story;

#[tokio::test]
async fn a_wrong_type_is_refused_with_its_path() {
    let story = story().await;
    let bad = machine("bad").set("/spec/template/spec/domain/devices/disks", json!("root"));
    let complaint = story.try_apply(&bad).await.complaint();
    assert!(
        complaint.contains("spec.template.spec.domain.devices.disks"),
        "{complaint}"
    );
    assert!(
        story
            .vms()
            .get_opt("bad")
            .await
            .expect("ask for it")
            .is_none()
    );
}

#[tokio::test]
async fn an_unknown_run_strategy_is_refused_with_its_path() {
    let story = story().await;
    let complaint = story
        .try_apply(&machine("bad").strategy("Sometimes"))
        .await
        .complaint();
    assert!(complaint.contains("spec.runStrategy"), "{complaint}");
    assert!(complaint.contains("Sometimes"), "{complaint}");
}

#[tokio::test]
async fn a_disk_without_volume_is_refused_with_its_path() {
    let story = story().await;
    let bad = machine("bad").set("/spec/template/spec/domain/devices/disks/1/name", "nowhere");
    let complaint = story.try_apply(&bad).await.complaint();
    let path = "spec.template.spec.domain.devices.disks[1].name";
    assert!(
        complaint.contains(path) && complaint.contains("nowhere"),
        "{complaint}"
    );
}

#[tokio::test]
async fn a_missing_image_shows_in_the_status() {
    let story = story().await;
    story
        .apply(&machine("lost").image("127.0.0.1:1/nobody/nothing:1"))
        .await;
    let is_told = |vm: &serde_json::Value| {
        let shown = vm["status"]["printableStatus"].as_str();
        matches!(shown, Some("ErrImagePull" | "ImagePullBackOff"))
    };
    let vm = wait_for(&story.vms(), "lost", "told about its image", is_told).await;
    assert!(
        vm["status"].to_string().contains("nobody/nothing"),
        "{}",
        vm["status"]
    );
    story
        .kubectl(&["delete", "vm", "lost", "--timeout=60s"])
        .await
        .good();
}
