//! A guest moves between the two nodes while it runs.

use std::collections::BTreeSet;
use std::time::Duration;

use e2e::{DEADLINE, FeatureGates, eventually, start_counting, wait_for};
use kube::api::ListParams;
use serde_json::Value;
use tokio::time::Instant;

use crate::TestNamespace;

const GATE: &str = "LiveMigrationPreview";

fn node(vmi: &Value) -> String {
    let name = vmi["status"]["nodeName"].as_str();
    name.expect("it is on a node").to_owned()
}

/// The numbers on the guest's console, of all of its pods that still have files.
fn counted(test: &TestNamespace, vmi: &Value) -> BTreeSet<u32> {
    let uid = vmi["metadata"]["uid"].as_str().expect("a VMI has a UID");
    let tail = format!("volumes/kubernetes.io~empty-dir/private/{uid}/virt-serial0-log");
    let logs = test.pod_files().map(|pod| pod.join(&tail));
    let texts: Vec<String> = logs
        .filter_map(|log| std::fs::read(log).ok())
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .collect();
    let number = |line: &str| line.trim().strip_prefix("count ")?.parse().ok();
    let lines = texts.iter().flat_map(|text| text.lines());
    lines.filter_map(number).collect()
}

/// Waits until the guest has counted further than `from`.
async fn counts_on(test: &TestNamespace, vmi: &Value, from: u32) -> u32 {
    eventually("counting", || {
        let last = counted(test, vmi).last().copied().unwrap_or(0);
        if last >= from + 5 {
            Ok(last)
        } else {
            Err((from, last))
        }
    })
    .await
}

async fn wait_migratable(test: &TestNamespace, name: &str) {
    let is_migratable = |vmi: &Value| {
        let conditions = vmi["status"]["conditions"].as_array();
        let mut all = conditions.into_iter().flatten();
        all.any(|one| one["type"] == "LiveMigratable" && one["status"] == "True")
    };
    wait_for(&test.vmis(), name, "migratable", is_migratable).await;
}

/// The newest migration.
async fn newest(test: &TestNamespace) -> Option<Value> {
    let migrations = test.objects("kubevirt.io", "v1", "VirtualMachineInstanceMigration");
    let all = migrations.list(&ListParams::default()).await;
    let mut all = all.expect("list migrations").items;
    all.sort_by_key(|one| one.metadata.creation_timestamp.clone().map(|at| at.0));
    let last = all.pop()?;
    Some(serde_json::to_value(last).expect("is JSON"))
}

/// Asks for a migration and waits for its end. Collects the numbers meanwhile: the log of the old pod
/// goes with it.
async fn migrate(test: &TestNamespace, vmi: &Value, numbers: &mut BTreeSet<u32>) -> Value {
    let name = vmi["metadata"]["name"].as_str().expect("has a name");
    test.virtctl(&["migrate", name]).await.success();
    let until = Instant::now() + DEADLINE;
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    loop {
        ticks.tick().await;
        numbers.extend(counted(test, vmi));
        let migration = newest(test).await.expect("virtctl has created one");
        let phase = migration["status"]["phase"].as_str().unwrap_or_default();
        if phase == "Succeeded" || phase == "Failed" {
            return migration;
        }
        assert!(Instant::now() < until, "not over: {migration:#}");
    }
}

#[tokio::test]
async fn counting_guest_moves_to_the_other_node_and_back() {
    let test = TestNamespace::create_exclusive().await;
    let _gates = FeatureGates::switch(test.environment.as_ref(), &[GATE], &[]).await;
    let first = start_counting(&test, "mobile").await;
    let mut last = counts_on(&test, &first, 0).await;
    let mut numbers = BTreeSet::new();
    let mut here = node(&first);
    for _ in 0..2 {
        wait_migratable(&test, "mobile").await;
        let migration = migrate(&test, &first, &mut numbers).await;
        assert_eq!(migration["status"]["phase"], "Succeeded", "{migration:#}");
        let now = test.wait_vmi_phase("mobile", "Running").await;
        assert_eq!(now["metadata"]["uid"], first["metadata"]["uid"]);
        assert_ne!(node(&now), here);
        here = node(&now);
        last = counts_on(&test, &first, last).await;
        numbers.extend(counted(&test, &first));
        let all: Vec<u32> = numbers.iter().copied().collect();
        for pair in all.windows(2) {
            assert_eq!(pair[0] + 1, pair[1], "a count is lost");
        }
    }
}

#[tokio::test]
async fn cancelled_migration_leaves_the_guest_where_it_is() {
    let test = TestNamespace::create_exclusive().await;
    let _gates = FeatureGates::switch(test.environment.as_ref(), &[GATE], &[]).await;
    let first = start_counting(&test, "stays").await;
    wait_migratable(&test, "stays").await;
    test.virtctl(&["migrate", "stays"]).await.success();
    test.virtctl(&["migrate-cancel", "stays"]).await.success();
    let until = Instant::now() + DEADLINE;
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    while let Some(left) = newest(&test).await {
        assert!(Instant::now() < until, "not gone: {left:#}");
        ticks.tick().await;
    }
    let last = counted(&test, &first).last().copied().unwrap_or(0);
    counts_on(&test, &first, last).await;
    let now = test.wait_vmi_phase("stays", "Running").await;
    assert_eq!(node(&now), node(&first));
    // Its pod alone is left.
    let one = eventually("one pod", || {
        let directories = test.pod_files().filter(|pod| {
            let uid = first["metadata"]["uid"].as_str().unwrap_or_default();
            pod.join(format!("volumes/kubernetes.io~empty-dir/private/{uid}"))
                .exists()
        });
        match directories.count() {
            1 => Ok(()),
            other => Err(other),
        }
    });
    one.await;
}
