//! `virtctl why` names what stops a migration, and why the last one has failed.

use e2e::{answer, kill_if_alive, processes_of_pod};
use serde_json::json;

use super::{
    Policy, STALLED, is_over, migrate, phase, runs_once, start, wait_migratable, wait_migration,
};
use crate::TestNamespace;

/// The nodes have no such label.
const NOWHERE: &str = "test.example/nowhere";

#[tokio::test]
async fn obstacles_of_a_migration_are_explained() {
    let test = TestNamespace::create_exclusive().await;
    let (_, mut serial) = start(&test, "held").await;
    test.apply_object(&json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "nowhere"},
        "spec": {"vmiName": "held", "addedNodeSelector": {NOWHERE: "yes"}},
    }))
    .await;
    let unschedulable = answer(
        "move-unschedulable",
        "node affinity",
        "describe pod virt-launcher-held-",
    );
    test.why_answers("held", unschedulable).await;
    test.virtctl(&["migrate-cancel", "held"]).await.success();
    runs_once(&test, "held").await;

    let policy = Policy::slow(&test, "held", STALLED).await;
    wait_migratable(&test, "held").await;
    test.virtctl(&["migrate", "held"]).await.success();
    let not_converging = answer(
        "move-not-converging",
        "it does not end like this",
        "migrate-cancel held",
    );
    test.why_answers("held", not_converging).await;

    let vmi = test.wait_vmi_phase("held", "Running").await;
    let target = &vmi["status"]["migrationState"]["targetNode"];
    let pods = vmi["status"]["activePods"].as_object().expect("has pods");
    let new = pods.iter().filter(|(_, node)| *node == target);
    for (process, _) in new.flat_map(|(uid, _)| processes_of_pod(uid)) {
        kill_if_alive(process);
    }
    let migration = wait_migration(&test, &mut serial, is_over).await;
    assert_eq!(phase(&migration), "Failed", "{migration:#}");
    let node = target.as_str().expect("the state names the node");
    test.why_answers("held", answer("move-failed", node, "migrate held --watch"))
        .await;

    // Nothing is wrong any more once a later one has moved the guest.
    drop(policy);
    runs_once(&test, "held").await;
    wait_migratable(&test, "held").await;
    let last = migrate(&test, "held", &mut serial).await;
    assert_eq!(phase(&last), "Succeeded", "{last:#}");
    test.virtctl(&["why", "held"]).await.success();
    serial.goes_on(&test).await;
}
