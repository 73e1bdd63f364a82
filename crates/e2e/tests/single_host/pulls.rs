//! Backups whose disks a client reads.

use e2e::{answer, claim, tiny_vm, wait_for};
use http::StatusCode;
use serde_json::{Value, json};

use crate::{exports::Link, test_namespace};

const TOKEN: &str = "0123456789abcdef";
/// What the guest writes to its disk, before and after the backup began.
const BEFORE: &str = "kept-for-later-0123456789";
const AFTER: &str = "written-meanwhile-0123456";
/// The sector.
const AT: u64 = 99;

/// A shell command of the guest.
fn write(mark: &str) -> String {
    format!("echo {mark} | dd of=/dev/vdc bs=512 seek={AT} conv=sync,fsync 2>/dev/null")
}

#[tokio::test]
async fn client_reads_the_disks_of_a_running_guest() {
    let test = test_namespace().await;
    for name in ["data", "scratch"] {
        test.apply_object(&claim(name, "Filesystem")).await;
    }
    let disk = json!({"name": "data", "disk": {"bus": "virtio"}});
    let volume = json!({"persistentVolumeClaim": {"claimName": "data"}});
    test.apply(&tiny_vm("wiki").disk_as(&disk, &volume)).await;
    let mut console = test.shell("wiki").await;
    console.shell(&write(BEFORE)).await;
    test.apply_object(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}, "stringData": {"token": TOKEN},
    }))
    .await;
    test.apply_object(&json!({
        "apiVersion": "backup.kubevirt.io/v1alpha1", "kind": "VirtualMachineBackup",
        "metadata": {"name": "offer"},
        "spec": {
            "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "wiki"},
            "mode": "Pull", "pvcName": "scratch", "tokenSecretRef": "token",
        },
    }))
    .await;
    let backups = test.objects("backup.kubevirt.io", "v1alpha1", "VirtualMachineBackup");
    let is_offered = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array();
        let mut all = conditions.into_iter().flatten();
        all.any(|one| one["reason"] == "ExportReady")
    };
    let offered = wait_for(&backups, "offer", "offered", is_offered).await;
    let offers = answer(
        "backup-offered",
        "vmbackup/offer",
        "describe vmbackup offer",
    );
    test.why_answers("wiki", offers).await;

    // The guest goes on, and the client sees nothing of that.
    console.shell(&write(AFTER)).await;
    let status = &offered["status"];
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let link = |url: String| Link::new(&url, text(&status["endpointCert"]), TOKEN.to_owned());
    let volume = &status["includedVolumes"][0];
    assert_eq!(volume["volumeName"], "data");
    let data = text(&volume["dataEndpoint"]);
    let sector = link(format!("{data}?offset={}&length=512", AT * 512));
    assert_eq!(sector.status("wrong").await, StatusCode::UNAUTHORIZED);
    assert!(sector.bytes().await.starts_with(BEFORE.as_bytes()));
    let map = link(text(&volume["mapEndpoint"])).bytes().await;
    let map: Value = serde_json::from_slice(&map).expect("parse the map");
    let extents = map["extents"].as_array().expect("a list");
    let holds = |extent: &Value| {
        let (offset, length) = (extent["offset"].as_u64(), extent["length"].as_u64());
        let begin = offset.expect("a number");
        extent["description"] == "data"
            && (begin..begin + length.expect("a number")).contains(&(AT * 512))
    };
    assert!(extents.iter().any(holds), "{map}");

    // The client has all.
    test.kubectl(&["delete", "vmbackup", "offer"])
        .await
        .success();
    let is_alone = |vmi: &Value| {
        let utilities = vmi["spec"]["utilityVolumes"].as_array();
        let report = &vmi["status"]["changedBlockTracking"]["backupStatus"];
        utilities.is_none_or(Vec::is_empty) && report.is_null()
    };
    wait_for(&test.vmis(), "wiki", "without a backup", is_alone).await;
    let exports = test.objects("export.kubevirt.io", "v1", "VirtualMachineExport");
    test.wait_gone(&exports, "offer").await;
    let read = format!("dd if=/dev/vdc bs=512 skip={AT} count=1 2>/dev/null");
    assert!(console.shell(&read).await.contains(AFTER));
    test.virtctl(&["stop", "wiki"]).await.success();
    test.wait_gone(&test.vmis(), "wiki").await;
}
