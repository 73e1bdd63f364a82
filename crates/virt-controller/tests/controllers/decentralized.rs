//! Guests that go from one VM to another, with the parts of virt-handler played by the test.

use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use super::cluster::TestCluster;
use super::migrations::{migrations, report, wait_for_phase};

const START: &str = "2026-11-21T12:00:05Z";

async fn create(cluster: &TestCluster, name: &str, spec: Value) {
    let migration = serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name}, "spec": spec,
    }));
    let created = migrations(cluster)
        .create(&PostParams::default(), &migration.unwrap())
        .await;
    created.unwrap();
}

async fn send(cluster: &TestCluster, name: &str) {
    let end = json!({"migrationID": "id", "connectURL": "local-cluster:9185"});
    create(cluster, name, json!({"vmiName": "a", "sendTo": end})).await;
}

async fn receive(cluster: &TestCluster, name: &str) {
    let end = json!({"migrationID": "id"});
    create(cluster, name, json!({"vmiName": "b", "receive": end})).await;
}

/// A VM `a` with a guest, and `b` that waits for it.
async fn with_two_vms() -> TestCluster {
    with_two_vms_of(test_cluster::guest()).await
}

/// The same, and `b` has this guest.
async fn with_two_vms_of(guest: Value) -> TestCluster {
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    let vm = serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "b",
                     "annotations": {"kubevirt.io/restore-run-strategy": "RerunOnFailure"}},
        "spec": {"runStrategy": "WaitAsReceiver", "template": {"spec": guest}},
    }));
    let created = cluster
        .vms()
        .create(&PostParams::default(), &vm.unwrap())
        .await;
    created.unwrap();
    cluster.wait_for_printable("b", "WaitingForReceiver").await;
    cluster
}

async fn pods(cluster: &TestCluster) -> usize {
    let list = cluster.pods().list(&ListParams::default()).await;
    list.unwrap().items.len()
}

async fn strategy(cluster: &TestCluster, vm: &str) -> Value {
    let vm = cluster.vms().get(vm).await.unwrap();
    json!(vm.spec.run_strategy)
}

async fn state(cluster: &TestCluster, vmi: &str) -> Value {
    let vmi = cluster.vmis().get(vmi).await.unwrap();
    json!(vmi.status.unwrap().migration_state)
}

/// Both ends wait for virt-handler of the new node.
async fn begin(cluster: &TestCluster) {
    receive(cluster, "in").await;
    wait_for_phase(cluster, "in", "WaitingForSync").await;
    assert_eq!(pods(cluster).await, 1, "no pod before there is a guest");
    send(cluster, "out").await;
    wait_for_phase(cluster, "in", "PreparingTarget").await;
    wait_for_phase(cluster, "out", "PreparingTarget").await;
}

async fn moves(cluster: &TestCluster) {
    begin(cluster).await;
    let waiting = cluster.vmis().get("b").await.unwrap();
    assert_eq!(waiting.status.unwrap().phase.unwrap().as_str(), "Scheduled");
    report(cluster, "b", json!({"targetNodeAddress": "10.0.0.2"})).await;
    wait_for_phase(cluster, "out", "TargetReady").await;
    report(cluster, "a", json!({"startTimestamp": START})).await;
    wait_for_phase(cluster, "in", "Running").await;
    let end = json!({"completed": true, "endTimestamp": START});
    report(cluster, "a", end).await;
    wait_for_phase(cluster, "out", "Succeeded").await;
    wait_for_phase(cluster, "in", "Succeeded").await;
    cluster
        .wait_until("the guest is of one VM", async || {
            strategy(cluster, "a").await == "Halted"
                && strategy(cluster, "b").await == "RerunOnFailure"
                && cluster.vmis().get_opt("a").await.unwrap().is_none()
                && pods(cluster).await == 1
        })
        .await;
    cluster.wait_for_printable("b", "Running").await;
    cluster.wait_for_printable("a", "Stopped").await;
}

