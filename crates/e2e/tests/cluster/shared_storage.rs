//! Volumes that all nodes can mount.

use e2e::{claim, tiny_vm};
use serde_json::json;

use crate::test_namespace;

#[tokio::test]
async fn guest_uses_shared_storage() {
    let test = test_namespace().await;
    let mut shared = claim("anywhere", "Filesystem");
    shared["spec"]["storageClassName"] = "shared".into();
    shared["spec"]["accessModes"] = json!(["ReadWriteMany"]);
    test.apply_object(&shared).await;
    let disk = json!({"persistentVolumeClaim": {"claimName": "anywhere"}});
    test.apply(&tiny_vm("sharer").disk(&disk)).await;
    let mut console = test.shell("sharer").await;
    console
        .shell("echo kept-here | dd of=/dev/vdc conv=notrunc,fsync 2>&1")
        .await;
    let first = test.wait_vmi_phase("sharer", "Running").await;
    test.virtctl(&["restart", "sharer"]).await.success();
    test.wait_new_vmi("sharer", &first).await;
    let mut console = test.shell("sharer").await;
    assert_eq!(console.shell("head -c 9 /dev/vdc").await, "kept-here");
}
