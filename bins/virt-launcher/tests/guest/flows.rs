//! The memory of a guest goes to its new pod through several connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use launcher_channel::{
    DomainState, MigrationCompression, MigrationPlan, MigrationSocket, MigrationStage, Request,
    StopReason,
};
use tokio::sync::watch;

use crate::migration::{COUNTING_GUEST, ID, connect_counting, ends, goes_on, start};
use crate::pod;

const CONNECTIONS: u8 = 4;

async fn moves_through_several_connections(compression: MigrationCompression) {
    let source = pod();
    let target = pod();
    let (mut old, mut new) = start(&source, &target, COUNTING_GUEST, 60).await;
    let (_sender, open) = watch::channel(true);
    let of_memory = Arc::new(AtomicUsize::new(0));
    let held = (MigrationSocket::Memory, &open);
    let _proxies = connect_counting(&source, &target, held, &of_memory);
    let plan = MigrationPlan {
        id: ID.to_owned(),
        copied_disks: vec!["vda".to_owned()],
        parallel_connections: CONNECTIONS,
        compression,
        ..MigrationPlan::default()
    };
    old.done(Request::Migrate(Box::new(plan))).await;
    old.reports(DomainState::Stopped(StopReason::Migrated))
        .await;
    assert_eq!(ends(&mut new).await, MigrationStage::Done);
    new.reports(DomainState::Running).await;
    // One more for the rest of the guest's state.
    let all = of_memory.load(Ordering::Relaxed);
    assert_eq!(all, usize::from(CONNECTIONS) + 1, "{}", source.log());
    goes_on(&source, &target);
}

// The proxies run while the test waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_flows_through_several_connections() {
    moves_through_several_connections(MigrationCompression::None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packed_memory_flows_through_several_connections() {
    moves_through_several_connections(MigrationCompression::Zstd).await;
}
