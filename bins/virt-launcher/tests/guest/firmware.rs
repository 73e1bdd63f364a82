//! A guest whose firmware keeps its variables on a claim that both pods have.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use launcher_channel::{
    DomainState, GuestPlan, MigrationPlan, MigrationStage, Request, StopReason,
};

use crate::handler::Handler;
use crate::migration::{ID, connect, ends, receive};
use crate::tpm::claim;
use crate::{QEMU, plan, pod_sharing, single};

/// Where libvirt keeps the variables, below `/run`.
const PLACE: &str = "private/libvirt/qemu/nvram";
const ENVIRONMENT: &str = "VIRT_LAUNCHER_LOG=debug \
    SHARED_FILESYSTEM_PATHS=/run/private/libvirt/qemu/nvram";
const FILE: &str = "guest_VARS.fd";
const TEMPLATE: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";

/// A guest with nothing but its firmware.
fn with_firmware() -> GuestPlan {
    let mut plan = plan();
    let loader = format!(
        "hvm</type><loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE_4M.fd</loader>
         <nvram template='{TEMPLATE}'>/run/{PLACE}/{FILE}</nvram>"
    );
    for (from, to) in [("hvm</type>", &*loader), (">32</memory>", ">128</memory>")] {
        plan.domain_xml = plan.domain_xml.replacen(from, to, 1);
    }
    plan
}

// The proxies run while the test waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_moves_with_the_variables_that_its_firmware_keeps() {
    let claim = claim();
    let pod = || pod_sharing(ENVIRONMENT, Some((claim.path(), PLACE)));
    let (source, target) = (pod(), pod());
    let mut old = Handler::connect(&source);
    old.done(Request::Sync(Box::new(with_firmware()))).await;
    old.reports(DomainState::Running).await;
    let kept = claim.path().join(FILE);
    let before = fs::metadata(&kept).unwrap();
    let mut new = Handler::connect(&target);
    new.done(receive(&with_firmware())).await;
    let _proxies = connect(&source, &target);
    let migrate = MigrationPlan {
        id: ID.to_owned(),
        is_within_node: true,
        ..MigrationPlan::default()
    };
    old.done(Request::Migrate(Box::new(migrate))).await;
    old.reports(DomainState::Stopped(StopReason::Migrated))
        .await;
    assert_eq!(ends(&mut new).await, MigrationStage::Done);
    new.reports(DomainState::Running).await;
    // The same file, which the pod that the guest has left did not remove.
    let after = fs::metadata(&kept).unwrap();
    assert_eq!((after.ino(), after.len()), (before.ino(), before.len()));
    // The firmware has written to it, or does so in its new pod.
    let root = format!("/proc/{}/root", single(&target.pids(QEMU)));
    let template = fs::read(format!("{root}{TEMPLATE}")).unwrap();
    target.wait("variables of the guest", || {
        (fs::read(&kept).unwrap() != template).then_some(())
    });
}
