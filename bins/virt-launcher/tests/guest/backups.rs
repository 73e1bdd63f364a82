//! Backups of a guest's disks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use launcher_channel::{
    BACKUP_MANIFEST, BackupPlan, BackupStage, DomainState, GuestPlan, GuestState, Quiesce, Reply,
    Request,
};
use serde_json::Value;

use crate::bundle::{self, Bundle};
use crate::disks::bring;
use crate::failpoints::{armed_pod, call};
use crate::handler::Handler;
use crate::{acpi_plan, pod, single, wait_for_boot, with_devices};

pub(crate) const DISKS: [&str; 2] = ["data", "more"];

pub(crate) fn plan(directory: &str) -> BackupPlan {
    BackupPlan {
        volume: "target".to_owned(),
        directory: directory.to_owned(),
        disks: DISKS.map(str::to_owned).to_vec(),
        quiesces: true,
        ..BackupPlan::default()
    }
}

pub(crate) fn path(pod: &Bundle, plan: &BackupPlan) -> PathBuf {
    let disks = pod.run_dir().join("kubevirt/hotplug-disks");
    disks.join(&plan.volume).join(&plan.directory)
}

pub(crate) fn source(pod: &Bundle, disk: &str) -> PathBuf {
    pod.run_dir().join(format!("private/{disk}.img"))
}

/// A guest with two disks of data, and the volume for its backups.
pub(crate) fn guest(pod: &Bundle) -> GuestPlan {
    let mut devices = Vec::new();
    for (disk, target) in DISKS.iter().zip(["vdb", "vdc"]) {
        let image = source(pod, disk);
        let mut content: Vec<u8> = disk.bytes().cycle().take(3 << 20).collect();
        content.resize(16 << 20, 0);
        fs::write(&image, content).unwrap();
        std::os::unix::fs::chown(&image, Some(bundle::UID), None).unwrap();
        devices.push(format!(
            "<disk type='file' device='disk'><driver name='qemu' type='raw'/>
             <source file='/var/run/private/{disk}.img'/><target dev='{target}' bus='virtio'/>
             <alias name='ua-{disk}'/></disk>"
        ));
    }
    bring(pod, "target");
    with_devices(acpi_plan(pod), &devices.concat())
}

