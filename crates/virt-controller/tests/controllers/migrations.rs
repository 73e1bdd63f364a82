//! Migrations, with the parts of both virt-handlers played by the test.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::migration_request::VirtualMachineInstanceMigration;
use serde_json::{Value, json};

use super::cluster::{FaultMode, NAMESPACE, TestCluster};

const START: &str = "2026-11-21T12:00:05Z";

pub(crate) fn migrations(cluster: &TestCluster) -> Api<VirtualMachineInstanceMigration> {
    Api::namespaced(cluster.client.clone(), NAMESPACE)
}

async fn create(cluster: &TestCluster, name: &str, vmi: &str) {
    let migration = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name}, "spec": {"vmiName": vmi},
    });
    let migration = serde_json::from_value(migration).unwrap();
    let created = migrations(cluster)
        .create(&PostParams::default(), &migration)
        .await;
    created.unwrap();
}

pub(crate) async fn wait_for_phase(cluster: &TestCluster, name: &str, phase: &str) {
    let api = migrations(cluster);
    cluster
        .wait_until(&format!("{name} is {phase}"), async || {
            let found = api.get(name).await.unwrap().status;
            let found = found.and_then(|status| status.phase);
            found.is_some_and(|found| found.as_str() == phase)
        })
        .await;
}

/// Writes to the VMI's record of the migration, as a virt-handler does.
pub(crate) async fn report(cluster: &TestCluster, vmi: &str, state: Value) {
    let patch = Patch::Merge(json!({"status": {"migrationState": state}}));
    let parameters = PatchParams::default();
    cluster
        .vmis()
        .patch(vmi, &parameters, &patch)
        .await
        .unwrap();
}

async fn pods(cluster: &TestCluster) -> Vec<Pod> {
    let list = cluster.pods().list(&ListParams::default()).await;
    list.unwrap().items
}

async fn state(cluster: &TestCluster, vmi: &str) -> Value {
    let vmi: VirtualMachineInstance = cluster.vmis().get(vmi).await.unwrap();
    json!(vmi.status.unwrap().migration_state)
}

/// A running guest and a migration of it whose new node is ready.
pub(crate) async fn ready_to_move(cluster: &TestCluster, name: &str) {
    create(cluster, name, "a").await;
    wait_for_phase(cluster, name, "PreparingTarget").await;
    report(cluster, "a", json!({"targetNodeAddress": "10.0.0.2"})).await;
    wait_for_phase(cluster, name, "TargetReady").await;
}

#[tokio::test(start_paused = true)]
async fn migration_shows_how_far_the_copy_is() {
    let cluster = with_guest().await;
    ready_to_move(&cluster, "m").await;
    report(&cluster, "a", json!({"startTimestamp": START})).await;
    let shown = async |name: &str| {
        let status = migrations(&cluster).get(name).await.unwrap().status;
        let all = status.unwrap().conditions.into_iter();
        let mut found = all.filter(|one| one.type_.as_str() == "migrationProgress");
        found.next().and_then(|one| one.message)
    };
    let set = async |conditions: Value| {
        let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
        let parameters = PatchParams::default();
        let patched = cluster.vmis().patch("a", &parameters, &patch).await;
        patched.unwrap();
    };
    let message = "81.0 of 96.0 MiB remain";
    set(json!([{"type": "MigrationProgress", "status": "True", "message": message}])).await;
    cluster
        .wait_until("the progress is shown", async || {
            shown("m").await.as_deref() == Some(message)
        })
        .await;
    // The VM does not change all the time.
    let vm = cluster.vms().get("a").await.unwrap().status.unwrap();
    let mut copied = vm.conditions.iter();
    assert!(copied.all(|one| one.type_.as_str() != "MigrationProgress"));
    set(json!([])).await;
    cluster
        .wait_until("it is over", async || shown("m").await.is_none())
        .await;
    cluster.end().await;
}

