//! A guest moves between two pods of this host while it runs. The test takes the part of the two
//! handlers: it connects the sockets of the pods.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use launcher_channel::{
    DomainState, GuestPlan, MigrationPlan, MigrationSocket, MigrationStage, Reply, Request,
    StopReason,
};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::bundle::{Bundle, kill};
use crate::handler::Handler;
use crate::{QEMU, disk_plan, exit_code, pod, pod_with};

pub(crate) const ID: &str = "migration";

/// The failpoints of the pod that the guest leaves, and whether the guest stays when its launcher dies
/// at one.
const OF_THE_SOURCE: [(&str, bool); 5] = [
    ("virt-launcher/record/migration", true),
    ("virt-launcher/migration/prepared", true),
    ("virt-launcher/migration/finished", true),
    ("virt-launcher/migration/given-up", false),
    ("virt-launcher/migration/confirmed", false),
];

/// The failpoints of the pod that gets the guest. At all of them it stays.
const OF_THE_TARGET: [&str; 3] = [
    "virt-launcher/record/receiving",
    "virt-launcher/migration/receiving",
    "virt-launcher/record/received",
];

/// A boot sector that writes the alphabet to the serial line, over and over, with a pause after each
/// letter.
pub(crate) const COUNTING_GUEST: &[u8] = &[
    0xba,
    0xf8,
    0x03,
    0xb0,
    b'a', // dx = 0x3f8, al = 'a'
    0xee,
    0xfe,
    0xc0,
    0x3c,
    b'z' + 1,
    0x75,
    0x02,
    0xb0,
    b'a', // write, next letter
    0xbb,
    0x20,
    0x00,
    0xb9,
    0xff,
    0xff,
    0xe2,
    0xfe,
    0x4b,
    0x75,
    0xf8, // pause
    0xeb,
    0xea, // again
];

/// What the two handlers do: everything that connects to a socket of one pod reaches that of the
/// other.
pub(crate) fn connect(source: &Bundle, target: &Bundle) -> JoinSet<()> {
    let (_sender, open) = watch::channel(true);
    connect_when(source, target, MigrationSocket::Memory, &open)
}

/// The same, but nothing flows through one of the sockets before that is open.
pub(crate) fn connect_when(
    source: &Bundle,
    target: &Bundle,
    held: MigrationSocket,
    open: &watch::Receiver<bool>,
) -> JoinSet<()> {
    connect_counting(source, target, (held, open), &Arc::default())
}

/// The same; the connections of the guest's memory are counted.
pub(crate) fn connect_counting(
    source: &Bundle,
    target: &Bundle,
    (held, open): (MigrationSocket, &watch::Receiver<bool>),
    of_memory: &Arc<AtomicUsize>,
) -> JoinSet<()> {
    let mut proxies = JoinSet::new();
    for socket in MigrationSocket::ALL {
        let in_pod = |pod: &Bundle, path: String| {
            pod.run_dir().join(path.strip_prefix("/var/run/").unwrap())
        };
        let from = in_pod(source, socket.source_path());
        let to = in_pod(target, socket.target_path());
        drop(fs::remove_file(&from));
        let listener = UnixListener::bind(&from).unwrap();
        fs::set_permissions(&from, fs::Permissions::from_mode(0o666)).unwrap();
        let (open, of_memory) = (open.clone(), Arc::clone(of_memory));
        proxies.spawn(async move {
            let mut flows = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                if socket == MigrationSocket::Memory {
                    of_memory.fetch_add(1, Ordering::Relaxed);
                }
                let (to, mut open) = (to.clone(), open.clone());
                flows.spawn(async move {
                    if held == socket && open.wait_for(|is_open| *is_open).await.is_err() {
                        return;
                    }
                    if let Ok(mut far) = UnixStream::connect(to).await {
                        // Either end may be killed.
                        drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
                    }
                });
            }
        });
    }
    proxies
}

pub(crate) fn migrate() -> Request {
    Request::Migrate(Box::new(MigrationPlan {
        id: ID.to_owned(),
        copied_disks: vec!["vda".to_owned()],
        ..MigrationPlan::default()
    }))
}

pub(crate) fn receive(plan: &GuestPlan) -> Request {
    Request::Receive {
        id: ID.to_owned(),
        plan: Box::new(plan.clone()),
    }
}

/// All that a guest has written in this pod; its firmware writes nothing.
pub(crate) fn written(pod: &Bundle) -> Vec<u8> {
    fs::read(pod.run_dir().join("private/serial.log")).unwrap_or_default()
}

