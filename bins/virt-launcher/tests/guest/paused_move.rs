//! A guest that writes faster than it is copied is paused, so that its copy ends.

use launcher_channel::{
    DomainState, MigrationPlan, MigrationSocket, MigrationStage, Request, StopReason,
};
use tokio::sync::watch;

use crate::handler::Handler;
use crate::migration::{ID, connect, connect_when, continues, ends, goes_on, start};
use crate::pod;
use crate::post_copy::{WRITING_GUEST, begin};

/// Begins a copy whose guest may be paused, and has it paused.
async fn pause(old: &mut Handler<'_>) {
    let plan = MigrationPlan {
        pauses: true,
        ..MigrationPlan::default()
    };
    begin(old, plan).await;
    let id = ID.to_owned();
    old.done(Request::StartPostCopy { id }).await;
}

fn is_paused(handler: &Handler<'_>) -> bool {
    let state = handler.state.as_ref();
    let report = state.and_then(|state| state.migration.as_ref());
    report.is_some_and(|report| report.paused)
}

// The proxies run while the test waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_that_was_paused_for_its_copy_goes_on_in_the_new_pod() {
    let source = pod();
    let target = pod();
    let (mut old, mut new) = start(&source, &target, WRITING_GUEST, 60).await;
    let _proxies = connect(&source, &target);
    pause(&mut old).await;
    assert_eq!(ends(&mut old).await, MigrationStage::Done);
    old.reports(DomainState::Stopped(StopReason::Migrated))
        .await;
    assert_eq!(ends(&mut new).await, MigrationStage::Done);
    new.reports(DomainState::Running).await;
    assert!(
        source
            .log()
            .contains("the guest is paused until its copy ends")
    );
    goes_on(&source, &target);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_that_was_paused_for_its_copy_goes_on_when_that_is_cancelled() {
    let source = pod();
    let target = pod();
    let (mut old, _new) = start(&source, &target, WRITING_GUEST, 60).await;
    let (_sender, never) = watch::channel(false);
    let _proxies = connect_when(&source, &target, MigrationSocket::Memory, &never);
    pause(&mut old).await;
    while !is_paused(&old) {
        old.next_state().await;
    }
    let id = ID.to_owned();
    old.done(Request::CancelMigration { id }).await;
    assert_eq!(ends(&mut old).await, MigrationStage::Cancelled);
    assert!(!is_paused(&old));
    continues(&mut old).await;
}
