//! The connection between the two QEMUs ends while a guest runs in its new pod before all of its memory is there: the
//! rest follows as soon as the handlers connect the pods again.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use launcher_channel::{DomainState, MigrationSocket, MigrationStage, Request, StopReason};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::bundle::{Bundle, kill};
use crate::handler::Handler;
use crate::migration::{ID, connect, ends, goes_on, start, written};
use crate::post_copy::{WRITING_GUEST, allow_post_copy, migrate, wait_for_request};
use crate::{QEMU, pod, single};

/// The memory that the guest writes takes some seconds, so it does not all follow before the connection is cut.
const AT_ONCE: usize = 16 << 10;
const PAUSE: Duration = Duration::from_millis(100);

/// A slow way for the guest's memory, which is closed at first.
fn slow_memory(source: &Bundle, target: &Bundle, open: &watch::Receiver<bool>) -> JoinSet<()> {
    let in_pod =
        |pod: &Bundle, path: String| pod.run_dir().join(path.strip_prefix("/var/run/").unwrap());
    let from = in_pod(source, MigrationSocket::Memory.source_path());
    let to = in_pod(target, MigrationSocket::Memory.target_path());
    drop(fs::remove_file(&from));
    let listener = UnixListener::bind(&from).unwrap();
    fs::set_permissions(&from, fs::Permissions::from_mode(0o666)).unwrap();
    let open = open.clone();
    let mut proxies = JoinSet::new();
    proxies.spawn(async move {
        let mut flows = JoinSet::new();
        while let Ok((near, _)) = listener.accept().await {
            flows.spawn(carry_slowly(near, to.clone(), open.clone()));
        }
    });
    proxies
}

async fn carry_slowly(near: UnixStream, to: PathBuf, mut open: watch::Receiver<bool>) {
    if open.wait_for(|is_open| *is_open).await.is_err() {
        return;
    }
    let far = UnixStream::connect(to).await.unwrap();
    let (mut from_near, mut to_near) = near.into_split();
    let (mut from_far, mut to_far) = far.into_split();
    let forth = async {
        let mut buffer = vec![0; AT_ONCE];
        while let Ok(count @ 1..) = from_near.read(&mut buffer).await {
            if to_far.write_all(&buffer[..count]).await.is_err() {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::select! {
        () = forth => {}
        _ = tokio::io::copy(&mut from_far, &mut to_near) => {}
    }
}

/// A guest that runs in its new pod, and all of whose connections were cut.
async fn interrupted<'a>(source: &'a Bundle, target: &'a Bundle) -> (Handler<'a>, Handler<'a>) {
    allow_post_copy();
    let (mut old, new) = start(source, target, WRITING_GUEST, 60).await;
    let (open, is_open) = watch::channel(false);
    let proxies = connect(source, target);
    let memory = slow_memory(source, target, &is_open);
    migrate(&mut old).await;
    wait_for_request(source);
    open.send_replace(true);
    target.wait("a letter in the new pod", || {
        (!written(target).is_empty()).then_some(())
    });
    drop((proxies, memory));
    while why(&old).is_none() {
        old.next_state().await;
    }
    target.wait("the interruption", || {
        let log = target.log();
        log.contains("the old pod has it follow again")
            .then_some(())
    });
    // Both keep what they have.
    single(&source.pids(QEMU));
    single(&target.pids(QEMU));
    (old, new)
}

fn why(handler: &Handler<'_>) -> Option<String> {
    let state = handler.state.as_ref()?;
    state.migration.as_ref()?.interrupted.clone()
}

async fn has_moved(source: &Bundle, target: &Bundle, old: &mut Handler<'_>, new: &mut Handler<'_>) {
    assert_eq!(ends(old).await, MigrationStage::Done);
    old.reports(DomainState::Stopped(StopReason::Migrated))
        .await;
    assert_eq!(ends(new).await, MigrationStage::Done);
    new.reports(DomainState::Running).await;
    assert!(source.pids(QEMU).is_empty());
    // Not a letter is missing or there twice.
    goes_on(source, target);
}

// The proxies run while the test waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_follows_again_when_the_pods_are_connected_again() {
    let source = pod();
    let target = pod();
    let (mut old, mut new) = interrupted(&source, &target).await;
    let _proxies = connect(&source, &target);
    has_moved(&source, &target, &mut old, &mut new).await;
    assert_eq!(why(&old), None);
    assert!(source.log().contains("memory follows again"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_follows_again_to_the_next_launcher_of_the_new_pod() {
    let source = pod();
    let target = pod();
    let (mut old, _new) = interrupted(&source, &target).await;
    let launcher = single(&target.pids("virt-launcher"));
    kill(launcher, "KILL");
    let mut new = Handler::connect_past(&target, Some(launcher));
    let _proxies = connect(&source, &target);
    has_moved(&source, &target, &mut old, &mut new).await;
}

/// Its memory is lost by request only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_is_given_up_during_an_interruption() {
    let source = pod();
    let target = pod();
    let (mut old, _new) = interrupted(&source, &target).await;
    let id = ID.to_owned();
    old.done(Request::CancelMigration { id }).await;
    old.reports(DomainState::PausedPostcopyFailed).await;
    let failed = ends(&mut old).await;
    assert!(matches!(failed, MigrationStage::Failed(_)), "{failed:?}");
}