pub(crate) fn wait_for_letters(pod: &Bundle, count: usize) {
    pod.wait("letters", || (written(pod).len() >= count).then_some(()));
}

/// Checks that not a letter is lost or written twice.
fn is_one_row(source: &Bundle, target: &Bundle) {
    let all = [written(source), written(target)].concat();
    for pair in all.windows(2) {
        let next = if pair[0] == b'z' { b'a' } else { pair[0] + 1 };
        assert_eq!(pair[1], next, "{}", String::from_utf8_lossy(&all));
    }
}

/// Starts the guest in one pod, where it writes so many letters; the other pod waits for it.
pub(crate) async fn start<'a>(
    source: &'a Bundle,
    target: &'a Bundle,
    boot_sector: &[u8],
    letters: usize,
) -> (Handler<'a>, Handler<'a>) {
    let plan = disk_plan(source, boot_sector);
    let target_plan = disk_plan(target, boot_sector);
    let mut old = Handler::connect(source);
    old.done(Request::Sync(Box::new(plan))).await;
    wait_for_letters(source, letters);
    let mut new = Handler::connect(target);
    new.done(receive(&target_plan)).await;
    (old, new)
}

/// Waits until the guest has written more in its new pod, and checks that no letter is missing.
pub(crate) fn goes_on(source: &Bundle, target: &Bundle) {
    let before = written(target).len();
    wait_for_letters(target, before + 60);
    is_one_row(source, target);
}

/// The stage that the launcher has reported last.
fn stage(handler: &Handler<'_>) -> Option<MigrationStage> {
    let migration = handler.state.as_ref()?.migration.as_ref()?;
    Some(migration.stage.clone())
}

/// The stage of the migration, read until it is final.
pub(crate) async fn ends(handler: &mut Handler<'_>) -> MigrationStage {
    loop {
        match stage(handler) {
            Some(
                last @ (MigrationStage::Done
                | MigrationStage::Failed(_)
                | MigrationStage::Cancelled),
            ) => return last,
            _ => handler.next_state().await,
        }
    }
}

// The proxies run while the test waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_continues_in_the_other_pod() {
    let mut source = pod();
    let mut target = pod();
    let plan = disk_plan(&source, COUNTING_GUEST);
    let target_plan = disk_plan(&target, COUNTING_GUEST);
    {
        let mut old = Handler::connect(&source);
        old.done(Request::Sync(Box::new(plan))).await;
        wait_for_letters(&source, 60);
        let mut new = Handler::connect(&target);
        let waiting = new.done(receive(&target_plan)).await;
        assert_eq!(waiting.migration.unwrap().stage, MigrationStage::Waiting);
        assert_eq!(waiting.domain, None);
        let refused = new
            .refused(Request::Sync(Box::new(target_plan.clone())))
            .await;
        assert_eq!(refused, "MigrationConflict");
        let _proxies = connect(&source, &target);
        old.done(migrate()).await;
        old.reports(DomainState::Stopped(StopReason::Migrated))
            .await;
        assert_eq!(ends(&mut new).await, MigrationStage::Done);
        new.reports(DomainState::Running).await;
        assert!(source.pids(QEMU).is_empty());
        goes_on(&source, &target);
        old.done(Request::Release).await;
        let paused = new.done(Request::Pause).await;
        assert_eq!(paused.domain, Some(DomainState::PausedByUser));
        new.done(Request::Destroy).await;
        new.done(Request::Release).await;
    }
    assert_eq!(exit_code(&mut source), 0);
    assert_eq!(exit_code(&mut target), 0);
}

