//! Manually deleted VMIs and pods are recreated; deleting a VM orphans or cascades.

use e2e::{DEADLINE, kill_in_pod, tiny_vm, wait_for};
use serde_json::Value;

use crate::{TestNamespace, test_namespace};

const QEMU: &str = "qemu-system-x86";

async fn delete(test: &TestNamespace, arguments: &[&str]) {
    let patience = format!("--timeout={}s", DEADLINE.as_secs());
    let mut all = vec!["delete", &patience];
    all.extend(arguments);
    test.kubectl(&all).await.success();
}

fn uid(object: &Value) -> &str {
    let uid = object["metadata"]["uid"].as_str();
    uid.expect("an object from the server has a UID")
}

#[tokio::test]
async fn deleted_vmi_and_pod_are_recreated() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("again")).await;
    let first = test.wait_vmi_phase("again", "Running").await;
    delete(&test, &["vmi", "again", "--wait=false"]).await;
    let second = test.wait_new_vmi("again", &first).await;
    let pods = format!("--selector=kubevirt.io/created-by={}", uid(&second));
    delete(&test, &["pods", &pods, "--wait=false"]).await;
    test.wait_new_vmi("again", &second).await;
    test.wait_vm_status("again", "Running").await;
}

#[tokio::test]
async fn vm_deletion_orphans_or_cascades_as_requested() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("kept")).await;
    let guest = test.wait_vmi_phase("kept", "Running").await;
    delete(&test, &["vm", "kept", "--cascade=orphan"]).await;
    let is_alone = |vmi: &Value| vmi["metadata"]["ownerReferences"].is_null();
    let create_exclusive = wait_for(&test.vmis(), "kept", "left behind", is_alone).await;
    assert_eq!(uid(&create_exclusive), uid(&guest));
    assert_eq!(create_exclusive["status"]["phase"], "Running");

    test.apply(&tiny_vm("kept")).await;
    let is_owned = |vmi: &Value| vmi["metadata"]["ownerReferences"][0]["kind"] == "VirtualMachine";
    let adopted = wait_for(&test.vmis(), "kept", "adopted", is_owned).await;
    assert_eq!(uid(&adopted), uid(&guest));
    assert_eq!(adopted["status"]["phase"], "Running");

    delete(&test, &["vm", "kept", "--cascade=foreground"]).await;
    let left = test.vmis().get_opt("kept").await.expect("get the VMI");
    assert!(left.is_none(), "the VMI outlives its VM: {left:?}");
}

#[tokio::test]
async fn crashed_guest_is_not_restarted_by_once_and_manual() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("once").strategy("Once")).await;
    test.apply(&tiny_vm("manual").strategy("Manual")).await;
    test.wait_vm_status("manual", "Stopped").await;
    test.virtctl(&["start", "manual"]).await.success();
    let mut crashed = Vec::new();
    for name in ["once", "manual"] {
        let vmi = test.wait_vmi_phase(name, "Running").await;
        let pods = vmi["status"]["activePods"].as_object();
        let pod = pods.and_then(|pods| pods.keys().next());
        kill_in_pod(pod.expect("a running VMI has a pod"), QEMU);
        crashed.push(test.wait_vmi_phase(name, "Failed").await);
    }
    // After manual deletion the first is recreated and the second is not.
    delete(&test, &["vmi", "once", "manual"]).await;
    test.wait_new_vmi("once", &crashed[0]).await;
    test.wait_vm_status("manual", "Stopped").await;
    let manual = test.vmis().get_opt("manual").await.expect("get the VMI");
    assert!(manual.is_none(), "{manual:?}");
}
