//! Guests that rely on a fixed frequency of the time stamp counter.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kubevirt_api::VirtualMachine;
use serde_json::Value;

use super::*;

/// Changes labels of the node.
async fn label(cluster: &TestCluster, labels: Value) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    let patched = nodes.patch("node1", &PatchParams::default(), &patch).await;
    patched.unwrap();
}

/// The labels of the node with frequencies that it offers.
async fn offered(cluster: &TestCluster) -> Vec<String> {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let node = nodes.get("node1").await.unwrap();
    let prefix = "scheduling.node.kubevirt.io/tsc-frequency-";
    let suffixes = node
        .labels()
        .keys()
        .filter_map(|key| key.strip_prefix(prefix));
    suffixes.map(ToOwned::to_owned).collect()
}

async fn create_vm(cluster: &TestCluster, name: &str) {
    let mut spec = test_cluster::guest();
    spec["architecture"] = "amd64".into();
    spec["domain"]["cpu"] = json!({"features": [{"name": "invtsc", "policy": "require"}]});
    let vm = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"runStrategy": "Always", "template": {"spec": spec}},
    });
    let vm: VirtualMachine = serde_json::from_value(vm).unwrap();
    let made = cluster.vms().create(&PostParams::default(), &vm).await;
    made.unwrap();
}

async fn frequency(cluster: &TestCluster, name: &str) -> Option<i64> {
    let status = cluster.vmis().get(name).await.unwrap().status.unwrap();
    status.topology_hints?.tsc_frequency
}

#[tokio::test(start_paused = true)]
async fn guest_with_invariant_counter_gets_the_frequency_of_nodes_that_offer_it() {
    let cluster = TestCluster::new().await;
    label(
        &cluster,
        json!({
            "kubevirt.io/schedulable": "true",
            "cpu-timer.node.kubevirt.io/tsc-frequency": "2000000000",
            "cpu-timer.node.kubevirt.io/tsc-scalable": "true",
        }),
    )
    .await;
    cluster
        .wait_until("labelled", async || {
            offered(&cluster).await == ["2000000000"]
        })
        .await;

    create_vm(&cluster, "a").await;
    cluster.wait_for_printable("a", "Running").await;
    assert_eq!(frequency(&cluster, "a").await, Some(2_000_000_000));
    let pods = cluster.pods().list(&ListParams::default()).await.unwrap();
    let selector = pods.items[0].spec.clone().unwrap().node_selector.unwrap();
    let key = "scheduling.node.kubevirt.io/tsc-frequency-2000000000";
    assert_eq!(selector[key], "true");

    // A faster processor still offers what the guest uses.
    let faster = json!({"cpu-timer.node.kubevirt.io/tsc-frequency": "3000000000"});
    label(&cluster, faster).await;
    cluster
        .wait_until("labelled again", async || {
            offered(&cluster).await == ["2000000000", "3000000000"]
        })
        .await;
    assert_eq!(frequency(&cluster, "a").await, Some(2_000_000_000));
    let writes = cluster.all_writes();
    cluster.advance(Duration::from_mins(2)).await;
    assert_eq!(cluster.all_writes(), writes, "writes without a change");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn guest_starts_without_a_frequency_while_no_node_reports_any() {
    let cluster = TestCluster::new().await;
    create_vm(&cluster, "a").await;
    cluster.wait_for_printable("a", "Running").await;
    assert_eq!(frequency(&cluster, "a").await, None);
    cluster.end().await;
}
