//! How guests end badly, and what is said of it.

use serde_json::{Value, json};
use stories::{Machine, eventually, find_in_pod, machine, squeeze};

use crate::{Story, story};

const QEMU: &str = "qemu-system-x86";
/// What is left to a guest that will ask for more.
const LITTLE: u64 = 16 << 20;

/// It runs one time, so what became of it stays to be read.
fn once(name: &str) -> Machine {
    machine(name).strategy("Once")
}

fn watchdog(action: &str) -> Value {
    json!({"name": "dog", "i6300esb": {"action": action}})
}

/// Has its guest do something that it does not come back from.
async fn types(story: &Story, name: &str, command: &str) {
    let mut console = story.shell(name).await;
    console.send(&format!("{command}\n")).await;
}

/// The first cause that `virtctl why` finds, and whether all is well.
async fn why(story: &Story, name: &str) -> (String, bool) {
    let outcome = story.virtctl(&["why", name, "--output=json"]).await;
    let found: Value =
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|err| panic!("{err}: {outcome:?}"));
    let first = found["causes"][0]["id"].as_str().unwrap_or_default();
    (first.to_owned(), outcome.is_success)
}

#[tokio::test]
async fn guests_that_end_badly_have_failed_and_say_why() {
    let story = story().await;
    let guest = once("greedy").set("/spec/template/spec/domain/memory/guest", "256Mi");
    story.apply(&guest).await;
    let guest = once("hangs").device("watchdog", watchdog("poweroff"));
    story.apply(&guest).await;
    let guest = once("panics")
        .device("watchdog", watchdog("reset"))
        .device("panicDevices", json!([{"model": "pvpanic"}]));
    story.apply(&guest).await;
    types(&story, "hangs", "hang").await;
    types(&story, "panics", "hang").await;
    let mut console = story.shell("greedy").await;
    let vmi = story.vmi_is("greedy", "Running").await;
    let pods = vmi["status"]["activePods"].as_object();
    let pod = pods.and_then(|pods| pods.keys().next()).expect("a pod");
    squeeze(find_in_pod(pod, QEMU), LITTLE);
    console
        .send("dd if=/dev/zero of=/tmp/large bs=1M count=100\n")
        .await;

    // A guest that is started over by its watchdog has not ended.
    let vmi = story.vmi_is("panics", "Running").await;
    eventually("greeting again", || {
        let log = story.serial_log(&vmi);
        let greetings = log.matches("Welcome to Ferrovirt").count();
        if greetings == 2 { Ok(()) } else { Err(log) }
    })
    .await;
    assert!(why(&story, "panics").await.1);
    types(&story, "panics", "crash").await;

    for (name, reason, part, cause) in [
        (
            "panics",
            "GuestPanicked",
            "kernel panicked",
            "guest-crashed",
        ),
        (
            "hangs",
            "WatchdogExpired",
            "watchdog expired",
            "watchdog-expired",
        ),
        (
            "greedy",
            "OOMKilled",
            "higher memory limit",
            "out-of-memory",
        ),
    ] {
        let vmi = story.vmi_is(name, "Failed").await;
        let status = &vmi["status"];
        assert_eq!(status["reason"], reason, "{name}: {status:#}");
        let conditions = status["conditions"].as_array().expect("conditions");
        let ready = conditions.iter().find(|one| one["type"] == "Ready");
        let ready = ready.expect("a condition");
        assert_eq!(ready["status"], "False", "{name}");
        let message = ready["message"].as_str().expect("a message");
        assert!(message.contains(part), "{name}: {message}");
        assert_eq!(why(&story, name).await, (cause.to_owned(), false), "{name}");
    }
}
