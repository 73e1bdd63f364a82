//! The launcher dies right after each of its effects, and the next one goes on: the guest runs once
//! and no more, ends as it was asked to, and the pod with it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use launcher_channel::{DiskAccess, FileSource, SeedFile};

use super::*;

const PREFIX: &str = "virt-launcher/";
/// Told by the agent's own test, as there is no agent in these guests.
const OF_THE_AGENT: &str = "virt-launcher/agent/";
const OF_FILES: &str = "virt-launcher/prepare/";
const AT_ONCE: usize = 3;
/// Where the names to come are, in the pod.
const PLACES: &str = "private/places";

/// The names of making files, and all others.
fn parted() -> (Vec<&'static str>, Vec<&'static str>) {
    let all = failpoints::NAMES.lines();
    all.filter(|name| name.starts_with(PREFIX) && !name.starts_with(OF_THE_AGENT))
        .partition(|name| name.starts_with(OF_FILES))
}

/// A guest with a file of every kind.
fn rich_plan(pod: &Bundle) -> GuestPlan {
    let private = pod.run_dir().join("private");
    for dir in ["files", "claim", "links"] {
        fs::create_dir(private.join(dir)).unwrap();
        std::os::unix::fs::chown(private.join(dir), Some(bundle::UID), None).unwrap();
    }
    fs::write(private.join("files/key"), "value").unwrap();
    let mut plan = polite_plan(pod);
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

/// Asks until there is an answer, as a handler does.
async fn persist(pod: &Bundle, request: &Request) -> Reply {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(reply) = Handler::connect(pod).try_ask(request.clone()).await {
            return reply;
        }
        let late = tokio::time::Instant::now() > deadline;
        assert!(!late, "{request:?}: no answer; the log:\n{}", pod.log());
    }
}

/// Asks until the guest is in that state.
async fn until(pod: &Bundle, request: &Request, wanted: DomainState) {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    loop {
        let reply = persist(pod, request).await;
        if matches!(&reply, Reply::Done(state) if state.domain == Some(wanted)) {
            return;
        }
        let late = tokio::time::Instant::now() > deadline;
        assert!(!late, "{wanted:?}: {reply:?}; the log:\n{}", pod.log());
    }
}

/// How a guest is ended on the way to that place, and what is told of it.
fn end(name: &str) -> (Request, StopReason) {
    match name {
        "virt-launcher/guest/pull-plug" => (
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
        let mut handler = Handler {
            pod,
            stream,
            next: 1,
            state: None,
        };
        let reply = handler.try_ask(Request::Release).await;
        assert!(matches!(reply, None | Some(Reply::Done(_))), "{reply:?}");
    }
    assert_eq!(end_of(pod), 0);
}

/// What an attempt that was cut off has left beside the files of the guest.
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

/// With a death at each of these places.
async fn tell(names: &[&str]) {
    let name = names.last().copied().unwrap_or_default();
    let environment = format!(
        "VIRT_LAUNCHER_LOG=debug {}=/run/{PLACES}",
        failpoints::VARIABLE
    );
    let mut pod = pod_with(&environment);
    let file = pod.run_dir().join(PLACES);
    fs::write(&file, names.join("\n") + "\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    if name == "virt-launcher/record/failed-start" {
        let without = GuestPlan {
            domain_xml: xml(
                "<disk type='file' device='disk'><source file='/none'/><target dev='vda'/></disk>",
            ),
            ..plan()
        };
        let sync = Request::Sync(Box::new(without));
        until(&pod, &sync, DomainState::Stopped(StopReason::StartFailed)).await;
    } else {
        let sync = Request::Sync(Box::new(rich_plan(&pod)));
        until(&pod, &sync, DomainState::Running).await;
        only(&pod.pids(QEMU));
        wait_for_boot(&pod);
        let (request, reason) = end(name);
        until(&pod, &request, DomainState::Stopped(reason)).await;
        let said = fs::read(pod.run_dir().join("private/serial.log")).unwrap();
        let greetings = String::from_utf8_lossy(&said).matches('G').count();
        assert_eq!(greetings, 1, "{name}: the guest has not begun once");
        // There is no second start.
        let sync = Request::Sync(Box::new(plan()));
        until(&pod, &sync, DomainState::Stopped(reason)).await;
    }
    assert_eq!(pod.pids(QEMU), [0; 0], "{name}");
    release(&mut pod).await;
    assert_eq!(leftovers(&pod.run_dir()), [""; 0], "{name}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "", "nobody came there");
}

/// Files are made one after the other, so that one start has all the deaths between them.
#[tokio::test]
async fn a_guest_has_all_its_files_whatever_its_launcher_dies_after() {
    let (files, _) = parted();
    assert!(!files.is_empty());
    tell(&files).await;
}

/// Several at once: most of the time they wait for QEMU.
#[test]
fn a_guest_runs_once_and_ends_as_asked_whatever_its_launcher_dies_after() {
    let (_, others) = parted();
    assert!(!others.is_empty());
    let next = AtomicUsize::new(0);
    let some = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        while let Some(name) = others.get(next.fetch_add(1, Ordering::Relaxed)) {
            runtime.block_on(async {
                match *name {
                    // What was made by half is found only by one who comes after a death.
                    "virt-launcher/guest/discard" => {
                        tell(&["virt-launcher/guest/start-paused", name]).await;
                    }
                    name => tell(&[name]).await,
                }
            });
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(some);
        }
    });
}
