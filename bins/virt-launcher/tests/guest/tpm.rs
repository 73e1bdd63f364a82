//! A guest moves with the TPM whose state both pods have on a claim.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use launcher_channel::{DomainState, GuestPlan, MigrationStage, Request, StopReason};
use tempfile::TempDir;

use crate::bundle::{Bundle, UID};
use crate::handler::Handler;
use crate::migration::{
    COUNTING_GUEST, arm, connect, continues, ends, is_one_row, migrate, receive, wait_for_letters,
    written,
};
use crate::{disk_plan, pod_sharing, with_devices};

/// Where libvirt keeps the state of TPMs, below `/run`.
const PLACE: &str = "private/libvirt/qemu/swtpm";
const ENVIRONMENT: &str = "VIRT_LAUNCHER_LOG=debug \
    SHARED_FILESYSTEM_PATHS=/run/private/libvirt/qemu/swtpm \
    FERROVIRT_FAILPOINTS=/run/private/failpoints";
const DEVICE: &str = "<tpm model='tpm-crb'>\
    <backend type='emulator' version='2.0' persistent_state='yes'/></tpm>";

/// The claim of a guest.
fn claim() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(dir.path(), Some(UID), Some(UID)).unwrap();
    dir
}

fn pod(claim: &TempDir) -> Bundle {
    pod_sharing(ENVIRONMENT, Some((claim.path(), PLACE)))
}

fn plan(pod: &Bundle) -> GuestPlan {
    with_devices(disk_plan(pod, COUNTING_GUEST), DEVICE)
}

/// The file without which a TPM is a new one.
fn permanent(claim: &TempDir) -> PathBuf {
    let domain = "69a61d3f-50cc-4611-b6e2-e53205a02bad";
    claim.path().join(domain).join("tpm2/tpm2-00.permall")
}

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

// The proxies run while the test waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_moves_with_the_state_of_its_tpm() {
    let claim = claim();
    let (source, target) = (pod(&claim), pod(&claim));
    let (source_plan, target_plan) = (plan(&source), plan(&target));
    let mut old = Handler::connect(&source);
    old.done(Request::Sync(Box::new(source_plan))).await;
    wait_for_letters(&source, 30);
    assert!(permanent(&claim).exists(), "{}", source.log());
    let mut new = Handler::connect(&target);
    new.done(receive(&target_plan)).await;
    let _proxies = connect(&source, &target);
    old.done(migrate()).await;
    old.reports(DomainState::Stopped(StopReason::Migrated))
        .await;
    assert_eq!(ends(&mut new).await, MigrationStage::Done);
    new.reports(DomainState::Running).await;
    let before = written(&target).len();
    wait_for_letters(&target, before + 30);
    is_one_row(&source, &target);
    assert!(permanent(&claim).exists(), "{}", target.log());
    assert_eq!(target.pids("swtpm").len(), 1);
    old.done(Request::Release).await;
    // No copy is left.
    assert_eq!(entries(claim.path()), 1);
}

/// The launcher of the new pod dies when all of the guest is there: the guest and its TPM stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_of_a_tpm_stays_when_the_move_fails_at_its_end() {
    let claim = claim();
    let (source, target) = (pod(&claim), pod(&claim));
    let (source_plan, target_plan) = (plan(&source), plan(&target));
    let mut old = Handler::connect(&source);
    old.done(Request::Sync(Box::new(source_plan))).await;
    wait_for_letters(&source, 30);
    let before = fs::read(permanent(&claim)).unwrap();
    let mut new = Handler::connect(&target);
    new.done(receive(&target_plan)).await;
    let _proxies = connect(&source, &target);
    arm(&target, "virt-launcher/record/received");
    old.done(migrate()).await;
    let failed = ends(&mut old).await;
    assert!(matches!(failed, MigrationStage::Failed(_)), "{failed:?}");
    continues(&mut old).await;
    let after = fs::read(permanent(&claim)).unwrap();
    // What is in it may be written anew, and is not gone.
    assert_eq!(after.len(), before.len());
    assert_eq!(source.pids("swtpm").len(), 1);
}