/// Repeats the request as the handler does, until the backup has ended.
async fn end_of(pod: &Bundle, request: Request, plan: &BackupPlan) -> (GuestState, BackupStage) {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(2);
    loop {
        let reply = call(pod, &request).await;
        if let Reply::Done(state) = &reply {
            let report = state.backup.as_deref();
            if let Some(report) = report.filter(|one| one.is_of(plan) && !one.stage.is_running()) {
                return (state.clone(), report.stage.clone());
            }
        }
        let late = tokio::time::Instant::now() > deadline;
        assert!(!late, "{reply:?}; the log:\n{}", pod.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) async fn back_up(pod: &Bundle, plan: &BackupPlan) -> (GuestState, BackupStage) {
    end_of(pod, Request::Backup(plan.clone()), plan).await
}

pub(crate) async fn cancel(pod: &Bundle, plan: &BackupPlan) -> (GuestState, BackupStage) {
    end_of(pod, Request::CancelBackup(plan.clone()), plan).await
}

pub(crate) fn raw(image: &Path) -> Vec<u8> {
    let out = tempfile::NamedTempFile::new().unwrap();
    let status = Command::new("qemu-img")
        .args(["convert", "-f", "qcow2", "-O", "raw"])
        .args([image, out.path()])
        .status()
        .unwrap();
    assert!(status.success());
    fs::read(out.path()).unwrap()
}

/// The manifest names the copies, which have the content of the disks.
fn check(pod: &Bundle, plan: &BackupPlan, stage: &BackupStage) {
    let BackupStage::Done { bytes, .. } = stage else {
        panic!("{stage:?}; the log:\n{}", pod.log());
    };
    let directory = path(pod, plan);
    let manifest = fs::read(directory.join(BACKUP_MANIFEST)).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let volumes = manifest["volumes"].as_array().unwrap();
    let names: Vec<&str> = volumes
        .iter()
        .filter_map(|one| one["volume"].as_str())
        .collect();
    assert_eq!(names, DISKS);
    assert_eq!(manifest["quiesced"], false);
    let mut total = 0;
    for (disk, entry) in DISKS.iter().zip(volumes) {
        let copy = directory.join(entry["file"].as_str().unwrap());
        total += fs::metadata(&copy).unwrap().len();
        let expected = fs::read(source(pod, disk)).unwrap();
        assert!(raw(&copy) == expected, "the copy of {disk} differs");
    }
    assert_eq!(*bytes, total);
}

pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Kills the launcher at each of its failpoints of the first backup; the next launcher finishes it.
#[tokio::test]
async fn backup_has_the_content_of_all_disks_and_survives_kills() {
    let (pod, armed) = armed_pod("virt-launcher/backup/", 5);
    let guest = guest(&pod);
    call(&pod, &Request::Sync(Box::new(guest))).await;
    wait_for_boot(&pod);

    let first = plan("first");
    let (state, stage) = back_up(&pod, &first).await;
    let unreached = fs::read_to_string(&armed).unwrap();
    assert_eq!(unreached, "", "failpoints that were not reached");
    check(&pod, &first, &stage);
    let report = state.backup.unwrap();
    assert!(
        matches!(report.quiesce, Some(Quiesce::Skipped(_))),
        "{report:?}"
    );

    // The guest goes on, and a repeated request copies nothing again.
    let mut handler = Handler::connect(&pod);
    let state = handler.done(Request::State).await;
    assert_eq!(state.domain, Some(DomainState::Running));
    fs::remove_dir_all(path(&pod, &first)).unwrap();
    let (_, stage) = back_up(&pod, &first).await;
    assert!(matches!(stage, BackupStage::Done { .. }), "{stage:?}");
    assert!(!path(&pod, &first).exists());
}

/// libvirtd dies during the backup, which begins again.
#[tokio::test]
async fn backup_survives_libvirtd() {
    let pod = pod();
    let guest = guest(&pod);
    call(&pod, &Request::Sync(Box::new(guest))).await;
    wait_for_boot(&pod);
    let plan = plan("b");
    call(&pod, &Request::Backup(plan.clone())).await;
    bundle::kill(single(&pod.pids("libvirtd")), "KILL");
    let (_, stage) = back_up(&pod, &plan).await;
    check(&pod, &plan, &stage);
}

/// A manifest is there if and only if the backup is complete.
#[tokio::test]
async fn cancelled_or_failed_backup_leaves_no_file() {
    let pod = pod();
    let guest = guest(&pod);
    call(&pod, &Request::Sync(Box::new(guest))).await;
    wait_for_boot(&pod);

    // Nothing has begun it.
    let never = plan("never");
    let (_, stage) = cancel(&pod, &never).await;
    assert_eq!(stage, BackupStage::Cancelled);
    assert_eq!(files(&path(&pod, &never)), Vec::<PathBuf>::new());

    // An earlier launcher has, and may have completed it.
    let early = plan("early");
    call(&pod, &Request::Backup(early.clone())).await;
    bundle::kill(single(&pod.pids("virt-launcher")), "KILL");
    let (_, stage) = cancel(&pod, &early).await;
    match stage {
        BackupStage::Done { .. } => check(&pod, &early, &stage),
        BackupStage::Cancelled => {
            assert_eq!(files(&path(&pod, &early)), Vec::<PathBuf>::new());
        }
        stage => panic!("{stage:?}"),
    }

    // This one has.
    let own = plan("own");
    let mut handler = Handler::connect(&pod);
    handler.done(Request::Backup(own.clone())).await;
    handler.done(Request::CancelBackup(own.clone())).await;
    drop(handler);
    let (_, stage) = cancel(&pod, &own).await;
    match stage {
        BackupStage::Done { .. } => check(&pod, &own, &stage),
        BackupStage::Cancelled => assert_eq!(files(&path(&pod, &own)), Vec::<PathBuf>::new()),
        stage => panic!("{stage:?}"),
    }

    for (broken, expected) in [
        (
            BackupPlan {
                volume: "nowhere".to_owned(),
                ..plan("lost")
            },
            "write the backup to its storage: ",
        ),
        (
            BackupPlan {
                disks: vec!["data".to_owned(), "other".to_owned()],
                ..plan("other")
            },
            "the guest has no disk of volume other",
        ),
    ] {
        let (state, stage) = back_up(&pod, &broken).await;
        let BackupStage::Failed(message) = stage else {
            panic!("{stage:?}");
        };
        assert!(message.starts_with(expected), "{message}");
        assert_eq!(files(&path(&pod, &broken)), Vec::<PathBuf>::new());
        assert_eq!(state.domain, Some(DomainState::Running));
    }
}
