//! The connection between the two QEMUs ends while a guest runs in its new pod before all of its memory is there: it is
//! given up, and no libvirtd crashes. libvirt 11.3 does when it is to resume post-copy.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use launcher_channel::{DomainState, MigrationSocket, MigrationStage};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::bundle::Bundle;
use crate::migration::{connect, ends, start, written};
use crate::post_copy::{WRITING_GUEST, allow_post_copy, migrate, wait_for_request};
use crate::{pod, single};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_whose_connection_ends_in_post_copy_is_given_up() {
    let source = pod();
    let target = pod();
    allow_post_copy();
    let (mut old, _new) = start(&source, &target, WRITING_GUEST, 60).await;
    let (open, is_open) = watch::channel(false);
    let proxies = connect(&source, &target);
    let memory = slow_memory(&source, &target, &is_open);
    migrate(&mut old).await;
    wait_for_request(&source);
    open.send_replace(true);
    target.wait("a letter in the new pod", || {
        (!written(&target).is_empty()).then_some(())
    });
    let libvirtd = single(&target.pids("libvirtd"));
    drop((proxies, memory));
    old.reports(DomainState::PausedPostcopyFailed).await;
    let failed = ends(&mut old).await;
    assert!(matches!(failed, MigrationStage::Failed(_)), "{failed:?}");
    assert_eq!(single(&target.pids("libvirtd")), libvirtd);
}
