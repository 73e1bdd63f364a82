//! Deleting a VM in any phase leaves nothing behind.

use e2e::{eventually, processes_of_pod, tiny_vm};

use crate::{TestNamespace, test_namespace};

/// Deletes the VM and waits until nothing is left in the API and on the nodes.
async fn delete(test: &TestNamespace, name: &str) {
    let pods = test.pod_list().await;
    test.kubectl(&["delete", "vm", name, "--timeout=90s"])
        .await
        .success();
    test.wait_gone(&test.vmis(), name).await;
    for (pod, uid) in pods {
        test.wait_gone(&test.pods(), &pod).await;
        eventually("without traces", || {
            let left = processes_of_pod(&uid);
            let files: Vec<_> = test.pod_files().filter(|pod| pod.ends_with(&uid)).collect();
            if left.is_empty() && files.is_empty() {
                Ok(())
            } else {
                Err((left, files))
            }
        })
        .await;
    }
    assert_eq!(test.pod_list().await, []);
}

#[tokio::test]
async fn vm_can_be_deleted_right_after_creation() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("early")).await;
    delete(&test, "early").await;
}

#[tokio::test]
async fn vm_can_be_deleted_while_starting() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("starting")).await;
    e2e::wait_for(&test.vmis(), "starting", "on its way", |vmi| {
        matches!(
            vmi["status"]["phase"].as_str(),
            Some("Scheduling" | "Scheduled")
        )
    })
    .await;
    delete(&test, "starting").await;
}

#[tokio::test]
async fn vm_can_be_deleted_while_running() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("running")).await;
    test.wait_vmi_phase("running", "Running").await;
    delete(&test, "running").await;
}

#[tokio::test]
async fn vm_can_be_deleted_while_paused() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("paused")).await;
    test.greeting("paused").await;
    test.virtctl(&["pause", "vm", "paused"]).await.success();
    test.wait_vm_status("paused", "Paused").await;
    delete(&test, "paused").await;
}

#[tokio::test]
async fn vm_can_be_deleted_while_stopping() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("stopping")).await;
    test.greeting("stopping").await;
    test.virtctl(&["stop", "stopping"]).await.success();
    delete(&test, "stopping").await;
}
