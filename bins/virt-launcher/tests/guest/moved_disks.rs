//! A guest moves to a pod in which its disk is in another file. The test takes the part of the two handlers.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use launcher_channel::{
    ClaimDisk, DomainState, GuestPlan, MigrationPlan, MigrationStage, Request, StopReason,
};

use crate::bundle::Bundle;
use crate::handler::Handler;
use crate::migration::{
    COUNTING_GUEST, ID, connect, ends, goes_on, receive, wait_for_letters, written,
};
use crate::{QEMU, plan, pod, with_devices};

const BYTES: usize = 3 << 20;

/// The path of a file in the pod, for the guest and for the test.
fn file(pod: &Bundle, directory: &str) -> (String, PathBuf) {
    let path = format!("/var/run/{directory}/disk.img");
    let outside = pod.run_dir().join(directory).join("disk.img");
    fs::create_dir_all(outside.parent().unwrap()).unwrap();
    let mode = fs::Permissions::from_mode(0o777);
    fs::set_permissions(outside.parent().unwrap(), mode).unwrap();
    (path, outside)
}

fn write(path: &Path, content: &[u8]) {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
}

/// A guest on a raw disk at that path.
fn plan_on(path: &str) -> GuestPlan {
    let disk = format!(
        "<disk type='file' device='disk'><driver name='qemu' type='raw'/>
         <source file='{path}'/><target dev='vda' bus='virtio'/></disk>"
    );
    with_devices(plan(), &disk)
}

/// A disk that boots, with data and holes behind its first sector.
fn content() -> Vec<u8> {
    let mut disk = COUNTING_GUEST.to_vec();
    disk.resize(510, 0);
    disk.extend_from_slice(&[0x55, 0xaa]);
    let mut number = 1_u32;
    disk.resize_with(1 << 20, || {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        number.to_be_bytes()[0]
    });
    disk.resize(BYTES, 0);
    disk
}

fn migrate(moved: &[&str], parallel_connections: u8) -> Request {
    let disks: Vec<String> = moved.iter().map(|disk| (*disk).to_owned()).collect();
    Request::Migrate(Box::new(MigrationPlan {
        id: ID.to_owned(),
        copied_disks: disks.clone(),
        moved_disks: disks,
        is_within_node: true,
        parallel_connections,
        ..MigrationPlan::default()
    }))
}

fn on_claim(mut plan: GuestPlan, is_new: bool) -> GuestPlan {
    plan.claim_disks = vec![ClaimDisk {
        target: "vda".to_owned(),
        is_new,
    }];
    plan
}

// The proxies run while the test waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disk_is_copied_to_another_file_byte_for_byte() {
    // The length of the other file before: empty, as long, and longer; and connections of the memory.
    for (before, connections) in [(0, 0), (BYTES, 4), (BYTES + 4096, 0)] {
        let source = pod();
        let target = pod();
        let (from, old_file) = file(&source, "claims/old");
        let (to, new_file) = file(&target, "claims/new");
        let disk = content();
        write(&old_file, &disk);
        // What was there before must not show.
        write(&new_file, &vec![0xff; before]);
        let mut old = Handler::connect(&source);
        old.done(Request::Sync(Box::new(plan_on(&from)))).await;
        wait_for_letters(&source, 60);
        let mut new = Handler::connect(&target);
        new.done(receive(&on_claim(plan_on(&to), true))).await;
        let _proxies = connect(&source, &target);
        old.done(migrate(&["vda"], connections)).await;
        old.reports(DomainState::Stopped(StopReason::Migrated))
            .await;
        assert_eq!(ends(&mut new).await, MigrationStage::Done, "{before}");
        new.reports(DomainState::Running).await;
        assert!(source.pids(QEMU).is_empty());
        goes_on(&source, &target);
        new.done(Request::Destroy).await;
        let copied = fs::read(&new_file).unwrap();
        assert_eq!(copied.len(), before.max(BYTES));
        let (copy, rest) = copied.split_at(BYTES);
        let differs = copy.iter().zip(&disk).position(|(new, old)| new != old);
        assert_eq!(differs, None, "{before}");
        // The guest does not see it.
        assert!(rest.iter().all(|byte| *byte == 0xff), "{before}");
        assert_eq!(fs::read(&old_file).unwrap(), disk, "{before}");
    }
}

/// The new pod knows what it was made for: it takes no guest whose disk would be empty, or copied onto itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_pod_refuses_a_guest_whose_disks_are_not_those_that_it_was_made_for() {
    for (is_new, moved, expected) in [
        (true, &[][..], "is not to be copied"),
        (false, &["vda"][..], "is on the same claim in both pods"),
    ] {
        let source = pod();
        let target = pod();
        let (from, old_file) = file(&source, "claims/old");
        let (to, new_file) = file(&target, "claims/old");
        write(&old_file, &content());
        write(&new_file, &[]);
        let mut old = Handler::connect(&source);
        old.done(Request::Sync(Box::new(plan_on(&from)))).await;
        wait_for_letters(&source, 5);
        let mut new = Handler::connect(&target);
        new.done(receive(&on_claim(plan_on(&to), is_new))).await;
        let _proxies = connect(&source, &target);
        old.done(migrate(moved, 0)).await;
        let stage = ends(&mut old).await;
        let MigrationStage::Failed(message) = stage else {
            panic!("{stage:?}")
        };
        assert!(message.contains(expected), "{message}");
        let state = old.done(Request::State).await;
        assert_eq!(state.domain, Some(DomainState::Running));
        let before = written(&source).len();
        wait_for_letters(&source, before + 30);
        assert!(target.pids(QEMU).is_empty());
        assert_eq!(fs::read(&new_file).unwrap(), [0_u8; 0]);
    }
}
