//! A guest whose TPM keeps its state on a claim that both pods have.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use launcher_channel::{GuestPlan, MigrationStage, Request};
use tempfile::TempDir;

use crate::bundle::{Bundle, UID};
use crate::handler::Handler;
use crate::migration::{
    COUNTING_GUEST, connect, continues, ends, migrate, receive, wait_for_letters,
};
use crate::{disk_plan, pod_sharing, with_devices};

/// Where libvirt keeps the state of TPMs, below `/run`.
const PLACE: &str = "private/libvirt/qemu/swtpm";
const ENVIRONMENT: &str = "VIRT_LAUNCHER_LOG=debug \
    SHARED_FILESYSTEM_PATHS=/run/private/libvirt/qemu/swtpm";
const DEVICE: &str = "<tpm model='tpm-crb'>\
    <backend type='emulator' version='2.0' persistent_state='yes'/></tpm>";

/// The claim of a guest.
pub(crate) fn claim() -> TempDir {
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

/// virt-handler does not ask for it; this is what it knows about the swtpm of the image.
// The proxies run while the test waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_with_a_kept_tpm_stays_where_it_is() {
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
    old.done(migrate()).await;
    let MigrationStage::Failed(why) = ends(&mut old).await else {
        panic!("the guest has moved: {}", source.log());
    };
    assert!(why.contains("swtpm does not support migration"), "{why}");
    continues(&mut old).await;
    let after = fs::read(permanent(&claim)).unwrap();
    // What is in it may be written anew, and is not gone.
    assert_eq!(after.len(), before.len());
    assert_eq!(source.pids("swtpm").len(), 1);
}
