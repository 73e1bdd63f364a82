//! What each run strategy does when the guest ends.

use e2e::{kill_in_pod, tiny_vm};

use crate::test_namespace;

const QEMU: &str = "qemu-system-x86";

#[tokio::test]
async fn always_restarts_after_guest_poweroff() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("always")).await;
    let mut console = test.shell("always").await;
    let first = test.wait_vmi_phase("always", "Running").await;
    console.send("poweroff -f\n").await;
    test.wait_new_vmi("always", &first).await;
    test.wait_vm_status("always", "Running").await;
}

#[tokio::test]
async fn rerun_on_failure_restarts_after_crash_only() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("rerun").strategy("RerunOnFailure"))
        .await;
    let first = test.wait_vmi_phase("rerun", "Running").await;
    kill_in_pod(&test.pod_uid().await, QEMU);
    let second = test.wait_new_vmi("rerun", &first).await;
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    let mut console = test.shell("rerun").await;
    console.send("poweroff -f\n").await;
    test.wait_vm_status("rerun", "Stopped").await;
}

#[tokio::test]
async fn manual_starts_and_stops_on_request_only() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("manual").strategy("Manual")).await;
    test.wait_vm_status("manual", "Stopped").await;
    assert!(
        test.vmis()
            .get_opt("manual")
            .await
            .expect("get the VMI")
            .is_none()
    );
    test.virtctl(&["start", "manual"]).await.success();
    let mut console = test.shell("manual").await;
    console.send("poweroff -f\n").await;
    test.wait_vm_status("manual", "Stopped").await;
}

#[tokio::test]
async fn once_runs_one_time() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("once").strategy("Once")).await;
    let first = test.wait_vmi_phase("once", "Running").await;
    let mut console = test.shell("once").await;
    console.send("poweroff -f\n").await;
    test.wait_vm_status("once", "Stopped").await;
    // By the time another VM runs, the controller has had every event of this one.
    test.apply(&tiny_vm("later")).await;
    test.wait_vmi_phase("later", "Running").await;
    test.wait_vm_status("once", "Stopped").await;
    let last = test.wait_vmi_phase("once", "Succeeded").await;
    assert_eq!(last["metadata"]["uid"], first["metadata"]["uid"]);
}

#[tokio::test]
async fn halted_vm_starts_when_strategy_changes() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("halted").strategy("Halted")).await;
    test.wait_vm_status("halted", "Stopped").await;
    assert!(
        test.vmis()
            .get_opt("halted")
            .await
            .expect("get the VMI")
            .is_none()
    );
    test.apply(&tiny_vm("halted").strategy("Always")).await;
    test.wait_vm_status("halted", "Running").await;
}

#[tokio::test]
async fn deprecated_running_field_works() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("old").running(true)).await;
    test.wait_vm_status("old", "Running").await;
    test.apply(&tiny_vm("old").running(false)).await;
    test.wait_vm_status("old", "Stopped").await;
}