// The proxies run while the test waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_stays_when_the_other_pod_cannot_be_reached() {
    let source = pod();
    let plan = disk_plan(&source, COUNTING_GUEST);
    let mut handler = Handler::connect(&source);
    handler.done(Request::Sync(Box::new(plan))).await;
    wait_for_letters(&source, 5);
    handler.done(migrate()).await;
    let stage = ends(&mut handler).await;
    assert!(matches!(stage, MigrationStage::Failed(_)), "{stage:?}");
    let state = handler.done(Request::State).await;
    assert_eq!(state.domain, Some(DomainState::Running));
    let before = written(&source).len();
    wait_for_letters(&source, before + 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_guest_stays() {
    let source = pod();
    let target = pod();
    let (mut old, mut new) = start(&source, &target, COUNTING_GUEST, 5).await;
    let (_sender, never) = watch::channel(false);
    let _proxies = connect_when(&source, &target, MigrationSocket::Memory, &never);
    old.done(migrate()).await;
    has_begun(&mut new).await;
    let id = ID.to_owned();
    old.done(Request::CancelMigration { id }).await;
    assert_eq!(ends(&mut old).await, MigrationStage::Cancelled);
    let failed = ends(&mut new).await;
    assert!(matches!(failed, MigrationStage::Failed(_)), "{failed:?}");
    continues(&mut old).await;
    assert!(target.pids(QEMU).is_empty());
}

/// Waits until the launcher of the new pod has a QEMU that waits for the guest.
async fn has_begun(new: &mut Handler<'_>) {
    while stage(new) != Some(MigrationStage::Receiving) {
        new.next_state().await;
    }
}

/// A user pauses the guest while it is copied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_that_is_paused_during_its_move_stays_paused() {
    let source = pod();
    let target = pod();
    let (mut old, mut new) = start(&source, &target, COUNTING_GUEST, 5).await;
    let (open, is_open) = watch::channel(false);
    let _proxies = connect_when(&source, &target, MigrationSocket::Memory, &is_open);
    old.done(migrate()).await;
    has_begun(&mut new).await;
    old.done(Request::Pause).await;
    open.send_replace(true);
    assert_eq!(ends(&mut new).await, MigrationStage::Done);
    new.reports(DomainState::PausedByUser).await;
    assert!(written(&target).is_empty());
    new.done(Request::Unpause).await;
    wait_for_letters(&target, 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_that_is_paused_during_a_cancelled_move_stays_paused() {
    let source = pod();
    let target = pod();
    let (mut old, mut new) = start(&source, &target, COUNTING_GUEST, 5).await;
    let (_sender, never) = watch::channel(false);
    let _proxies = connect_when(&source, &target, MigrationSocket::Memory, &never);
    old.done(migrate()).await;
    has_begun(&mut new).await;
    old.done(Request::Pause).await;
    let id = ID.to_owned();
    old.done(Request::CancelMigration { id }).await;
    assert_eq!(ends(&mut old).await, MigrationStage::Cancelled);
    let state = old.done(Request::State).await;
    assert_eq!(state.domain, Some(DomainState::PausedByUser));
    old.done(Request::Unpause).await;
    continues(&mut old).await;
}

/// A user pauses the guest that all of has arrived, before the handler has it taken over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_that_is_paused_before_it_is_taken_over_stays_paused() {
    let source = pod_with("FERROVIRT_FAILPOINTS=/run/private/failpoints");
    let target = pod();
    let (mut old, mut new) = start(&source, &target, COUNTING_GUEST, 5).await;
    let _proxies = connect(&source, &target);
    let launcher = crate::single(&source.pids("virt-launcher"));
    arm(&source, "virt-launcher/migration/given-up");
    // The launcher may die before its reply.
    drop(old.try_call(migrate()).await);
    let mut old = Handler::connect_past(&source, Some(launcher));
    old.reports(DomainState::Stopped(StopReason::Migrated))
        .await;
    new.done(Request::Pause).await;
    let id = ID.to_owned();
    let taken = new.done(Request::TakeOver { id }).await;
    assert_eq!(taken.domain, Some(DomainState::PausedByUser));
    assert!(written(&target).is_empty());
    new.done(Request::Unpause).await;
    wait_for_letters(&target, 30);
}

/// Waits until the guest of this launcher runs, and checks that it does.
pub(crate) async fn continues(handler: &mut Handler<'_>) {
    while handler.done(Request::State).await.domain != Some(DomainState::Running) {
        handler.next_state().await;
    }
    let before = written(handler.pod).len();
    wait_for_letters(handler.pod, before + 30);
}

pub(crate) fn arm(pod: &Bundle, failpoint: &str) {
    let armed = pod.run_dir().join("private/failpoints");
    fs::write(&armed, format!("{failpoint}\n")).unwrap();
    fs::set_permissions(&armed, fs::Permissions::from_mode(0o666)).unwrap();
}

/// Kills the launcher of the pod that gets the guest: the guest stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_stays_when_the_other_launcher_dies_at_any_step() {
    for failpoint in OF_THE_TARGET {
        let source = pod();
        let target = pod_with("FERROVIRT_FAILPOINTS=/run/private/failpoints");
        let (mut old, _new) = start(&source, &target, COUNTING_GUEST, 5).await;
        let _proxies = connect(&source, &target);
        arm(&target, failpoint);
        old.done(migrate()).await;
        let failed = ends(&mut old).await;
        assert!(
            matches!(failed, MigrationStage::Failed(_)),
            "{failpoint}: {failed:?}"
        );
        continues(&mut old).await;
    }
}

