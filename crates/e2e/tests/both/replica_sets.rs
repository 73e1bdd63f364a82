//! Replica sets.

use e2e::{DEADLINE, replica_set, wait_for};
use serde_json::Value;

use crate::{TestNamespace, test_namespace};

const GROUP: &str = "kubevirt.io";
const KIND: &str = "VirtualMachineInstanceReplicaSet";

/// Waits until this number of replicas is desired, exists, and is ready.
async fn has(test: &TestNamespace, name: &str, count: u64) {
    let sets = test.objects(GROUP, "v1", KIND);
    let has_replicas = move |set: &Value| {
        let number = |field: &str| set["status"][field].as_u64().unwrap_or(0);
        number("replicas") == count && number("readyReplicas") == count
    };
    wait_for(&sets, name, "as large as requested", has_replicas).await;
}

async fn scale(test: &TestNamespace, name: &str, count: u32) {
    let set = format!("vmirs/{name}");
    let replicas = format!("--replicas={count}");
    test.kubectl(&["scale", &set, &replicas]).await.success();
}

#[tokio::test]
async fn replica_set_scales_up_replaces_lost_vmis_and_scales_down() {
    let test = test_namespace().await;
    test.apply_object(&replica_set("many", 0)).await;
    has(&test, "many", 0).await;
    scale(&test, "many", 2).await;
    has(&test, "many", 2).await;

    let before = test.wait_vmi_names("two", |names| names.len() == 2).await;
    let lost = before[0].clone();
    let patience = format!("--timeout={}s", DEADLINE.as_secs());
    test.kubectl(&["delete", "vmi", &lost, &patience])
        .await
        .success();
    let is_replaced = |names: &[String]| names.len() == 2 && !names.contains(&lost);
    let after = test.wait_vmi_names("two again", is_replaced).await;
    assert!(after.contains(&before[1]), "{before:?} {after:?}");
    has(&test, "many", 2).await;

    scale(&test, "many", 0).await;
    has(&test, "many", 0).await;
    test.wait_vmi_names("gone", <[String]>::is_empty).await;
}
