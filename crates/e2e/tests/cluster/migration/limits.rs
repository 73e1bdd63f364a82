//! Several migrations at once: no more than the configuration permits.

use e2e::{DEADLINE, FeatureGates, GuestProcesses, tiny_vm};
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{assert_ran_once, is_over, node, phase, ticks, wait_migratable};
use crate::TestNamespace;

const GUESTS: [&str; 6] = ["one", "two", "three", "four", "five", "six"];
const PARALLEL: usize = 2;

#[tokio::test]
async fn no_more_guests_move_at_once_than_permitted() {
    let test = TestNamespace::create_exclusive().await;
    let limits = json!({"migrations": {
        "parallelMigrationsPerCluster": PARALLEL, "parallelOutboundMigrationsPerNode": PARALLEL,
    }});
    let _limits = FeatureGates::configure(test.environment.as_ref(), &limits).await;
    for name in GUESTS {
        test.apply(&tiny_vm(name)).await;
    }
    let mut before = Vec::new();
    for name in GUESTS {
        let vmi = test.wait_vmi_phase(name, "Running").await;
        wait_migratable(&test, name).await;
        before.push(node(&vmi));
    }
    let mut seen = GuestProcesses::of(&test.namespace);
    let moves = async {
        for name in GUESTS {
            test.virtctl(&["migrate", name]).await.success();
        }
        let most = all_over(&test).await;
        assert!(most <= PARALLEL, "{most} at once");
    };
    seen.during(moves).await;
    for (name, before) in GUESTS.into_iter().zip(before) {
        let now = test.wait_vmi_phase(name, "Running").await;
        assert_ne!(node(&now), before, "{name}");
    }
    assert_ran_once(&seen);
}

/// Waits until all migrations have succeeded; returns how many were under way at once.
async fn all_over(test: &TestNamespace) -> usize {
    let migrations = test.objects("kubevirt.io", "v1", "VirtualMachineInstanceMigration");
    let until = Instant::now() + DEADLINE * 2;
    let mut ticks = ticks();
    let mut most = 0;
    loop {
        ticks.tick().await;
        let all = migrations.list(&ListParams::default()).await;
        let all = all.expect("list migrations").items;
        let all: Vec<Value> = all
            .into_iter()
            .map(|one| serde_json::to_value(one).expect("is JSON"))
            .collect();
        let under_way = |one: &&Value| !is_over(one) && !matches!(phase(one), "" | "Pending");
        most = most.max(all.iter().filter(under_way).count());
        assert!(all.iter().all(|one| phase(one) != "Failed"), "{all:#?}");
        if all.len() == GUESTS.len() && all.iter().all(is_over) {
            return most;
        }
        assert!(Instant::now() < until, "not over in time: {all:#?}");
    }
}
