//! Starting, stopping, pausing.

use serde_json::Value;
use stories::{machine, wait_for};

use crate::story;

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.and_then(|all| all.iter().find(|one| one["type"] == kind));
    found.map_or(&Value::Null, |condition| &condition["status"])
}

#[tokio::test]
async fn virtctl_stops_and_starts_a_machine() {
    let story = story().await;
    story.apply(&machine("power")).await;
    let first = story.vmi_is("power", "Running").await;
    story.greeting("power").await;

    story.virtctl(&["stop", "power"]).await.good();
    let vm = story.vm_is("power", "Stopped").await;
    assert_eq!(vm["spec"]["runStrategy"], "Halted");
    assert_ne!(vm["status"]["ready"], true);
    story.is_gone(&story.vmis(), "power").await;

    story.virtctl(&["start", "power"]).await.good();
    let vm = story.vm_is("power", "Running").await;
    assert_eq!(vm["spec"]["runStrategy"], "Always");
    story.runs_again("power", &first).await;
}

#[tokio::test]
async fn virtctl_restarts_a_machine() {
    let story = story().await;
    story.apply(&machine("again")).await;
    let first = story.vmi_is("again", "Running").await;
    story.greeting("again").await;
    story.virtctl(&["restart", "again"]).await.good();
    let second = story.runs_again("again", &first).await;
    story.vm_is("again", "Running").await;
    assert_eq!(second["metadata"]["name"], "again");
}

#[tokio::test]
async fn a_paused_guest_stands_still_and_goes_on_when_unpaused() {
    let story = story().await;
    story.apply(&machine("still")).await;
    let mut console = story.shell("still").await;
    story.virtctl(&["pause", "vm", "still"]).await.good();
    story.vm_is("still", "Paused").await;
    let is_paused = |vmi: &Value| condition(vmi, "Paused") == "True";
    wait_for(&story.vmis(), "still", "paused", is_paused).await;
    let waited = [
        "wait",
        "vm/still",
        "--for=condition=Paused",
        "--timeout=30s",
    ];
    story.kubectl(&waited).await.good();

    story.virtctl(&["unpause", "vm", "still"]).await.good();
    story.vm_is("still", "Running").await;
    let goes_on = |vmi: &Value| condition(vmi, "Paused") != "True";
    wait_for(&story.vmis(), "still", "going on", goes_on).await;
    assert_eq!(console.shell("echo awake").await, "awake");
}
