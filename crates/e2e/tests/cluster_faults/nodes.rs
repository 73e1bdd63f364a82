//! A node is disconnected for two minutes, or lost permanently: the status of its guests, and that none
//! runs twice.

use std::time::Duration;

use e2e::{
    GuestProcesses, VmManifest, answer, eventually, keeps_counting, start_counting, tiny_vm,
    wait_for, wait_for_within,
};
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::TestNamespace;

/// How long a node is disconnected.
const CUT: Duration = Duration::from_mins(2);
/// How soon after the node's return the status must be right.
const STATUS_DEADLINE: Duration = Duration::from_secs(15);
/// Kubernetes deletes pods of a missing node after 40 s, and checks every 20 s.
const CLEARING: Duration = Duration::from_mins(3);

fn nodes(test: &TestNamespace) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Node"));
    Api::all_with(test.client.clone(), &kind)
}

fn has_condition(object: &Value, kind: &str, status: &str) -> bool {
    let mut all = object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    all.any(|one| one["type"] == kind && one["status"] == status)
}

fn node(vmi: &Value) -> String {
    let name = vmi["status"]["nodeName"].as_str();
    name.expect("it is on a node").to_owned()
}

async fn wait_node_ready_is(test: &TestNamespace, node: &str, status: &str) {
    let what = format!("Ready={status}");
    wait_for(&nodes(test), node, &what, |node| {
        has_condition(node, "Ready", status)
    })
    .await;
}

/// Waits for a status of the VMI's `Ready` condition.
async fn is_ready(test: &TestNamespace, name: &str, status: &str) -> Value {
    let what = format!("Ready={status}");
    wait_for(&test.vmis(), name, &what, |vmi| {
        has_condition(vmi, "Ready", status)
    })
    .await
}

#[tokio::test]
async fn guests_survive_node_disconnect_and_become_ready_after_it() {
    let test = TestNamespace::create_exclusive().await;
    let vmi = start_counting(&test, "cut").await;
    let (node, pods) = (node(&vmi), test.pod_list().await);
    is_ready(&test, "cut", "True").await;
    let mut seen = GuestProcesses::of(&test.namespace);

    let began = Instant::now();
    let cut = test.environment.disconnect_node(&node);
    let meanwhile = async {
        wait_node_ready_is(&test, &node, "Unknown").await;
        let out_of_reach = is_ready(&test, "cut", "False").await;
        assert_eq!(out_of_reach["status"]["phase"], "Running");
        let unready = |vm: &Value| vm["status"]["ready"] != true;
        let vm = wait_for(&test.vms(), "cut", "not ready", unready).await;
        assert_eq!(vm["status"]["printableStatus"], "Running");
        let next = format!("describe node {node}");
        let unready = answer("node-not-ready", &node, &next);
        test.why_answers("cut", unready).await;
        keeps_counting(&test, &vmi).await;
        // The subject of the test.
        sleep_until(began + CUT).await;
        keeps_counting(&test, &vmi).await;
        let still = test.wait_vmi_phase("cut", "Running").await;
        assert_eq!(still["metadata"]["uid"], vmi["metadata"]["uid"]);
    };
    seen.during(meanwhile).await;

    drop(cut);
    let after = async {
        wait_node_ready_is(&test, &node, "True").await;
        let back = Instant::now();
        let now = is_ready(&test, "cut", "True").await;
        let ready = |vm: &Value| vm["status"]["ready"] == true;
        wait_for(&test.vms(), "cut", "ready", ready).await;
        let took = back.elapsed();
        println!("right {took:.1?} after the node reports again");
        assert!(took < STATUS_DEADLINE, "right only after {took:?}");
        for field in ["phase", "nodeName", "activePods"] {
            assert_eq!(now["status"][field], vmi["status"][field]);
        }
        assert_eq!(test.pod_list().await, pods);
        keeps_counting(&test, &vmi).await;
        // The VM can be controlled again.
        test.virtctl(&["pause", "vm", "cut"]).await.success();
        test.wait_vm_status("cut", "Paused").await;
        test.virtctl(&["unpause", "vm", "cut"]).await.success();
        keeps_counting(&test, &vmi).await;
    };
    seen.during(after).await;
    assert_eq!((seen.duplicates(), seen.lifetimes("cut")), (Vec::new(), 1));
}

/// A VM bound to this node.
fn on(vm: VmManifest, node: &str) -> VmManifest {
    vm.spec("nodeSelector", json!({"kubernetes.io/hostname": node}))
}

#[tokio::test]
async fn vms_of_deleted_node_restart_elsewhere_once() {
    let test = TestNamespace::create_exclusive().await;
    let vmi = start_counting(&test, "lost").await;
    let gone = node(&vmi);
    let stays = on(tiny_vm("stays").strategy("Manual"), &gone);
    test.apply(&stays).await;
    test.wait_vm_status("stays", "Stopped").await;
    test.virtctl(&["start", "stays"]).await.success();
    test.wait_vm_status("stays", "Running").await;
    let mut seen = GuestProcesses::of(&test.namespace);
    seen.sample();

    test.environment.kill_node(&gone);
    eventually("all guests of the node gone", || {
        seen.sample();
        if seen.is_running("lost") {
            Err(())
        } else {
            Ok(())
        }
    })
    .await;
    let until_it_runs = async {
        // Until its Node is deleted, the node may only be disconnected and its guests may run.
        wait_node_ready_is(&test, &gone, "Unknown").await;
        is_ready(&test, "lost", "False").await;
        let now = test.wait_vmi_phase("lost", "Running").await;
        assert_eq!(now["metadata"]["uid"], vmi["metadata"]["uid"]);
        nodes(&test)
            .delete(&gone, &DeleteParams::default())
            .await
            .expect("delete the node");
        let deleted = answer("node-gone", &gone, "get nodes");
        test.why_answers("lost", deleted).await;
        let uid = vmi["metadata"]["uid"].clone();
        let is_another =
            |vmi: &Value| vmi["status"]["phase"] == "Running" && vmi["metadata"]["uid"] != uid;
        let vmis = test.vmis();
        wait_for_within(CLEARING, &vmis, "lost", "running again", is_another).await
    };
    let again = seen.during(until_it_runs).await;
    assert_ne!(node(&again), gone);
    let failed = test.wait_vmi_phase("stays", "Failed").await;
    assert_eq!(failed["status"]["reason"], "NodeUnresponsive", "{failed}");
    test.wait_vm_status("stays", "Stopped").await;
    let unresponsive = answer("node-lost", &gone, "get nodes");
    test.why_answers("stays", unresponsive).await;

    // The node of that name returns, and has nothing to restart.
    let back = async {
        test.environment.complete().await;
        wait_node_ready_is(&test, &gone, "True").await;
        let schedulable =
            |node: &Value| node["metadata"]["labels"]["kubevirt.io/schedulable"] == "true";
        wait_for(&nodes(&test), &gone, "schedulable", schedulable).await;
        let now = test.wait_vmi_phase("lost", "Running").await;
        assert_eq!(now["metadata"]["uid"], again["metadata"]["uid"]);
        let pods = test.pods().list(&ListParams::default()).await;
        assert_eq!(pods.expect("list pods").items.len(), 1);
    };
    seen.during(back).await;
    let lifetimes = (seen.lifetimes("lost"), seen.lifetimes("stays"));
    assert_eq!((seen.duplicates(), lifetimes), (Vec::new(), (2, 1)));
}