/// Kills the launcher of the pod that the guest leaves: the guest runs in one of the pods.
// The proxies run while the test waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_runs_once_when_its_launcher_dies_at_any_step() {
    for (failpoint, stays) in OF_THE_SOURCE {
        let source = pod_with("FERROVIRT_FAILPOINTS=/run/private/failpoints");
        let target = pod();
        let (mut old, mut new) = start(&source, &target, COUNTING_GUEST, 5).await;
        let _proxies = connect(&source, &target);
        let launcher = crate::single(&source.pids("virt-launcher"));
        arm(&source, failpoint);
        // The launcher may die before its reply.
        drop(old.try_call(migrate()).await);
        let mut old = Handler::connect_past(&source, Some(launcher));
        if stays {
            continues(&mut old).await;
        } else {
            old.reports(DomainState::Stopped(StopReason::Migrated))
                .await;
            // The handler of the other pod sees that the guest was given up.
            let id = ID.to_owned();
            let reply = new.call(Request::TakeOver { id }).await;
            assert!(matches!(reply, Reply::Done(_)), "{reply:?}");
            new.reports(DomainState::Running).await;
            let before = written(&target).len();
            wait_for_letters(&target, before + 30);
        }
        assert_eq!(source.pids(QEMU).is_empty(), !stays, "{failpoint}");
    }
}

/// The launcher of the old pod dies before it asks the other one to run the guest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_guest_stays_paused_when_it_is_taken_over() {
    let source = pod_with("FERROVIRT_FAILPOINTS=/run/private/failpoints");
    let target = pod();
    let plan = disk_plan(&source, COUNTING_GUEST);
    let target_plan = disk_plan(&target, COUNTING_GUEST);
    let mut old = Handler::connect(&source);
    old.done(Request::Sync(Box::new(plan))).await;
    wait_for_letters(&source, 5);
    let paused = old.done(Request::Pause).await;
    assert_eq!(paused.domain, Some(DomainState::PausedByUser));
    let mut new = Handler::connect(&target);
    new.done(receive(&target_plan)).await;
    let _proxies = connect(&source, &target);
    let launcher = crate::single(&source.pids("virt-launcher"));
    arm(&source, "virt-launcher/migration/confirmed");
    // The launcher may die before its reply.
    drop(old.try_call(migrate()).await);
    let mut old = Handler::connect_past(&source, Some(launcher));
    old.reports(DomainState::Stopped(StopReason::Migrated))
        .await;
    let id = ID.to_owned();
    let taken = new.done(Request::TakeOver { id }).await;
    assert_eq!(taken.domain, Some(DomainState::PausedByUser));
    assert!(written(&target).is_empty());
    new.done(Request::Unpause).await;
    wait_for_letters(&target, 30);
}

/// Both launchers die at the hand-over, the new one before it could run the guest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_is_taken_over_by_a_launcher_that_was_restarted() {
    let source = pod_with("FERROVIRT_FAILPOINTS=/run/private/failpoints");
    let target = pod();
    let plan = disk_plan(&source, COUNTING_GUEST);
    let target_plan = disk_plan(&target, COUNTING_GUEST);
    let mut old = Handler::connect(&source);
    old.done(Request::Sync(Box::new(plan))).await;
    wait_for_letters(&source, 5);
    let mut new = Handler::connect(&target);
    new.done(receive(&target_plan)).await;
    let _proxies = connect(&source, &target);
    let of_source = crate::single(&source.pids("virt-launcher"));
    let of_target = crate::single(&target.pids("virt-launcher"));
    arm(&source, "virt-launcher/migration/given-up");
    // The launcher may die before its reply.
    drop(old.try_call(migrate()).await);
    let mut old = Handler::connect_past(&source, Some(of_source));
    old.reports(DomainState::Stopped(StopReason::Migrated))
        .await;
    kill(of_target, "KILL");
    let mut new = Handler::connect_past(&target, Some(of_target));
    while stage(&new) != Some(MigrationStage::Received) {
        new.next_state().await;
    }
    for early in [Request::Sync(Box::new(target_plan)), Request::Unpause] {
        assert_eq!(new.refused(early).await, "MigrationConflict");
    }
    let id = ID.to_owned();
    let taken = new.done(Request::TakeOver { id }).await;
    assert_eq!(taken.migration.unwrap().stage, MigrationStage::Done);
    wait_for_letters(&target, 30);
}
