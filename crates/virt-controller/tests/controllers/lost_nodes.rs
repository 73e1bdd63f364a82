//! An unreachable node, and its return.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use kubevirt_api::conditions;
use kubevirt_api::vmi_status::VirtualMachineInstanceConditionType as Condition;
use serde_json::json;

use crate::cluster::{FaultMode, TestCluster};

const HEARTBEAT_AT: &str = "2026-11-21T12:00:00Z";

/// Writes one heartbeat of the node.
async fn beat(cluster: &TestCluster) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let body = json!({"metadata": {
        "annotations": {"kubevirt.io/heartbeat": HEARTBEAT_AT},
        "labels": {"kubevirt.io/schedulable": "true"},
    }});
    let (parameters, body) = (PatchParams::default(), Patch::Merge(body));
    nodes.patch("node1", &parameters, &body).await.unwrap();
}

/// UIDs of all pods.
async fn pods(cluster: &TestCluster) -> Vec<String> {
    let list = cluster.pods().list(&ListParams::default()).await.unwrap();
    list.items
        .iter()
        .filter_map(kube::ResourceExt::uid)
        .collect()
}

/// Waits until the first guest is gone and a second one runs.
async fn wait_for_one_guest(cluster: &TestCluster, first: &str) {
    cluster
        .wait_until("one guest runs", async || {
            let now = pods(cluster).await;
            cluster.printable("a").await == "Running" && now.len() == 1 && now[0] != first
        })
        .await;
    let vmi = cluster.vmis().get("a").await.unwrap();
    let active: Vec<String> = vmi.status.unwrap().active_pods.into_keys().collect();
    assert_eq!(active, pods(cluster).await);
    let writes = cluster.all_writes();
    cluster.advance(Duration::from_mins(2)).await;
    assert_eq!(cluster.all_writes(), writes, "writes without a change");
}

#[tokio::test(start_paused = true)]
async fn guest_of_a_lost_node_is_replaced_when_the_node_returns() {
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    beat(&cluster).await;
    let first = cluster.vmis().get("a").await.unwrap();
    let pod = pods(&cluster).await.remove(0);

    cluster.set_fault_mode(FaultMode::NodeUnreachable);
    cluster.advance(Duration::from_mins(6)).await;
    // The guest may still run, so its pod is kept.
    let still = cluster.vmis().get("a").await.unwrap();
    assert_eq!(still.uid(), first.uid());
    assert_eq!(cluster.printable("a").await, "Running");
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let node = nodes.get("node1").await.unwrap();
    assert_eq!(node.labels()["kubevirt.io/schedulable"], "false");

    // Kubernetes evicts the pod after a while; the unreachable node does not notice.
    let name = launcher_pod::pod_name(&first);
    let graceful = DeleteParams::default();
    cluster.pods().delete(&name, &graceful).await.unwrap();
    cluster
        .wait_until("marked as failed", async || {
            let status = cluster.vmis().get("a").await.unwrap().status.unwrap();
            status.reason.as_deref() == Some("NodeUnresponsive")
        })
        .await;
    assert_eq!(cluster.events_of("Stopped").await, 1);
    cluster.advance(Duration::from_mins(1)).await;
    let writes = cluster.all_writes();
    cluster.advance(Duration::from_mins(30)).await;
    // Though marked as failed, the guest may still run: there must be no second one.
    let still = cluster.vmis().get("a").await.unwrap();
    assert_eq!(still.uid(), first.uid());
    assert_eq!(pods(&cluster).await, std::slice::from_ref(&pod));
    assert_eq!(cluster.all_writes(), writes, "writes without a change");

    cluster.set_fault_mode(FaultMode::None);
    wait_for_one_guest(&cluster, &pod).await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn force_deleted_guest_of_a_lost_node_is_replaced_once() {
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    beat(&cluster).await;
    let first = cluster.vmis().get("a").await.unwrap();
    let pod = pods(&cluster).await.remove(0);
    cluster.set_fault_mode(FaultMode::NodeUnreachable);
    let graceful = DeleteParams::default();
    cluster.vmis().delete("a", &graceful).await.unwrap();
    cluster.advance(Duration::from_secs(30)).await;
    let still = cluster.vmis().get("a").await.unwrap();
    assert_eq!(still.uid(), first.uid(), "its guest may run");

    let at_once = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    let name = launcher_pod::pod_name(&first);
    cluster.pods().delete(&name, &at_once).await.unwrap();
    cluster
        .wait_until("replaced", async || {
            let vmi = cluster.vmis().get_opt("a").await.unwrap();
            let is_other = vmi.is_some_and(|vmi| vmi.uid() != first.uid());
            is_other && pods(&cluster).await.len() == 1
        })
        .await;
    cluster.set_fault_mode(FaultMode::None);
    wait_for_one_guest(&cluster, &pod).await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn guest_of_an_unreachable_node_is_not_ready_but_running() {
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    let is_ready = async || {
        let status = cluster.vms().get("a").await.unwrap().status;
        status.is_some_and(|status| status.ready == Some(true))
    };
    cluster.wait_until("ready", is_ready).await;
    let first = cluster.vmis().get("a").await.unwrap();

    cluster.set_fault_mode(FaultMode::NodeUnreachable);
    // Kubernetes sets this on all pods of an unreachable node, without a reason.
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let name = launcher_pod::pod_name(&first);
    let (parameters, body) = (PatchParams::default(), Patch::Merge(unready));
    let patched = cluster.pods().patch_status(&name, &parameters, &body).await;
    patched.unwrap();
    let is_unready = async || !is_ready().await;
    cluster.wait_until("no longer ready", is_unready).await;
    let now = cluster.vmis().get("a").await.unwrap();
    let status = now.status.as_ref().unwrap();
    let ready = conditions::find(&status.conditions, &Condition::Ready).unwrap();
    assert_eq!(ready.message.as_deref(), Some(conditions::OUT_OF_REACH));
    assert_eq!(now.uid(), first.uid());
    assert_eq!(cluster.printable("a").await, "Running");
    let writes = cluster.all_writes();
    cluster.advance(Duration::from_mins(2)).await;
    assert_eq!(cluster.all_writes(), writes, "writes without a change");
    cluster.end().await;
}