/// The guest moves: the old node reports the start and the end.
async fn moves(cluster: &TestCluster, name: &str) {
    ready_to_move(cluster, name).await;
    report(cluster, "a", json!({"startTimestamp": START})).await;
    wait_for_phase(cluster, name, "Running").await;
    report(
        cluster,
        "a",
        json!({"completed": true, "endTimestamp": START}),
    )
    .await;
    wait_for_phase(cluster, name, "Succeeded").await;
}

async fn with_guest() -> TestCluster {
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    cluster
}

/// `LiveMigratable` as virt-handler of a single host writes it.
pub(crate) async fn keep_on_node(cluster: &TestCluster, vmi: &str) {
    let conditions = json!([
        {"type": "LiveMigratable", "status": "True", "reason": "OnlyWithinNode"},
        {"type": "Ready", "status": "True"}]);
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    let parameters = PatchParams::default();
    let patched = cluster.vmis().patch(vmi, &parameters, &patch).await;
    patched.unwrap();
}

/// A guest that moves only to other pods of its node.
async fn with_guest_that_stays_on_its_node() -> TestCluster {
    let cluster = with_guest().await;
    keep_on_node(&cluster, "a").await;
    cluster
}

async fn wait_for_active_pods(cluster: &TestCluster, expected: &BTreeMap<String, String>) {
    cluster
        .wait_until("the other pods are forgotten", async || {
            let status = cluster.vmis().get("a").await.unwrap().status.unwrap();
            status.active_pods == *expected
        })
        .await;
}

/// Waits until one pod is left, which is the only active one of the VMI.
async fn settled(cluster: &TestCluster) -> Pod {
    cluster
        .wait_until("one pod is left", async || pods(cluster).await.len() == 1)
        .await;
    let pod = pods(cluster).await.remove(0);
    let node = pod.spec.as_ref().unwrap().node_name.clone().unwrap();
    wait_for_active_pods(cluster, &BTreeMap::from([(pod.uid().unwrap(), node)])).await;
    pod
}

