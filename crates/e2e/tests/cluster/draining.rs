//! Draining a node with guests that cannot migrate.

use e2e::{claim, tiny_vm};
use serde_json::{Value, json};

use crate::TestNamespace;

fn node(vmi: &Value) -> String {
    let name = vmi["status"]["nodeName"].as_str();
    name.expect("it is on a node").to_owned()
}

/// Drains the node of this VM's pod only, and uncordons it.
async fn drain(test: &TestNamespace, name: &str, node: &str, patience: &str) -> e2e::Outcome {
    let selector = format!("--pod-selector=kubevirt.io/vm={name}");
    let patience = format!("--timeout={patience}");
    let drained = test
        .kubectl(&[
            "drain",
            node,
            &selector,
            &patience,
            "--delete-emptydir-data",
        ])
        .await;
    if drained.is_success {
        test.wait_vm_status(name, "Running").await;
    }
    test.kubectl(&["uncordon", node]).await.success();
    drained
}

#[tokio::test]
async fn evicted_vm_without_strategy_restarts_on_another_node() {
    let test = TestNamespace::create_exclusive().await;
    test.apply(&tiny_vm("mobile")).await;
    test.greeting("mobile").await;
    let first = test.wait_vmi_phase("mobile", "Running").await;
    let from = node(&first);
    test.kubectl(&["cordon", &from]).await.success();
    let drained = drain(&test, "mobile", &from, "90s").await;
    drained.success();
    let second = test.wait_new_vmi("mobile", &first).await;
    assert_ne!(node(&second), from);
}

#[tokio::test]
async fn unmigratable_vm_blocks_drain_and_reports_it() {
    let test = TestNamespace::create_exclusive().await;
    test.apply_object(&claim("bound", "Filesystem")).await;
    let disk = json!({"persistentVolumeClaim": {"claimName": "bound"}});
    let bound = tiny_vm("bound").disk(&disk);
    test.apply(&bound.spec("evictionStrategy", "LiveMigrate"))
        .await;
    test.greeting("bound").await;
    let first = test.wait_vmi_phase("bound", "Running").await;
    let failure = drain(&test, "bound", &node(&first), "5s").await.failure();
    assert!(
        failure.contains("must be migrated but is not migratable"),
        "{failure}"
    );
    let now = test.wait_vmi_phase("bound", "Running").await;
    assert_eq!(now["metadata"]["uid"], first["metadata"]["uid"]);
}
