//! Kills the launcher at each of its failpoints: the next launcher continues, the guest runs exactly
//! once and ends as requested, and the pod ends with it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use launcher_channel::{
    DiskAccess, DomainState, FileSource, GuestPlan, Prepare, Reply, Request, SeedFile, StopReason,
};
use tokio::net::UnixStream;

use crate::bundle::{self, Bundle};
use crate::handler::Handler;
use crate::{QEMU, acpi_plan, exit_code, plan, pod_with, single, wait_for_boot, xml};

const PREFIX: &str = "virt-launcher/";
/// Covered by the agent's own test, as these guests have no agent.
const AGENT: &str = "virt-launcher/agent/";
const FILES: &str = "virt-launcher/prepare/";
const PARALLEL: usize = 3;
/// The file with the armed failpoints, in the pod.
pub(crate) const ARMED: &str = "private/failpoints";

/// A pod whose launcher is killed at each failpoint of this prefix, and the file with those that are left.
pub(crate) fn armed_pod(prefix: &str, count: usize) -> (Bundle, PathBuf) {
    let environment = format!(
        "VIRT_LAUNCHER_LOG=debug {}=/run/{ARMED}",
        ::failpoints::VARIABLE
    );
    let pod = pod_with(&environment);
    let file = pod.run_dir().join(ARMED);
    let names = ::failpoints::NAMES.lines();
    let names: Vec<_> = names.filter(|name| name.starts_with(prefix)).collect();
    assert_eq!(names.len(), count);
    fs::write(&file, names.join("\n") + "\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    (pod, file)
}

/// Covered by the test of hot-plugged disks.
const DISKS: &str = "virt-launcher/disks/";

/// Covered by the test of hot-plugged interfaces.
const INTERFACES: &str = "virt-launcher/interfaces/";

/// Covered by the test of memory dumps.
const DUMPS: &str = "virt-launcher/dump/";

/// Covered by the test of backups.
const BACKUPS: &str = "virt-launcher/backup/";
const INCREMENTS: &str = "virt-launcher/increment/";
const OFFERS: &str = "virt-launcher/offer/";

/// Covered by the test of saved states.
const SAVED: &str = "virt-launcher/saved/";

/// Covered by the test of migrations.
const MIGRATION: [&str; 4] = [
    "virt-launcher/migration/",
    "virt-launcher/record/migration",
    "virt-launcher/record/received",
    "virt-launcher/record/receiving",
];

/// The failpoints of file preparation, and all others.
fn partition() -> (Vec<&'static str>, Vec<&'static str>) {
    let all = ::failpoints::NAMES.lines();
    all.filter(|name| name.starts_with(PREFIX) && !name.starts_with(AGENT))
        .filter(|name| !name.starts_with(DISKS) && !name.starts_with(DUMPS))
        .filter(|name| !name.starts_with(SAVED) && !name.starts_with(BACKUPS))
        .filter(|name| !name.starts_with(INCREMENTS) && !name.starts_with(OFFERS))
        .filter(|name| !name.starts_with(INTERFACES))
        .filter(|name| !MIGRATION.iter().any(|own| name.starts_with(own)))
        .partition(|name| name.starts_with(FILES))
}

/// A guest with a file of every kind.
fn plan_with_files(pod: &Bundle) -> GuestPlan {
    let private = pod.run_dir().join("private");
    for dir in ["files", "claim", "links"] {
        fs::create_dir(private.join(dir)).unwrap();
        std::os::unix::fs::chown(private.join(dir), Some(bundle::UID), None).unwrap();
    }
    fs::write(private.join("files/key"), "value").unwrap();
    let mut plan = acpi_plan(pod);
    plan.prepare.extend([
        Prepare::EmptyDisk {
            path: "/var/run/private/disks/empty.qcow2".to_owned(),
            bytes: 1 << 20,
        },
        Prepare::Seed {
            path: "/var/run/private/seed.iso".to_owned(),
            label: "cidata".to_owned(),
            files: vec![SeedFile {
                name: "user-data".to_owned(),
                source: FileSource::Text("#!/bin/sh".to_owned()),
            }],
        },
        Prepare::Text {
            path: "/var/run/private/text/data.ign".to_owned(),
            text: "{}".to_owned(),
        },
        Prepare::Link {
            path: "/var/run/private/links/one".to_owned(),
            target: "/var/run/private/seed.iso".to_owned(),
        },
        Prepare::FilesImage {
            path: "/var/run/private/files.iso".to_owned(),
            label: "cfgdata".to_owned(),
            directory: "/var/run/private/files".to_owned(),
        },
        Prepare::RawDisk {
            directory: "/var/run/private/claim".to_owned(),
            name: "disk.img".to_owned(),
            access: DiskAccess::Create {
                bytes: 1 << 20,
                tolerated_percent: 0,
                reserve_bytes: 0,
            },
        },
    ]);
    plan
}

/// Repeats the request until there is a reply, as the handler does.
pub(crate) async fn call(pod: &Bundle, request: &Request) -> Reply {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(reply) = Handler::connect(pod).try_call(request.clone()).await {
            return reply;
        }
        let late = tokio::time::Instant::now() > deadline;
        assert!(!late, "{request:?}: no reply; the log:\n{}", pod.log());
    }
}

