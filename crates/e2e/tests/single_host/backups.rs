//! Backups of running guests to a claim.

use std::{
    fs,
    path::{Path, PathBuf},
};

use e2e::{answer, claim, tiny_vm, wait_for};
use serde_json::{Value, json};

use crate::{TestNamespace, memory_dump::files_of, test_namespace};

/// What the guest writes to its disk.
const MARK: &str = "kept-for-later-0123456789";

fn backup(name: &str) -> Value {
    json!({
        "apiVersion": "backup.kubevirt.io/v1alpha1", "kind": "VirtualMachineBackup",
        "metadata": {"name": name},
        "spec": {
            "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "wiki"},
            "pvcName": "backups",
        },
    })
}

async fn completed(test: &TestNamespace, name: &str) -> Value {
    let api = test.objects("backup.kubevirt.io", "v1alpha1", "VirtualMachineBackup");
    let is_complete = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array();
        let mut all = conditions.into_iter().flatten();
        all.any(|one| one["type"] == "Complete" && one["status"] == "True")
    };
    wait_for(&api, name, "complete", is_complete).await
}

/// The directories of this backup on its claim.
fn directories(files: &Path, name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(files).expect("list the claim's files");
    let paths = entries.flatten().map(|entry| entry.path());
    let is_of = |path: &PathBuf| {
        let name_of = path.file_name().unwrap_or_default().to_string_lossy();
        name_of.starts_with(&format!("{name}-"))
    };
    paths.filter(is_of).collect()
}

/// Checks that the directory has the disk `data` with the guest's mark, and what describes it.
fn check(directory: &Path) {
    let disk = fs::read(directory.join("data.qcow2")).expect("read the copy");
    assert!(disk.starts_with(b"QFI\xfb"));
    let mark = MARK.as_bytes();
    assert!(disk.windows(mark.len()).any(|part| part == mark));
    let described = fs::read(directory.join("backup.json")).expect("read its description");
    let described: Value = serde_json::from_slice(&described).expect("parse its description");
    assert!(described.to_string().contains("data.qcow2"), "{described}");
}

#[tokio::test]
async fn disks_of_a_running_guest_are_backed_up_to_a_claim() {
    let test = test_namespace().await;
    test.apply_object(&claim("data", "Filesystem")).await;
    let disk = json!({"name": "data", "disk": {"bus": "virtio"}});
    let volume = json!({"persistentVolumeClaim": {"claimName": "data"}});
    test.apply(&tiny_vm("wiki").disk_as(&disk, &volume)).await;
    let mut console = test.shell("wiki").await;
    let write = format!("echo {MARK} | dd of=/dev/vdc bs=512 seek=99 conv=sync,fsync 2>/dev/null");
    console.shell(&write).await;

    // Without its claim it waits, and says so.
    test.apply_object(&backup("nightly")).await;
    let waits = answer(
        "backup-waits",
        "vmbackup/nightly",
        "describe vmbackup nightly",
    );
    test.why_answers("wiki", waits).await;
    test.apply_object(&claim("backups", "Filesystem")).await;
    let done = completed(&test, "nightly").await;
    assert_eq!(done["status"]["type"], "Full");
    assert_eq!(
        done["status"]["includedVolumes"][0]["volumeName"], "data",
        "{done:#}"
    );
    let files = files_of(&test, "backups").await;
    let [first] = directories(&files, "nightly").try_into().expect("one copy");
    check(&first);

    // The guest goes on without the claim, and the next backup goes beside the first.
    assert!(console.shell("echo on-$((1+1))").await.contains("on-2"));
    let is_alone = |vmi: &Value| {
        let utilities = vmi["spec"]["utilityVolumes"].as_array();
        let report = &vmi["status"]["changedBlockTracking"]["backupStatus"];
        utilities.is_none_or(Vec::is_empty) && report.is_null()
    };
    wait_for(&test.vmis(), "wiki", "without a backup", is_alone).await;
    test.apply_object(&backup("weekly")).await;
    completed(&test, "weekly").await;
    let [second] = directories(&files, "weekly").try_into().expect("one copy");
    check(&second);

    // The files of a complete backup stay.
    let delete = ["delete", "vmbackup", "nightly", "weekly"];
    test.kubectl(&delete).await.success();
    check(&first);
    test.virtctl(&["stop", "wiki"]).await.success();
    test.wait_gone(&test.vmis(), "wiki").await;
}
