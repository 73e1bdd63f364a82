//! Offers of disks: a client reads them as they were at one moment, while they change.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use launcher_channel::{BACKUP_SOCKET, BackupPlan, BackupStage, DomainState, Reply, Request};
use serde_json::json;

use crate::backups::{DISKS, back_up, cancel, files, path, plan, source};
use crate::bundle::{self, Bundle};
use crate::failpoints::{armed_pod, call};
use crate::increments::start;
use crate::{pod, single};

fn offered(directory: &str) -> BackupPlan {
    BackupPlan {
        is_offer: true,
        ..plan(directory)
    }
}

/// Repeats the request as the handler does, until the disks are offered.
async fn offer(pod: &Bundle, plan: &BackupPlan) {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(2);
    loop {
        let reply = call(pod, &Request::Backup(plan.clone())).await;
        if let Reply::Done(state) = &reply {
            assert!(state.offers_disks);
            let report = state.backup.as_deref().filter(|report| report.is_of(plan));
            match report.map(|report| &report.stage) {
                Some(BackupStage::Offered) => return,
                Some(BackupStage::Running { .. }) | None => {}
                Some(stage) => panic!("{stage:?}; the log:\n{}", pod.log()),
            }
        }
        let late = tokio::time::Instant::now() > deadline;
        assert!(!late, "{reply:?}; the log:\n{}", pod.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What a client reads; none if the disk is not offered.
fn read(directory: &Path, disk: &str) -> Option<Vec<u8>> {
    let out = tempfile::NamedTempFile::new().unwrap();
    // The socket is named from its directory: its whole path may be too long.
    let status = Command::new("qemu-img")
        .args(["convert", "-f", "raw", "-O", "raw"])
        .arg(format!("nbd+unix:///{disk}?socket={BACKUP_SOCKET}"))
        .arg(out.path())
        .current_dir(directory)
        .status()
        .unwrap();
    status.success().then(|| fs::read(out.path()).unwrap())
}

/// The socket itself, whatever becomes of its name.
fn hold(socket: &Path) -> File {
    const O_PATH: i32 = 0o10_000_000;
    let mut options = File::options();
    options.read(true).custom_flags(O_PATH);
    options.open(socket).unwrap()
}

fn connect(socket: &File) -> io::Result<UnixStream> {
    UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd()))
}

/// A client reads the disks of the moment after the guest has changed them, until the handler cancels the offer. The
/// launcher is killed when QEMU offers them, before it has recorded that: the next launcher offers them anew.
#[tokio::test]
async fn client_reads_the_disks_of_one_moment() {
    let (pod, armed) = armed_pod("virt-launcher/offer/", 1);
    let monitor = start(&pod).await;
    let before = DISKS.map(|disk| fs::read(source(&pod, disk)).unwrap());
    let plan = offered("view");
    offer(&pod, &plan).await;
    let unreached = fs::read_to_string(&armed).unwrap();
    assert_eq!(unreached, "", "failpoints that were not reached");
    let directory = path(&pod, &plan);
    for disk in DISKS {
        monitor.fill(disk, 0x77, 1 << 20, 3 << 20).await;
        monitor.clear(disk, 0, 65536).await;
    }
    for (disk, expected) in DISKS.iter().zip(&before) {
        let found = read(&directory, disk).unwrap();
        assert!(found == *expected, "{disk} is not that of the moment");
        let now = fs::read(source(&pod, disk)).unwrap();
        assert!(now != *expected, "{disk} did not change");
    }
    // A repeated request makes no other view.
    offer(&pod, &plan).await;
    assert!(read(&directory, "data").unwrap() == before[0]);

    let socket = hold(&directory.join(BACKUP_SOCKET));
    connect(&socket).unwrap();
    let (state, stage) = cancel(&pod, &plan).await;
    assert_eq!(stage, BackupStage::Cancelled);
    assert_eq!(state.domain, Some(DomainState::Running));
    assert_eq!(files(&directory), Vec::<std::path::PathBuf>::new());
    // QEMU listens no more, also for those that reached the socket before it was removed.
    let refused = connect(&socket).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);

    // The next backup is not disturbed.
    let (_, stage) = back_up(&pod, &crate::backups::plan("copy")).await;
    assert!(matches!(stage, BackupStage::Done { .. }), "{stage:?}");
}

/// What a client has read must not go on with the disks of a later moment.
#[tokio::test]
async fn offer_ends_with_its_launcher() {
    let pod = pod();
    let monitor = start(&pod).await;
    let plan = offered("view");
    offer(&pod, &plan).await;
    monitor.fill("data", 0x77, 0, 1 << 20).await;
    bundle::kill(single(&pod.pids("virt-launcher")), "KILL");
    let (state, stage) = back_up(&pod, &plan).await;
    let BackupStage::Failed(message) = stage else {
        panic!("{stage:?}");
    };
    assert!(message.contains("was restarted"), "{message}");
    assert_eq!(state.domain, Some(DomainState::Running));
    assert_eq!(files(&path(&pod, &plan)), Vec::<std::path::PathBuf>::new());
    // libvirtd died before it knew of its job.
    let address = json!({"type": "inet", "data": {"host": "127.0.0.1", "port": "0"}});
    let address = json!({"addr": address});
    monitor.run("nbd-server-start", address).await;
    // Another one is of its own moment.
    let next = offered("next");
    offer(&pod, &next).await;
    let now = fs::read(source(&pod, "data")).unwrap();
    assert!(read(&path(&pod, &next), "data").unwrap() == now);
    let (_, stage) = cancel(&pod, &next).await;
    assert_eq!(stage, BackupStage::Cancelled);
}
