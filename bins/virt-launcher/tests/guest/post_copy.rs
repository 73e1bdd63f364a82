//! A guest runs in its new pod before all of its memory is there.

use std::fs;

use launcher_channel::{
    DomainState, MigrationPlan, MigrationSocket, MigrationStage, Request, StopReason,
};
use tokio::sync::watch;

use crate::bundle::{Bundle, kill};
use crate::handler::Handler;
use crate::migration::{ID, arm, connect_when, continues, ends, goes_on, start, written};
use crate::{QEMU, pod, pod_with, single};

const ARMED: &str = "VIRT_LAUNCHER_LOG=debug FERROVIRT_FAILPOINTS=/run/private/failpoints";

/// The failpoints before QEMU has switched: the guest stays when its launcher dies.
const BEFORE_THE_SWITCH: [&str; 2] = [
    "virt-launcher/migration/held",
    "virt-launcher/migration/start-post-copy",
];

/// A boot sector that writes the alphabet to the serial line, over and over, and half a megabyte of memory after
/// each letter: a slow copy never comes to its end.
pub(crate) const WRITING_GUEST: &[u8] = &[
    0xfc, 0xba, 0xf8, 0x03, 0xb0, b'a', // cld; dx = 0x3f8, al = 'a'
    0xee, 0xfe, 0xc0, 0x3c, 0x7b, 0x75, 0x02, 0xb0, b'a', // write, next letter
    0xbb, 0x00, 0x10, // from 0x10000
    0x8e, 0xc3, 0x31, 0xff, 0xb9, 0xff, 0xff, 0xf3, 0xaa, // fill a segment with the letter
    0x80, 0xc7, 0x10, 0x80, 0xff, 0x90, 0x75, 0xef, // up to 0x90000
    0xeb, 0xe1,
];

/// QEMU's way to learn which memory a guest misses. The kernel forbids it to users without privileges
/// otherwise.
pub(crate) fn allow_post_copy() {
    fs::write("/proc/sys/vm/unprivileged_userfaultfd", "1").unwrap();
}

/// Begins a copy that is slower than the guest writes, and waits until it can be switched.
pub(crate) async fn begin(old: &mut Handler<'_>, plan: MigrationPlan) {
    let plan = MigrationPlan {
        id: ID.to_owned(),
        copied_disks: vec!["vda".to_owned()],
        // QEMU does not switch if it expects to copy the rest within its longest pause.
        bandwidth_mib: Some(1),
        ..plan
    };
    old.done(Request::Migrate(Box::new(plan))).await;
    while !can_switch(old) {
        old.next_state().await;
    }
}

/// Begins a copy that can be switched, and asks for the switch.
pub(crate) async fn migrate(old: &mut Handler<'_>) {
    let plan = MigrationPlan {
        post_copy: true,
        ..MigrationPlan::default()
    };
    begin(old, plan).await;
    let id = ID.to_owned();
    // The launcher may die before its reply.
    drop(old.try_call(Request::StartPostCopy { id }).await);
}

fn can_switch(handler: &Handler<'_>) -> bool {
    let state = handler.state.as_ref();
    let report = state.and_then(|state| state.migration.as_ref());
    report.is_some_and(|report| report.can_switch)
}

/// Waits until QEMU knows that it shall switch.
pub(crate) fn wait_for_request(source: &Bundle) {
    source.wait("the request for post-copy", || {
        let log = source.log();
        log.contains("the copy is being switched to post-copy")
            .then_some(())
    });
}

// The proxies run while the test waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_goes_on_before_its_memory_is_there() {
    allow_post_copy();
    let source = pod();
    let target = pod();
    let (mut old, mut new) = start(&source, &target, WRITING_GUEST, 60).await;
    let (open, is_open) = watch::channel(false);
    let _proxies = connect_when(&source, &target, MigrationSocket::Memory, &is_open);
    migrate(&mut old).await;
    wait_for_request(&source);
    open.send_replace(true);
    old.reports(DomainState::Stopped(StopReason::Migrated))
        .await;
    assert_eq!(ends(&mut old).await, MigrationStage::Done);
    assert_eq!(ends(&mut new).await, MigrationStage::Done);
    new.reports(DomainState::Running).await;
    let log = target.log();
    assert!(log.contains("the guest runs here, and its memory follows"));
    assert!(source.pids(QEMU).is_empty());
    goes_on(&source, &target);
    let paused = new.done(Request::Pause).await;
    assert_eq!(paused.domain, Some(DomainState::PausedByUser));
}

/// Nothing of its memory has left the old pod.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_stays_when_its_launcher_dies_before_the_switch() {
    allow_post_copy();
    for failpoint in BEFORE_THE_SWITCH {
        let source = pod_with(ARMED);
        let target = pod();
        let (mut old, _new) = start(&source, &target, WRITING_GUEST, 60).await;
        let (_sender, never) = watch::channel(false);
        let _proxies = connect_when(&source, &target, MigrationSocket::Memory, &never);
        let launcher = single(&source.pids("virt-launcher"));
        arm(&source, failpoint);
        migrate(&mut old).await;
        let mut old = Handler::connect_past(&source, Some(launcher));
        continues(&mut old).await;
        assert!(written(&target).is_empty(), "{failpoint}");
    }
}

/// The launcher dies before it could ask the other one to run the guest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_goes_on_in_its_new_pod_when_its_launcher_dies_after_the_switch() {
    allow_post_copy();
    let source = pod_with(ARMED);
    let target = pod();
    let (mut old, mut new) = start(&source, &target, WRITING_GUEST, 60).await;
    let (open, is_open) = watch::channel(false);
    let _proxies = connect_when(&source, &target, MigrationSocket::Memory, &is_open);
    let launcher = single(&source.pids("virt-launcher"));
    arm(&source, "virt-launcher/migration/switched");
    migrate(&mut old).await;
    wait_for_request(&source);
    open.send_replace(true);
    let mut old = Handler::connect_past(&source, Some(launcher));
    assert_eq!(ends(&mut old).await, MigrationStage::Done);
    // Unless the next launcher came in time to ask for it, the guest still waits here.
    let id = ID.to_owned();
    new.done(Request::TakeOver { id }).await;
    assert_eq!(ends(&mut new).await, MigrationStage::Done);
    new.reports(DomainState::Running).await;
    assert!(source.pids(QEMU).is_empty());
    goes_on(&source, &target);
}

/// The launcher of the new pod hears nothing of the switch before all of the memory is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_is_taken_over_when_nobody_asked_in_post_copy() {
    allow_post_copy();
    let source = pod_with(ARMED);
    let target = pod();
    let (mut old, mut new) = start(&source, &target, WRITING_GUEST, 60).await;
    let (open, is_open) = watch::channel(false);
    let _proxies = connect_when(&source, &target, MigrationSocket::Memory, &is_open);
    let launcher = single(&source.pids("virt-launcher"));
    arm(&source, "virt-launcher/migration/switched");
    migrate(&mut old).await;
    wait_for_request(&source);
    let of_target = single(&target.pids("virt-launcher"));
    kill(of_target, "STOP");
    open.send_replace(true);
    let mut old = Handler::connect_past(&source, Some(launcher));
    assert_eq!(ends(&mut old).await, MigrationStage::Done);
    old.reports(DomainState::Stopped(StopReason::Migrated))
        .await;
    assert!(written(&target).is_empty());
    kill(of_target, "CONT");
    let id = ID.to_owned();
    new.done(Request::TakeOver { id }).await;
    assert_eq!(ends(&mut new).await, MigrationStage::Done);
    new.reports(DomainState::Running).await;
    goes_on(&source, &target);
}
