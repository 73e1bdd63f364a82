//! A start waits for what it lacks, says so, and goes on once that is there.

use serde_json::json;
use stories::{claim, machine};

use crate::story;

#[tokio::test]
async fn a_start_goes_on_once_what_it_lacked_is_there() {
    let story = story().await;
    let label = format!("{}/place", story.namespace);
    let volume = json!({"persistentVolumeClaim": {"claimName": "late"}});
    story.apply(&machine("claim").disk(&volume)).await;
    let volume = json!({"secret": {"secretName": "late"}});
    story.apply(&machine("secret").disk(&volume)).await;
    let place = machine("place").spec("nodeSelector", json!({label.as_str(): "here"}));
    story.apply(&place).await;

    story.vm_is("claim", "ErrorPvcNotFound").await;
    story.vm_is("place", "ErrorUnschedulable").await;
    story.vmi_is("secret", "Scheduling").await;

    story.apply_object(&claim("late", "Filesystem")).await;
    let secret = ["create", "secret", "generic", "late", "--from-literal=a=b"];
    story.kubectl(&secret).await.good();
    let here = format!("{label}=here");
    story
        .kubectl(&["label", "nodes", "--all", &here])
        .await
        .good();
    for name in ["claim", "secret", "place"] {
        story.vmi_is(name, "Running").await;
    }
    let nowhere = format!("{label}-");
    story
        .kubectl(&["label", "nodes", "--all", &nowhere])
        .await
        .good();
}
