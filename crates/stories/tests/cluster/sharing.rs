//! Volumes that every node can have.

use serde_json::json;
use stories::{claim, machine};

use crate::story;

#[tokio::test]
async fn a_guest_has_a_disk_on_storage_that_nodes_share() {
    let story = story().await;
    let mut shared = claim("anywhere", "Filesystem");
    shared["spec"]["storageClassName"] = "shared".into();
    shared["spec"]["accessModes"] = json!(["ReadWriteMany"]);
    story.apply_object(&shared).await;
    let disk = json!({"persistentVolumeClaim": {"claimName": "anywhere"}});
    story.apply(&machine("sharer").disk(&disk)).await;
    let mut console = story.shell("sharer").await;
    console
        .shell("echo kept-here | dd of=/dev/vdc conv=notrunc,fsync 2>&1")
        .await;
    let first = story.vmi_is("sharer", "Running").await;
    story.virtctl(&["restart", "sharer"]).await.good();
    story.runs_again("sharer", &first).await;
    let mut console = story.shell("sharer").await;
    assert_eq!(console.shell("head -c 9 /dev/vdc").await, "kept-here");
}
