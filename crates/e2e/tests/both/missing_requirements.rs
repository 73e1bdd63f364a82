//! A VM waits for missing objects, reports them, and starts once they exist.

use e2e::{claim, tiny_vm};
use serde_json::json;

use crate::test_namespace;

#[tokio::test]
async fn start_continues_once_requirements_are_met() {
    let test = test_namespace().await;
    let label = format!("{}/place", test.namespace);
    let volume = json!({"persistentVolumeClaim": {"claimName": "late"}});
    test.apply(&tiny_vm("claim").disk(&volume)).await;
    let volume = json!({"secret": {"secretName": "late"}});
    test.apply(&tiny_vm("secret").disk(&volume)).await;
    let place = tiny_vm("place").spec("nodeSelector", json!({label.as_str(): "here"}));
    test.apply(&place).await;

    test.wait_vm_status("claim", "ErrorPvcNotFound").await;
    test.wait_vm_status("place", "ErrorUnschedulable").await;
    test.wait_vmi_phase("secret", "Scheduling").await;

    test.apply_object(&claim("late", "Filesystem")).await;
    let secret = ["create", "secret", "generic", "late", "--from-literal=a=b"];
    test.kubectl(&secret).await.success();
    let here = format!("{label}=here");
    test.kubectl(&["label", "nodes", "--all", &here])
        .await
        .success();
    for name in ["claim", "secret", "place"] {
        test.wait_vmi_phase(name, "Running").await;
    }
    let nowhere = format!("{label}-");
    test.kubectl(&["label", "nodes", "--all", &nowhere])
        .await
        .success();
}
