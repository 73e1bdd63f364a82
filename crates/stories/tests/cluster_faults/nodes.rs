//! A node is cut off for two minutes, or gone for good: what is said of its guests, and that none runs
//! twice.

use std::time::Duration;

use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::{Value, json};
use stories::{
    Machine, Sightings, counting, counts_on, eventually, machine, wait_for, wait_longer,
};
use tokio::time::{Instant, sleep_until};

use crate::Story;

/// How long a node is cut off.
const CUT: Duration = Duration::from_mins(2);
/// How soon all is right again once the node is heard.
const RIGHT_WITHIN: Duration = Duration::from_secs(15);
/// Kubernetes leaves pods of a node that is not there in peace for 40 s, and looks every 20 s.
const CLEARING: Duration = Duration::from_mins(3);

fn nodes(story: &Story) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Node"));
    Api::all_with(story.client.clone(), &kind)
}

fn says(object: &Value, kind: &str, status: &str) -> bool {
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

async fn node_says(story: &Story, node: &str, status: &str) {
    let what = format!("Ready={status}");
    wait_for(&nodes(story), node, &what, |node| {
        says(node, "Ready", status)
    })
    .await;
}

/// The instance, once it says so of being ready.
async fn is_ready(story: &Story, name: &str, status: &str) -> Value {
    let what = format!("Ready={status}");
    wait_for(&story.vmis(), name, &what, |vmi| says(vmi, "Ready", status)).await
}

#[tokio::test]
async fn guests_of_a_node_that_is_cut_off_go_on_and_are_not_ready_until_it_is_back() {
    let story = Story::alone().await;
    let vmi = counting(&story, "cut").await;
    let (node, pods) = (node(&vmi), story.pod_list().await);
    is_ready(&story, "cut", "True").await;
    let mut seen = Sightings::of(&story.namespace);

    let began = Instant::now();
    let cut = story.home.cut_off(&node);
    let meanwhile = async {
        node_says(&story, &node, "Unknown").await;
        let out_of_reach = is_ready(&story, "cut", "False").await;
        assert_eq!(out_of_reach["status"]["phase"], "Running");
        let unready = |vm: &Value| vm["status"]["ready"] != true;
        let vm = wait_for(&story.vms(), "cut", "not ready", unready).await;
        assert_eq!(vm["status"]["printableStatus"], "Running");
        counts_on(&story, &vmi).await;
        // It is what the story is about.
        sleep_until(began + CUT).await;
        counts_on(&story, &vmi).await;
        let still = story.vmi_is("cut", "Running").await;
        assert_eq!(still["metadata"]["uid"], vmi["metadata"]["uid"]);
    };
    seen.during(meanwhile).await;

    drop(cut);
    let after = async {
        node_says(&story, &node, "True").await;
        let back = Instant::now();
        let now = is_ready(&story, "cut", "True").await;
        let ready = |vm: &Value| vm["status"]["ready"] == true;
        wait_for(&story.vms(), "cut", "ready", ready).await;
        let took = back.elapsed();
        println!("right {took:.1?} after the node is heard again");
        assert!(took < RIGHT_WITHIN, "right only after {took:?}");
        for field in ["phase", "nodeName", "activePods"] {
            assert_eq!(now["status"][field], vmi["status"][field]);
        }
        assert_eq!(story.pod_list().await, pods);
        counts_on(&story, &vmi).await;
        // It is in hand again.
        story.virtctl(&["pause", "vm", "cut"]).await.good();
        story.vm_is("cut", "Paused").await;
        story.virtctl(&["unpause", "vm", "cut"]).await.good();
        counts_on(&story, &vmi).await;
    };
    seen.during(after).await;
    assert_eq!((seen.twins(), seen.lives("cut")), (Vec::new(), 1));
}

/// A machine for this node alone.
fn on(machine: Machine, node: &str) -> Machine {
    machine.spec("nodeSelector", json!({"kubernetes.io/hostname": node}))
}

#[tokio::test]
async fn machines_of_a_node_that_is_gone_for_good_run_elsewhere_once_it_is_deleted() {
    let story = Story::alone().await;
    let vmi = counting(&story, "lost").await;
    let gone = node(&vmi);
    let stays = on(machine("stays").strategy("Manual"), &gone);
    story.apply(&stays).await;
    story.vm_is("stays", "Stopped").await;
    story.virtctl(&["start", "stays"]).await.good();
    story.vm_is("stays", "Running").await;
    let mut seen = Sightings::of(&story.namespace);
    seen.look();

    story.home.end_node(&gone);
    eventually("all guests of the node gone", || {
        seen.look();
        if seen.is_living("lost") {
            Err(())
        } else {
            Ok(())
        }
    })
    .await;
    let until_it_runs = async {
        // As long as nobody knows that the node is gone it may be cut off, and its guests run.
        node_says(&story, &gone, "Unknown").await;
        is_ready(&story, "lost", "False").await;
        let now = story.vmi_is("lost", "Running").await;
        assert_eq!(now["metadata"]["uid"], vmi["metadata"]["uid"]);
        nodes(&story)
            .delete(&gone, &DeleteParams::default())
            .await
            .expect("delete the node");
        let uid = vmi["metadata"]["uid"].clone();
        let is_another =
            |vmi: &Value| vmi["status"]["phase"] == "Running" && vmi["metadata"]["uid"] != uid;
        let vmis = story.vmis();
        wait_longer(CLEARING, &vmis, "lost", "running again", is_another).await
    };
    let again = seen.during(until_it_runs).await;
    assert_ne!(node(&again), gone);
    let failed = story.vmi_is("stays", "Failed").await;
    assert_eq!(failed["status"]["reason"], "NodeUnresponsive", "{failed}");
    story.vm_is("stays", "Stopped").await;

    // The machine of that name comes back, and has nothing to start again.
    let back = async {
        story.home.complete().await;
        node_says(&story, &gone, "True").await;
        let schedulable =
            |node: &Value| node["metadata"]["labels"]["kubevirt.io/schedulable"] == "true";
        wait_for(&nodes(&story), &gone, "schedulable", schedulable).await;
        let now = story.vmi_is("lost", "Running").await;
        assert_eq!(now["metadata"]["uid"], again["metadata"]["uid"]);
        let pods = story.pods().list(&ListParams::default()).await;
        assert_eq!(pods.expect("list pods").items.len(), 1);
    };
    seen.during(back).await;
    let lives = (seen.lives("lost"), seen.lives("stays"));
    assert_eq!((seen.twins(), lives), (Vec::new(), (2, 1)));
}