#[tokio::test(start_paused = true)]
async fn guest_goes_to_another_vm_despite_a_crash_at_every_failpoint() {
    let names = [
        "migration/pair",
        "migration/accept-node",
        "migration/hand-over-elsewhere",
        "migration/synchronize",
        "vm/halt",
        "vm/restore-strategy",
    ];
    for name in names {
        let mut cluster = with_two_vms().await;
        cluster.crash_after(&format!("virt-controller/{name}"));
        moves(&cluster).await;
        let failpoint = format!("failpoint {name} was not reached");
        assert!(!cluster.is_crash_pending(), "{failpoint}");
        cluster.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn end_that_is_cancelled_ends_both_and_the_guest_stays() {
    for (cancelled, other, crashes) in [
        ("in", "out", true),
        ("in", "out", false),
        ("out", "in", false),
    ] {
        let mut cluster = with_two_vms().await;
        if crashes {
            cluster.crash_after("virt-controller/migration/withdraw");
        }
        begin(&cluster).await;
        let api = migrations(&cluster);
        api.delete(cancelled, &DeleteParams::default())
            .await
            .unwrap();
        cluster
            .wait_until("the abort is requested", async || {
                state(&cluster, "a").await["abortRequested"] == true
            })
            .await;
        let aborted = json!({"completed": true, "failed": true, "abortStatus": "Succeeded",
                             "failureReason": "the migration was cancelled"});
        report(&cluster, "a", aborted).await;
        wait_for_phase(&cluster, other, "Failed").await;
        cluster
            .wait_until("the pod of the other VM is gone", async || {
                pods(&cluster).await == 1
            })
            .await;
        cluster.wait_for_printable("a", "Running").await;
        assert_eq!(strategy(&cluster, "a").await, "Always");
        assert_eq!(strategy(&cluster, "b").await, "WaitAsReceiver");
        assert!(!cluster.is_crash_pending(), "{cancelled}");
        cluster.end().await;
    }
}

/// The end that sends has other migrations of its guest wait for it.
#[tokio::test(start_paused = true)]
async fn end_that_fails_before_there_is_a_pod_ends_the_other_one_at_once() {
    let mut guest = test_cluster::guest();
    guest["domain"]["memory"]["guest"] = "256Mi".into();
    let cluster = with_two_vms_of(guest).await;
    send(&cluster, "out").await;
    wait_for_phase(&cluster, "out", "Synchronizing").await;
    let before = tokio::time::Instant::now();
    receive(&cluster, "in").await;
    wait_for_phase(&cluster, "in", "Failed").await;
    wait_for_phase(&cluster, "out", "Failed").await;
    let passed = before.elapsed();
    assert!(passed < Duration::from_mins(2), "{passed:?}");
    cluster.wait_for_printable("a", "Running").await;
    cluster.wait_for_printable("b", "WaitingForReceiver").await;
    cluster.end().await;
}

/// No virt-handler reports whether the guest has left: its VM does not start it again before the other pod is gone.
#[tokio::test(start_paused = true)]
async fn guest_that_ends_unreported_starts_again_after_the_other_pod_is_gone() {
    let cluster = with_two_vms().await;
    begin(&cluster).await;
    report(&cluster, "b", json!({"targetNodeAddress": "10.0.0.2"})).await;
    wait_for_phase(&cluster, "out", "TargetReady").await;
    report(&cluster, "a", json!({"startTimestamp": START})).await;
    wait_for_phase(&cluster, "in", "Running").await;
    let before = cluster.vmis().get("a").await.unwrap().uid();
    cluster.set_phase("a", "Failed").await;
    cluster.advance(Duration::from_secs(5)).await;
    assert_eq!(cluster.vmis().get("a").await.unwrap().uid(), before);
    cluster
        .wait_until("another guest starts", async || {
            let now = cluster.vmis().get_opt("a").await.unwrap();
            let is_new = now.is_some_and(|now| now.uid() != before);
            if is_new {
                let waits = cluster.vmis().get("b").await.unwrap().status.unwrap();
                assert_eq!(waits.phase.unwrap().as_str(), "Failed");
            }
            is_new
        })
        .await;
    wait_for_phase(&cluster, "in", "Failed").await;
    wait_for_phase(&cluster, "out", "Failed").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn id_that_a_third_migration_has_moves_nothing() {
    let cluster = with_two_vms().await;
    cluster.create_vm("c", "Always").await;
    cluster.wait_for_printable("c", "Running").await;
    let end = json!({"migrationID": "id", "connectURL": "local-cluster:9185"});
    create(&cluster, "third", json!({"vmiName": "c", "sendTo": end})).await;
    wait_for_phase(&cluster, "third", "Synchronizing").await;
    send(&cluster, "out").await;
    wait_for_phase(&cluster, "out", "Synchronizing").await;
    receive(&cluster, "in").await;
    cluster
        .wait_until("the end that receives says why it waits", async || {
            let status = migrations(&cluster).get("in").await.unwrap().status;
            let conditions = json!(status.unwrap_or_default().conditions);
            conditions.to_string().contains("SeveralPeers")
        })
        .await;
    assert!(state(&cluster, "b").await.is_null());
    let api = migrations(&cluster);
    api.delete("third", &DeleteParams::default()).await.unwrap();
    wait_for_phase(&cluster, "in", "PreparingTarget").await;
    cluster.end().await;
}
