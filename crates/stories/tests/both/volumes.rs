//! What a guest keeps, and what it is given to read.

use serde_json::json;
use stories::{claim, machine};

use crate::story;

#[tokio::test]
async fn a_guest_reads_a_config_map_from_its_disk() {
    let story = story().await;
    let literal = "--from-literal=app.conf=colour=blue";
    let map = ["create", "configmap", "settings", literal];
    story.kubectl(&map).await.good();
    let volume = json!({"configMap": {"name": "settings"}});
    story.apply(&machine("reader").disk(&volume)).await;
    let mut console = story.shell("reader").await;
    console.shell("mount -t iso9660 -o ro /dev/vdc /seed").await;
    assert_eq!(console.shell("cat /seed/app.conf").await, "colour=blue");
    // Where an image's label stands.
    let label = "dd if=/dev/vdc bs=8 skip=4101 count=1 2>/dev/null";
    let label = console.shell(label).await;
    assert_eq!(label.to_lowercase(), "cfgdata");
}

#[tokio::test]
async fn what_a_guest_writes_to_a_claim_survives_it_and_what_it_writes_to_a_container_disk_does_not()
 {
    let story = story().await;
    story.apply_object(&claim("data", "Filesystem")).await;
    let volume = json!({"persistentVolumeClaim": {"claimName": "data"}});
    story.apply(&machine("keeper").disk(&volume)).await;
    let mut console = story.shell("keeper").await;
    for disk in ["vda", "vdc"] {
        let write = format!("echo kept | dd of=/dev/{disk} bs=512 seek=64 conv=notrunc,fsync 2>&1");
        console.shell(&write).await;
        assert_eq!(console.shell(&kept(disk)).await, "1", "{disk}");
    }
    let size = console.shell("cat /sys/block/vdc/size").await;
    assert_eq!(size, "131072", "64 MiB in sectors");
    let first = story.vmi_is("keeper", "Running").await;
    let known = first["status"]["volumeStatus"].as_array();
    let known = known.and_then(|all| all.iter().find(|one| one["name"] == "more"));
    let info = &known.expect("the claim's status")["persistentVolumeClaimInfo"];
    assert_eq!(info["claimName"], "data", "{info}");

    story.virtctl(&["restart", "keeper"]).await.good();
    story.runs_again("keeper", &first).await;
    let mut console = story.shell("keeper").await;
    for (disk, expected) in [("vdc", "1"), ("vda", "0")] {
        assert_eq!(console.shell(&kept(disk)).await, expected, "{disk}");
    }
}

/// Counts the lines that were written.
fn kept(disk: &str) -> String {
    format!("dd if=/dev/{disk} bs=512 skip=64 count=1 2>/dev/null | grep -c kept")
}

#[tokio::test]
async fn a_block_claim_is_a_disk_and_survives_its_guest() {
    let story = story().await;
    story.apply_object(&claim("raw", "Block")).await;
    let volume = json!({"persistentVolumeClaim": {"claimName": "raw"}});
    story.apply(&machine("blocks").disk(&volume)).await;
    let mut console = story.shell("blocks").await;
    console
        .shell("echo kept-raw | dd of=/dev/vdc conv=notrunc,fsync 2>&1")
        .await;
    let first = story.vmi_is("blocks", "Running").await;
    story.virtctl(&["restart", "blocks"]).await.good();
    story.runs_again("blocks", &first).await;
    let mut console = story.shell("blocks").await;
    assert_eq!(console.shell("head -c 8 /dev/vdc").await, "kept-raw");
}