#[tokio::test(start_paused = true)]
async fn guest_moves_to_other_pods_of_its_node() {
    let cluster = with_guest_that_stays_on_its_node().await;
    let uid = cluster.vmis().get("a").await.unwrap().uid();
    let mut known = vec![settled(&cluster).await.name_any()];
    for name in ["first", "second", "third"] {
        moves(&cluster, name).await;
        let pod = settled(&cluster).await;
        assert!(!known.contains(&pod.name_any()), "{name}: {known:?}");
        let state = state(&cluster, "a").await;
        assert_eq!(state["sourceNode"], state["targetNode"]);
        assert_eq!(state["sourcePod"], known.last().unwrap().as_str());
        assert_eq!(state["targetPod"], pod.name_any());
        known.push(pod.name_any());
        let vmi = cluster.vmis().get("a").await.unwrap();
        assert_eq!(vmi.uid(), uid);
        let status = vmi.status.unwrap();
        assert_eq!(status.node_name.as_deref(), Some("node1"));
        assert_eq!(status.phase.unwrap().as_str(), "Running");
    }
    assert_eq!(cluster.printable("a").await, "Running");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn guest_stays_in_its_pod_if_a_move_within_the_node_fails() {
    let cluster = with_guest_that_stays_on_its_node().await;
    let before = settled(&cluster).await.name_any();
    ready_to_move(&cluster, "m").await;
    assert_eq!(pods(&cluster).await.len(), 2);
    let failed = json!({"startTimestamp": START, "completed": true, "failed": true,
        "failureReason": "the other pod has no room"});
    report(&cluster, "a", failed).await;
    wait_for_phase(&cluster, "m", "Failed").await;
    assert_eq!(settled(&cluster).await.name_any(), before);
    moves(&cluster, "next").await;
    assert_ne!(settled(&cluster).await.name_any(), before);
    cluster.end().await;
}

/// The old pod may be gone before the end of the migration is reported.
#[tokio::test(start_paused = true)]
async fn guest_that_runs_in_its_new_pod_is_known_there_though_the_old_one_is_gone() {
    let cluster = with_guest_that_stays_on_its_node().await;
    let old = settled(&cluster).await.name_any();
    ready_to_move(&cluster, "m").await;
    report(&cluster, "a", json!({"startTimestamp": START})).await;
    wait_for_phase(&cluster, "m", "Running").await;
    remove_pod(&cluster, &old).await;
    cluster.advance(Duration::from_secs(20)).await;
    let status = cluster.vmis().get("a").await.unwrap().status.unwrap();
    assert_eq!(status.phase.unwrap().as_str(), "Running");
    let ready = json!({"targetNodeDomainReadyTimestamp": START});
    report(&cluster, "a", ready).await;
    cluster.advance(Duration::from_mins(2)).await;
    let status = cluster.vmis().get("a").await.unwrap().status.unwrap();
    assert_eq!(status.phase.unwrap().as_str(), "Running");
    report(&cluster, "a", json!({"completed": true})).await;
    wait_for_phase(&cluster, "m", "Succeeded").await;
    assert_ne!(settled(&cluster).await.name_any(), old);
    cluster.end().await;
}

/// A move within the node would not help.
#[tokio::test(start_paused = true)]
async fn guest_that_cannot_leave_its_node_is_not_evacuated() {
    let cluster = with_guest_that_stays_on_its_node().await;
    let patch = Patch::Merge(json!({"status": {"evacuationNodeName": "node1"}}));
    let parameters = PatchParams::default();
    let patched = cluster.vmis().patch("a", &parameters, &patch).await;
    patched.unwrap();
    cluster.advance(Duration::from_mins(1)).await;
    let all = migrations(&cluster).list(&ListParams::default()).await;
    assert_eq!(all.unwrap().items.len(), 0);
    cluster.end().await;
}

/// Nobody evicts its pod.
#[tokio::test(start_paused = true)]
async fn guest_leaves_a_node_with_the_taint_of_drained_nodes() {
    let cluster = with_guest().await;
    let parameters = PatchParams::default();
    let patch = json!({"spec": {"evictionStrategy": "LiveMigrate"}, "status": {"conditions": [
        {"type": "LiveMigratable", "status": "True"},
        {"type": "Ready", "status": "True"}]}});
    let patched = cluster
        .vmis()
        .patch("a", &parameters, &Patch::Merge(patch))
        .await;
    patched.unwrap();
    let api = migrations(&cluster);
    let count = async || api.list(&ListParams::default()).await.unwrap().items.len();
    cluster.advance(Duration::from_mins(1)).await;
    assert_eq!(count().await, 0);
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let taint = json!({"key": "kubevirt.io/drain", "effect": "NoSchedule"});
    let taint = Patch::Merge(json!({"spec": {"taints": [taint]}}));
    nodes.patch("node1", &parameters, &taint).await.unwrap();
    cluster
        .wait_until("there is a migration", async || count().await == 1)
        .await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn vmi_follows_its_guest_to_the_other_node_and_back() {
    let cluster = with_guest().await;
    let uid = cluster.vmis().get("a").await.unwrap().uid();
    for (name, node) in [("there", "node2"), ("back", "node1")] {
        moves(&cluster, name).await;
        let vmi = cluster.vmis().get("a").await.unwrap();
        assert_eq!(vmi.uid(), uid);
        assert_eq!(vmi.labels()["kubevirt.io/nodeName"], node);
        let status = vmi.status.unwrap();
        assert_eq!(status.node_name.as_deref(), Some(node));
        assert_eq!(status.phase.unwrap().as_str(), "Running");
        cluster
            .wait_until("the old pod is gone", async || {
                pods(&cluster).await.len() == 1
            })
            .await;
        let [pod] = &pods(&cluster).await[..] else {
            panic!("one pod is left")
        };
        assert_eq!(pod.spec.as_ref().unwrap().node_name.as_deref(), Some(node));
        let expected = BTreeMap::from([(pod.uid().unwrap(), node.to_owned())]);
        cluster
            .wait_until("the old pod is forgotten", async || {
                let status = cluster.vmis().get("a").await.unwrap().status.unwrap();
                status.active_pods == expected
            })
            .await;
    }
    assert_eq!(cluster.printable("a").await, "Running");
    assert!(cluster.events_of("SuccessfulMigration").await > 0);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn guest_that_runs_on_its_new_node_is_followed_though_the_old_one_is_lost() {
    let cluster = with_guest().await;
    ready_to_move(&cluster, "m").await;
    report(&cluster, "a", json!({"startTimestamp": START})).await;
    wait_for_phase(&cluster, "m", "Running").await;
    report(
        &cluster,
        "a",
        json!({"targetNodeDomainReadyTimestamp": START}),
    )
    .await;
    cluster
        .wait_until("it is followed", async || {
            let status = cluster.vmis().get("a").await.unwrap().status.unwrap();
            status.node_name.as_deref() == Some("node2")
        })
        .await;
    // The new node reports the end in place of the old one.
    report(&cluster, "a", json!({"completed": true})).await;
    wait_for_phase(&cluster, "m", "Succeeded").await;
    cluster.end().await;
}

/// The pod of the guest is removed from the server, as after its container has ended.
async fn remove_pod(cluster: &TestCluster, name: &str) {
    let now = DeleteParams::default().grace_period(0);
    cluster.pods().delete(name, &now).await.unwrap();
}

/// Issue: the VMI failed at once, although its guest had been given up to the new pod.
#[tokio::test(start_paused = true)]
async fn guest_is_followed_though_its_old_pod_is_removed_before_the_end_is_reported() {
    let cluster = with_guest().await;
    let old = pods(&cluster).await[0].name_any();
    ready_to_move(&cluster, "m").await;
    report(&cluster, "a", json!({"startTimestamp": START})).await;
    wait_for_phase(&cluster, "m", "Running").await;
    remove_pod(&cluster, &old).await;
    cluster.advance(Duration::from_secs(20)).await;
    let status = cluster.vmis().get("a").await.unwrap().status.unwrap();
    assert_eq!(status.phase.unwrap().as_str(), "Running");
    assert_eq!(pods(&cluster).await.len(), 1, "the new pod stays");
    report(
        &cluster,
        "a",
        json!({"targetNodeDomainReadyTimestamp": START}),
    )
    .await;
    cluster
        .wait_until("it is followed", async || {
            let status = cluster.vmis().get("a").await.unwrap().status.unwrap();
            status.node_name.as_deref() == Some("node2")
        })
        .await;
    report(&cluster, "a", json!({"completed": true})).await;
    wait_for_phase(&cluster, "m", "Succeeded").await;
    assert_eq!(cluster.printable("a").await, "Running");
    cluster.end().await;
}

/// Issue: the VMI failed at once if the clock of its old node was behind.
#[tokio::test(start_paused = true)]
async fn guest_is_followed_though_its_old_pod_ended_long_ago_by_the_clock_of_its_node() {
    let cluster = with_guest().await;
    let vmi = cluster.vmis().get("a").await.unwrap().uid();
    let old = pods(&cluster).await[0].name_any();
    ready_to_move(&cluster, "m").await;
    report(&cluster, "a", json!({"startTimestamp": START})).await;
    wait_for_phase(&cluster, "m", "Running").await;
    let ended = json!({"exitCode": 0, "finishedAt": "2026-11-21T11:00:00Z"});
    let ended = json!({"status": {"phase": "Failed", "containerStatuses": [{
        "name": "compute", "ready": false, "image": "launcher:1", "imageID": "",
        "restartCount": 0, "state": {"running": null, "terminated": ended}}]}});
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(ended));
    let patched = cluster.pods().patch_status(&old, &parameters, &patch).await;
    patched.unwrap();
    cluster.advance(Duration::from_secs(20)).await;
    assert_eq!(
        cluster.vmis().get("a").await.unwrap().uid(),
        vmi,
        "the guest was restarted"
    );
    let ready = json!({"targetNodeDomainReadyTimestamp": START});
    report(&cluster, "a", ready).await;
    cluster
        .wait_until("it is followed", async || {
            let status = cluster.vmis().get("a").await.unwrap().status.unwrap();
            status.node_name.as_deref() == Some("node2")
        })
        .await;
    report(&cluster, "a", json!({"completed": true})).await;
    wait_for_phase(&cluster, "m", "Succeeded").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn guest_that_no_node_reports_is_lost_with_its_pod() {
    let cluster = with_guest().await;
    let vmi = cluster.vmis().get("a").await.unwrap().uid();
    let old = pods(&cluster).await[0].name_any();
    ready_to_move(&cluster, "m").await;
    report(&cluster, "a", json!({"startTimestamp": START})).await;
    wait_for_phase(&cluster, "m", "Running").await;
    remove_pod(&cluster, &old).await;
    wait_for_phase(&cluster, "m", "Failed").await;
    // The VM runs always.
    cluster
        .wait_until("another guest runs", async || {
            let now = cluster.vmis().get_opt("a").await.unwrap();
            now.is_some_and(|now| now.uid() != vmi)
        })
        .await;
    cluster.wait_for_printable("a", "Running").await;
    cluster.end().await;
}

/// Issue: the pod stayed if the controllers were down from the end of one migration to the hand-over of the
/// next.
#[tokio::test(start_paused = true)]
async fn pod_that_the_guest_left_some_migrations_ago_is_deleted() {
    let cluster = with_guest().await;
    moves(&cluster, "there").await;
    let vmi = cluster.vmis().get("a").await.unwrap();
    let ended = migrations(&cluster).get("there").await.unwrap().uid();
    let left = json!({
        "metadata": {
            "name": "left", "labels": {
                "kubevirt.io": "virt-launcher", "kubevirt.io/migrationJobUID": ended},
            "annotations": {"kubevirt.io/migrationJobName": "there"},
            "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                "name": "a", "uid": vmi.uid(), "controller": true}],
        },
        "spec": {"containers": [{"name": "compute", "image": "launcher:1"}]},
    });
    let left = serde_json::from_value(left).unwrap();
    let created = cluster.pods().create(&PostParams::default(), &left).await;
    created.unwrap();
    cluster
        .wait_until("it is deleted", async || {
            cluster.pods().get_opt("left").await.unwrap().is_none()
        })
        .await;
    assert_eq!(cluster.printable("a").await, "Running");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn failed_migration_leaves_the_guest_and_no_pod() {
    let cluster = with_guest().await;
    let before = pods(&cluster).await[0].name_any();
    ready_to_move(&cluster, "m").await;
    assert_eq!(pods(&cluster).await.len(), 2);
    let failed = json!({"startTimestamp": START, "completed": true, "failed": true,
        "failureReason": "the other pod cannot be reached"});
    report(&cluster, "a", failed).await;
    wait_for_phase(&cluster, "m", "Failed").await;
    cluster
        .wait_until("the target pod is gone", async || {
            pods(&cluster).await.len() == 1
        })
        .await;
    assert_eq!(pods(&cluster).await[0].name_any(), before);
    assert_eq!(cluster.printable("a").await, "Running");
    assert!(cluster.events_of("FailedMigration").await > 0);
    // The next one starts afresh.
    moves(&cluster, "next").await;
    assert_eq!(state(&cluster, "a").await["failed"], Value::Null);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn deleted_migration_is_cancelled_in_every_phase() {
    let cluster = with_guest().await;
    let gone = async |name: &str| {
        let api = migrations(&cluster);
        cluster
            .wait_until("the migration is gone", async || {
                api.get_opt(name).await.unwrap().is_none()
            })
            .await;
        cluster
            .wait_until("the target pod is gone", async || {
                pods(&cluster).await.len() == 1
            })
            .await;
    };
    create(&cluster, "early", "a").await;
    let now = DeleteParams::default();
    migrations(&cluster).delete("early", &now).await.unwrap();
    gone("early").await;

    ready_to_move(&cluster, "running").await;
    report(&cluster, "a", json!({"startTimestamp": START})).await;
    migrations(&cluster).delete("running", &now).await.unwrap();
    cluster
        .wait_until("the abort is requested", async || {
            state(&cluster, "a").await["abortRequested"] == true
        })
        .await;
    let aborted = json!({"completed": true, "failed": true, "abortStatus": "Succeeded"});
    report(&cluster, "a", aborted).await;
    gone("running").await;
    assert!(cluster.events_of("SuccessfulAbortMigration").await > 0);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn guest_of_an_evicted_pod_leaves_its_node() {
    let mut cluster = with_guest().await;
    let parameters = PatchParams::default();
    let patch = json!({"status": {"evacuationNodeName": "node1", "conditions": [
        {"type": "LiveMigratable", "status": "True"},
        {"type": "Ready", "status": "True"}]}});
    let patched = cluster
        .vmis()
        .patch("a", &parameters, &Patch::Merge(patch))
        .await;
    patched.unwrap();
    let api = migrations(&cluster);
    cluster
        .wait_until("there is a migration", async || {
            let all = api.list(&ListParams::default()).await.unwrap().items;
            all.iter().any(|one| {
                one.annotations()
                    .contains_key("kubevirt.io/evacuationMigration")
            })
        })
        .await;
    let all = api.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(all.len(), 1);
    let name = all[0].name_any();
    wait_for_phase(&cluster, &name, "PreparingTarget").await;
    // Once it has left the node, the next eviction is possible.
    cluster.crash_after("virt-controller/migration/end-evacuation");
    report(
        &cluster,
        "a",
        json!({"startTimestamp": START, "completed": true}),
    )
    .await;
    wait_for_phase(&cluster, &name, "Succeeded").await;
    cluster
        .wait_until("it is not evacuated any more", async || {
            let status = cluster.vmis().get("a").await.unwrap().status.unwrap();
            status.evacuation_node_name.is_none()
        })
        .await;
    assert!(!cluster.is_crash_pending());
    cluster.advance(Duration::from_mins(1)).await;
    assert_eq!(
        api.list(&ListParams::default()).await.unwrap().items.len(),
        1
    );
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn limits_hold_back_migrations() {
    let cluster = with_guest().await;
    for name in ["b", "c"] {
        cluster.create_vm(name, "Always").await;
        cluster.wait_for_printable(name, "Running").await;
    }
    // Of those that were created in the same second, any may come first.
    for name in ["a", "b"] {
        create(&cluster, name, name).await;
        wait_for_phase(&cluster, name, "PreparingTarget").await;
    }
    create(&cluster, "c", "c").await;
    cluster.advance(Duration::from_mins(1)).await;
    // Two at a time leave one node.
    wait_for_phase(&cluster, "c", "Pending").await;
    report(&cluster, "a", json!({"completed": true, "failed": true})).await;
    wait_for_phase(&cluster, "c", "PreparingTarget").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn migrations_whose_pods_are_refused_do_not_stop_others() {
    let cluster = with_guest().await;
    for name in ["b", "c"] {
        cluster.create_vm(name, "Always").await;
        cluster.wait_for_printable(name, "Running").await;
    }
    let is_refused = async |name: &str| {
        let found = migrations(&cluster).get(name).await.unwrap().status;
        let found = found.map(|status| status.conditions).unwrap_or_default();
        found.iter().any(|one| one.status == "True")
    };
    cluster.set_fault_mode(FaultMode::QuotaExceeded);
    // Two at a time leave one node; the third one gets its turn, too.
    for name in ["a", "b", "c"] {
        create(&cluster, name, name).await;
        cluster
            .wait_until(&format!("{name} is refused"), async || {
                is_refused(name).await
            })
            .await;
    }
    cluster.set_fault_mode(FaultMode::None);
    cluster
        .wait_until("two of them go on", async || {
            let all = migrations(&cluster).list(&ListParams::default()).await;
            let all = all.unwrap().items.into_iter();
            let phases = all.filter_map(|one| one.status.and_then(|status| status.phase));
            let prepare = phases.filter(|phase| phase.as_str() == "PreparingTarget");
            prepare.count() == 2
        })
        .await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn target_pod_whose_name_is_taken_ends_the_migration() {
    let cluster = with_guest().await;
    let vmi = cluster.vmis().get("a").await.unwrap();
    cluster.set_fault_mode(FaultMode::QuotaExceeded);
    create(&cluster, "m", "a").await;
    cluster.advance(Duration::from_secs(2)).await;
    cluster.set_fault_mode(FaultMode::None);
    let uid = migrations(&cluster).get("m").await.unwrap().uid().unwrap();
    let name = launcher_pod::target_pod_name(&vmi, &uid);
    let foreign = json!({"metadata": {"name": name}, "spec": {"containers": [
        {"name": "compute", "image": "other"}]}});
    let foreign = serde_json::from_value(foreign).unwrap();
    let created = cluster
        .pods()
        .create(&PostParams::default(), &foreign)
        .await;
    created.unwrap();
    wait_for_phase(&cluster, "m", "Failed").await;
    assert!(cluster.pods().get_opt(&name).await.unwrap().is_some());
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn deleted_migration_of_no_guest_goes() {
    let cluster = TestCluster::new().await;
    let api = migrations(&cluster);
    let migration = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "m", "finalizers": ["kubevirt.io/migrationJobFinalize"]},
        "spec": {"vmiName": "a"},
    });
    let migration = serde_json::from_value(migration).unwrap();
    api.create(&PostParams::default(), &migration)
        .await
        .unwrap();
    api.delete("m", &DeleteParams::default()).await.unwrap();
    cluster
        .wait_until("it is gone", async || {
            api.get_opt("m").await.unwrap().is_none()
        })
        .await;
    cluster.end().await;
}

/// Crashes the controllers at each failpoint of a migration: it ends as without.
#[tokio::test(start_paused = true)]
async fn migration_survives_a_crash_of_the_controllers_at_every_failpoint() {
    let names = ::failpoints::NAMES.lines();
    let names = names.filter(|name| name.starts_with("virt-controller/migration/"));
    // Reached by other tests only: six ended migrations, an eviction, an update, a change that is taken back, an
    // attached volume, a migration between two VMIs.
    let rare = [
        "abort-needless",
        "accept-node",
        "clean-up",
        "create-attachment",
        "end-evacuation",
        "evict-outdated",
        "hand-over-elsewhere",
        "move-guest",
        "pair",
        "synchronize",
        "withdraw",
    ];
    let names = names.filter(|name| !rare.iter().any(|rare| name.ends_with(rare)));
    for (name, leaves) in names.flat_map(|name| [(name, true), (name, false)]) {
        let mut cluster = with_guest().await;
        if !leaves {
            keep_on_node(&cluster, "a").await;
        }
        cluster.crash_after(name);
        ready_to_move(&cluster, "cancelled").await;
        let api = migrations(&cluster);
        api.delete("cancelled", &DeleteParams::default())
            .await
            .unwrap();
        cluster
            .wait_until("the abort is requested", async || {
                state(&cluster, "a").await["abortRequested"] == true
            })
            .await;
        let aborted = json!({"completed": true, "failed": true, "abortStatus": "Succeeded"});
        report(&cluster, "a", aborted).await;
        cluster
            .wait_until("it is gone", async || {
                api.get_opt("cancelled").await.unwrap().is_none() && pods(&cluster).await.len() == 1
            })
            .await;
        moves(&cluster, "m").await;
        settled(&cluster).await;
        assert!(
            !cluster.is_crash_pending(),
            "failpoint {name} was not reached"
        );
        cluster.end().await;
    }
}
