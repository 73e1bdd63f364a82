//! Starting, stopping, pausing.

use e2e::{tiny_vm, wait_for};
use serde_json::Value;

use crate::test_namespace;

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.and_then(|all| all.iter().find(|one| one["type"] == kind));
    found.map_or(&Value::Null, |condition| &condition["status"])
}

#[tokio::test]
async fn virtctl_stop_and_start_work() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("power")).await;
    let first = test.wait_vmi_phase("power", "Running").await;
    test.greeting("power").await;

    test.virtctl(&["stop", "power"]).await.success();
    let vm = test.wait_vm_status("power", "Stopped").await;
    assert_eq!(vm["spec"]["runStrategy"], "Halted");
    assert_ne!(vm["status"]["ready"], true);
    test.wait_gone(&test.vmis(), "power").await;

    test.virtctl(&["start", "power"]).await.success();
    let vm = test.wait_vm_status("power", "Running").await;
    assert_eq!(vm["spec"]["runStrategy"], "Always");
    test.wait_new_vmi("power", &first).await;
}

#[tokio::test]
async fn virtctl_restart_works() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("again")).await;
    let first = test.wait_vmi_phase("again", "Running").await;
    test.greeting("again").await;
    test.virtctl(&["restart", "again"]).await.success();
    let second = test.wait_new_vmi("again", &first).await;
    test.wait_vm_status("again", "Running").await;
    assert_eq!(second["metadata"]["name"], "again");
}

#[tokio::test]
async fn paused_guest_continues_when_unpaused() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("still")).await;
    let mut console = test.shell("still").await;
    test.virtctl(&["pause", "vm", "still"]).await.success();
    test.wait_vm_status("still", "Paused").await;
    let is_paused = |vmi: &Value| condition(vmi, "Paused") == "True";
    wait_for(&test.vmis(), "still", "paused", is_paused).await;
    let waited = [
        "wait",
        "vm/still",
        "--for=condition=Paused",
        "--timeout=30s",
    ];
    test.kubectl(&waited).await.success();

    test.virtctl(&["unpause", "vm", "still"]).await.success();
    test.wait_vm_status("still", "Running").await;
    let goes_on = |vmi: &Value| condition(vmi, "Paused") != "True";
    wait_for(&test.vmis(), "still", "going on", goes_on).await;
    assert_eq!(console.shell("echo awake").await, "awake");
}
