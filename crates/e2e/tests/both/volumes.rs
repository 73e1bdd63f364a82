//! Volumes: persistent data and generated disks.

use e2e::{claim, tiny_vm};
use serde_json::json;

use crate::test_namespace;

#[tokio::test]
async fn guest_reads_config_map_from_disk() {
    let test = test_namespace().await;
    let literal = "--from-literal=app.conf=colour=blue";
    let map = ["create", "configmap", "settings", literal];
    test.kubectl(&map).await.success();
    let volume = json!({"configMap": {"name": "settings"}});
    test.apply(&tiny_vm("reader").disk(&volume)).await;
    let mut console = test.shell("reader").await;
    console.shell("mount -t iso9660 -o ro /dev/vdc /seed").await;
    assert_eq!(console.shell("cat /seed/app.conf").await, "colour=blue");
    // The offset of an ISO image's label.
    let label = "dd if=/dev/vdc bs=8 skip=4101 count=1 2>/dev/null";
    let label = console.shell(label).await;
    assert_eq!(label.to_lowercase(), "cfgdata");
}

#[tokio::test]
async fn pvc_data_survives_guest_and_container_disk_data_does_not() {
    let test = test_namespace().await;
    test.apply_object(&claim("data", "Filesystem")).await;
    let volume = json!({"persistentVolumeClaim": {"claimName": "data"}});
    test.apply(&tiny_vm("keeper").disk(&volume)).await;
    let mut console = test.shell("keeper").await;
    for disk in ["vda", "vdc"] {
        let write = format!("echo kept | dd of=/dev/{disk} bs=512 seek=64 conv=notrunc,fsync 2>&1");
        console.shell(&write).await;
        assert_eq!(console.shell(&kept(disk)).await, "1", "{disk}");
    }
    let size = console.shell("cat /sys/block/vdc/size").await;
    assert_eq!(size, "131072", "64 MiB in sectors");
    let first = test.wait_vmi_phase("keeper", "Running").await;
    let known = first["status"]["volumeStatus"].as_array();
    let known = known.and_then(|all| all.iter().find(|one| one["name"] == "more"));
    let info = &known.expect("the claim's status")["persistentVolumeClaimInfo"];
    assert_eq!(info["claimName"], "data", "{info}");

    test.virtctl(&["restart", "keeper"]).await.success();
    test.wait_new_vmi("keeper", &first).await;
    let mut console = test.shell("keeper").await;
    for (disk, expected) in [("vdc", "1"), ("vda", "0")] {
        assert_eq!(console.shell(&kept(disk)).await, expected, "{disk}");
    }
}

/// Counts the written lines.
fn kept(disk: &str) -> String {
    format!("dd if=/dev/{disk} bs=512 skip=64 count=1 2>/dev/null | grep -c kept")
}

#[tokio::test]
async fn block_pvc_is_a_disk_and_survives_guest() {
    let test = test_namespace().await;
    test.apply_object(&claim("raw", "Block")).await;
    let volume = json!({"persistentVolumeClaim": {"claimName": "raw"}});
    test.apply(&tiny_vm("blocks").disk(&volume)).await;
    let mut console = test.shell("blocks").await;
    console
        .shell("echo kept-raw | dd of=/dev/vdc conv=notrunc,fsync 2>&1")
        .await;
    let first = test.wait_vmi_phase("blocks", "Running").await;
    test.virtctl(&["restart", "blocks"]).await.success();
    test.wait_new_vmi("blocks", &first).await;
    let mut console = test.shell("blocks").await;
    assert_eq!(console.shell("head -c 8 /dev/vdc").await, "kept-raw");
}
