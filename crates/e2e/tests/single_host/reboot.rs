//! A reboot of the host: no process is left, and the records are those of an earlier boot.

use std::sync::Arc;

use e2e::{Host, tiny_vm};
use serde_json::Value;

use crate::TestNamespace;

async fn pod_address(test: &TestNamespace, vmi: &Value) -> String {
    let uid = vmi["metadata"]["uid"].as_str().expect("a UID");
    let label = format!("--selector=kubevirt.io/created-by={uid}");
    let output = "--output=jsonpath={.items[0].status.podIP}";
    let address = test
        .kubectl(&["get", "pod", &label, output])
        .await
        .success();
    assert!(!address.is_empty(), "a running pod has an address");
    address
}

#[tokio::test]
async fn vms_that_should_run_are_running_after_a_reboot() {
    let host = Arc::new(Host::up().await);
    let test = TestNamespace::on(Arc::clone(&host)).await;
    let strategies = ["Always", "RerunOnFailure", "Manual"];
    for strategy in strategies {
        test.apply(&tiny_vm(&strategy.to_lowercase()).strategy(strategy))
            .await;
    }
    test.apply(&tiny_vm("halted").strategy("Halted")).await;
    test.virtctl(&["start", "manual"]).await.success();
    let always = test.wait_vmi_phase("always", "Running").await;
    let rerun = test.wait_vmi_phase("rerunonfailure", "Running").await;
    test.wait_vmi_phase("manual", "Running").await;

    let address = pod_address(&test, &always).await;

    host.reboot().await;
    host.start(&[]).await.success();
    let again = test.wait_new_vmi("always", &always).await;
    assert_eq!(pod_address(&test, &again).await, address);
    test.wait_new_vmi("rerunonfailure", &rerun).await;
    test.greeting("always").await;
    test.wait_vmi_phase("manual", "Failed").await;
    let vmis = test
        .kubectl(&["get", "vmi", "--output=name"])
        .await
        .success();
    assert!(!vmis.contains("halted"), "{vmis}");
}
