//! Many guests that are alike.

use serde_json::Value;
use stories::{DEADLINE, replica_set, wait_for};

use crate::{Story, story};

const GROUP: &str = "kubevirt.io";
const KIND: &str = "VirtualMachineInstanceReplicaSet";

/// Waits until so many are wanted, there, and ready.
async fn has(story: &Story, name: &str, count: u64) {
    let sets = story.objects(GROUP, "v1", KIND);
    let says = move |set: &Value| {
        let number = |field: &str| set["status"][field].as_u64().unwrap_or(0);
        number("replicas") == count && number("readyReplicas") == count
    };
    wait_for(&sets, name, "as large as asked", says).await;
}

async fn scale(story: &Story, name: &str, count: u32) {
    let set = format!("vmirs/{name}");
    let replicas = format!("--replicas={count}");
    story.kubectl(&["scale", &set, &replicas]).await.good();
}

#[tokio::test]
async fn a_replica_set_grows_replaces_what_was_lost_and_shrinks() {
    let story = story().await;
    story.apply_object(&replica_set("many", 0)).await;
    has(&story, "many", 0).await;
    scale(&story, "many", 2).await;
    has(&story, "many", 2).await;

    let before = story.instances_are("two", |names| names.len() == 2).await;
    let lost = before[0].clone();
    let patience = format!("--timeout={}s", DEADLINE.as_secs());
    story
        .kubectl(&["delete", "vmi", &lost, &patience])
        .await
        .good();
    let is_replaced = |names: &[String]| names.len() == 2 && !names.contains(&lost);
    let after = story.instances_are("two again", is_replaced).await;
    assert!(after.contains(&before[1]), "{before:?} {after:?}");
    has(&story, "many", 2).await;

    scale(&story, "many", 0).await;
    has(&story, "many", 0).await;
    story.instances_are("gone", <[String]>::is_empty).await;
}