/// Repeats the request until the guest is in this state.
async fn call_until(pod: &Bundle, request: &Request, wanted: DomainState) {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    loop {
        let reply = call(pod, request).await;
        if matches!(&reply, Reply::Done(state) if state.domain == Some(wanted)) {
            return;
        }
        let late = tokio::time::Instant::now() > deadline;
        assert!(!late, "{wanted:?}: {reply:?}; the log:\n{}", pod.log());
    }
}

/// The request that ends the guest on the way to this failpoint, and the reason to expect.
fn end(name: &str) -> (Request, StopReason) {
    match name {
        "virt-launcher/guest/destroy-after-grace" => (
            Request::Shutdown { grace_seconds: 0 },
            StopReason::Destroyed,
        ),
        "virt-launcher/guest/destroy" => (Request::Destroy, StopReason::Destroyed),
        _ => (
            Request::Shutdown { grace_seconds: 600 },
            StopReason::Shutdown,
        ),
    }
}

async fn release(pod: &mut Bundle) {
    while pod.exit_code().is_none() {
        let path = pod.run_dir().join("kubevirt/sockets/launcher-sock");
        let Ok(stream) = UnixStream::connect(path).await else {
            tokio::time::sleep(Duration::from_millis(2)).await;
            continue;
        };
        let mut handler = Handler::over(pod, stream);
        let reply = handler.try_call(Request::Release).await;
        assert!(matches!(reply, None | Some(Reply::Done(_))), "{reply:?}");
    }
    assert_eq!(exit_code(pod), 0);
}

/// Temporary files of interrupted attempts.
fn leftovers(dir: &Path) -> Vec<String> {
    let mut left = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            left.extend(leftovers(&path));
        } else if path.extension().is_some_and(|extension| extension == "new") {
            left.push(path.display().to_string());
        }
    }
    left
}

/// Runs a guest while the launcher is killed at each of these failpoints.
async fn kill_at(names: &[&str]) {
    let name = names.last().copied().unwrap_or_default();
    let environment = format!(
        "VIRT_LAUNCHER_LOG=debug {}=/run/{ARMED}",
        ::failpoints::VARIABLE
    );
    let mut pod = pod_with(&environment);
    let file = pod.run_dir().join(ARMED);
    fs::write(&file, names.join("\n") + "\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    if name == "virt-launcher/record/failed-start" {
        let missing_disk = GuestPlan {
            domain_xml: xml(
                "<disk type='file' device='disk'><source file='/none'/><target dev='vda'/></disk>",
            ),
            ..plan()
        };
        let sync = Request::Sync(Box::new(missing_disk));
        call_until(&pod, &sync, DomainState::Stopped(StopReason::StartFailed)).await;
    } else {
        let sync = Request::Sync(Box::new(plan_with_files(&pod)));
        call_until(&pod, &sync, DomainState::Running).await;
        single(&pod.pids(QEMU));
        wait_for_boot(&pod);
        let (request, reason) = end(name);
        call_until(&pod, &request, DomainState::Stopped(reason)).await;
        let output = fs::read(pod.run_dir().join("private/serial.log")).unwrap();
        let boots = String::from_utf8_lossy(&output).matches('G').count();
        assert_eq!(boots, 1, "{name}: the guest has not booted exactly once");
        // The guest is not started again.
        let sync = Request::Sync(Box::new(plan()));
        call_until(&pod, &sync, DomainState::Stopped(reason)).await;
    }
    assert_eq!(pod.pids(QEMU), [0; 0], "{name}");
    release(&mut pod).await;
    assert_eq!(leftovers(&pod.run_dir()), [""; 0], "{name}");
    let unreached = fs::read_to_string(&file).unwrap();
    assert_eq!(unreached, "", "failpoints that were not reached");
}

/// One start prepares all files, so that it covers all failpoints between them.
#[tokio::test]
async fn files_are_complete_after_a_kill_at_every_failpoint() {
    let (files, _) = partition();
    assert!(!files.is_empty());
    kill_at(&files).await;
}

/// Several in parallel, since most of the time each waits for QEMU.
#[test]
fn guest_runs_once_after_a_kill_at_every_failpoint() {
    let (_, others) = partition();
    assert!(!others.is_empty());
    let next = AtomicUsize::new(0);
    let worker = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        while let Some(name) = others.get(next.fetch_add(1, Ordering::Relaxed)) {
            runtime.block_on(async {
                match *name {
                    // Reached only after an interrupted start.
                    "virt-launcher/guest/discard" => {
                        kill_at(&["virt-launcher/guest/start-paused", name]).await;
                    }
                    name => kill_at(&[name]).await,
                }
            });
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(worker);
        }
    });
}
