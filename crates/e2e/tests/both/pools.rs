//! Pools.

use e2e::{DEADLINE, pool, wait_for};
use serde_json::{Value, json};

use crate::{TestNamespace, test_namespace};

const GROUP: &str = "pool.kubevirt.io";
const KIND: &str = "VirtualMachinePool";

/// Waits until this number of replicas is desired, exists, and is ready.
async fn has(test: &TestNamespace, name: &str, count: u64) {
    let pools = test.objects(GROUP, "v1beta1", KIND);
    let has_replicas = move |pool: &Value| {
        let number = |field: &str| pool["status"][field].as_u64().unwrap_or(0);
        number("replicas") == count && number("readyReplicas") == count
    };
    wait_for(&pools, name, "as large as requested", has_replicas).await;
}

async fn scale(test: &TestNamespace, name: &str, count: u32) {
    let pool = format!("vmpool/{name}");
    let replicas = format!("--replicas={count}");
    test.kubectl(&["scale", &pool, &replicas]).await.success();
}

#[tokio::test]
async fn pool_scales_replaces_deleted_vms_and_brings_guests_to_its_template() {
    let test = test_namespace().await;
    test.apply_object(&pool("farm", 0)).await;
    has(&test, "farm", 0).await;
    scale(&test, "farm", 2).await;
    has(&test, "farm", 2).await;
    let are_both = |names: &[String]| *names == ["farm-0", "farm-1"];
    test.wait_vmi_names("two", are_both).await;

    let first = test.wait_vmi_phase("farm-0", "Running").await;
    let patience = format!("--timeout={}s", DEADLINE.as_secs());
    test.kubectl(&["delete", "vm", "farm-0", &patience])
        .await
        .success();
    test.wait_new_vmi("farm-0", &first).await;
    has(&test, "farm", 2).await;

    let (zeroth, other) = (
        test.wait_vmi_phase("farm-0", "Running").await,
        test.wait_vmi_phase("farm-1", "Running").await,
    );
    let template = json!({"spec": {"template": {"spec": {"hostname": "renamed"}}}});
    let patch = json!({"spec": {"virtualMachineTemplate": template}}).to_string();
    test.kubectl(&["patch", "vmpool/farm", "--type=merge", "-p", &patch])
        .await
        .success();
    for (name, earlier) in [("farm-0", &zeroth), ("farm-1", &other)] {
        let vmi = test.wait_new_vmi(name, earlier).await;
        assert_eq!(vmi["spec"]["hostname"], "renamed", "{vmi:#}");
    }
    has(&test, "farm", 2).await;

    scale(&test, "farm", 0).await;
    has(&test, "farm", 0).await;
    test.wait_vmi_names("gone", <[String]>::is_empty).await;
}
