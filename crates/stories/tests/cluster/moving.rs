//! A node is drained: what becomes of guests that cannot be moved while they run.

use serde_json::{Value, json};
use stories::{claim, machine};

use crate::Story;

fn node(vmi: &Value) -> String {
    let name = vmi["status"]["nodeName"].as_str();
    name.expect("it is on a node").to_owned()
}

/// Drains the node of this machine's pod alone, and lets pods onto it again.
async fn drain(story: &Story, name: &str, node: &str, patience: &str) -> stories::Outcome {
    let selector = format!("--pod-selector=kubevirt.io/vm={name}");
    let patience = format!("--timeout={patience}");
    let drained = story
        .kubectl(&[
            "drain",
            node,
            &selector,
            &patience,
            "--delete-emptydir-data",
        ])
        .await;
    if drained.is_success {
        story.vm_is(name, "Running").await;
    }
    story.kubectl(&["uncordon", node]).await.good();
    drained
}

#[tokio::test]
async fn a_machine_without_eviction_strategy_ends_and_runs_again_on_another_node() {
    let story = Story::alone().await;
    story.apply(&machine("mobile")).await;
    story.greeting("mobile").await;
    let first = story.vmi_is("mobile", "Running").await;
    let from = node(&first);
    story.kubectl(&["cordon", &from]).await.good();
    let drained = drain(&story, "mobile", &from, "90s").await;
    drained.good();
    let second = story.runs_again("mobile", &first).await;
    assert_ne!(node(&second), from);
}

#[tokio::test]
async fn a_machine_that_must_be_moved_and_cannot_keeps_its_node_and_says_so() {
    let story = Story::alone().await;
    story.apply_object(&claim("bound", "Filesystem")).await;
    let disk = json!({"persistentVolumeClaim": {"claimName": "bound"}});
    let bound = machine("bound").disk(&disk);
    story
        .apply(&bound.spec("evictionStrategy", "LiveMigrate"))
        .await;
    story.greeting("bound").await;
    let first = story.vmi_is("bound", "Running").await;
    let complaint = drain(&story, "bound", &node(&first), "5s")
        .await
        .complaint();
    assert!(
        complaint.contains("must be migrated and cannot be"),
        "{complaint}"
    );
    let now = story.vmi_is("bound", "Running").await;
    assert_eq!(now["metadata"]["uid"], first["metadata"]["uid"]);
}
