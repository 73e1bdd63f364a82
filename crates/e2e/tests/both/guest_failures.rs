//! Guests that fail, and the reported reasons.

use e2e::{VmManifest, answer, eventually, find_in_pod, limit_memory, tiny_vm};
use serde_json::{Value, json};

use crate::{TestNamespace, test_namespace};

const QEMU: &str = "qemu-system-x86";
/// The memory left to a guest that will need more.
const LITTLE: u64 = 16 << 20;

/// A VM that runs once, so that its final status stays.
fn once(name: &str) -> VmManifest {
    tiny_vm(name).strategy("Once")
}

fn watchdog(action: &str) -> Value {
    json!({"name": "dog", "i6300esb": {"action": action}})
}

/// Makes the guest run a command that ends it.
async fn types(test: &TestNamespace, name: &str, command: &str) {
    let mut console = test.shell(name).await;
    console.send(&format!("{command}\n")).await;
}

/// The first cause reported by `virtctl why`, and whether the VM is healthy.
async fn why(test: &TestNamespace, name: &str) -> (String, bool) {
    let outcome = test.virtctl(&["why", name, "--output=json"]).await;
    let found: Value =
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|err| panic!("{err}: {outcome:?}"));
    let first = found["causes"][0]["id"].as_str().unwrap_or_default();
    (first.to_owned(), outcome.is_success)
}

#[tokio::test]
async fn failed_guests_report_reason() {
    let test = test_namespace().await;
    let guest = once("greedy").set("/spec/template/spec/domain/memory/guest", "256Mi");
    test.apply(&guest).await;
    let guest = once("hangs").device("watchdog", watchdog("poweroff"));
    test.apply(&guest).await;
    let guest = once("panics")
        .device("watchdog", watchdog("reset"))
        .device("panicDevices", json!([{"model": "pvpanic"}]));
    test.apply(&guest).await;
    types(&test, "hangs", "hang").await;
    types(&test, "panics", "hang").await;
    let mut console = test.shell("greedy").await;
    let vmi = test.wait_vmi_phase("greedy", "Running").await;
    let pods = vmi["status"]["activePods"].as_object();
    let pod = pods.and_then(|pods| pods.keys().next()).expect("a pod");
    limit_memory(find_in_pod(pod, QEMU), LITTLE);
    console
        .send("dd if=/dev/zero of=/tmp/large bs=1M count=100\n")
        .await;

    // A guest reset by its watchdog has not ended.
    let vmi = test.wait_vmi_phase("panics", "Running").await;
    eventually("greeting again", || {
        let log = test.serial_log(&vmi);
        let greetings = log.matches("Welcome to Ferrovirt").count();
        if greetings == 2 { Ok(()) } else { Err(log) }
    })
    .await;
    assert!(why(&test, "panics").await.1);
    types(&test, "panics", "crash").await;

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
            "Raise the memory limit",
            "out-of-memory",
        ),
    ] {
        let vmi = test.wait_vmi_phase(name, "Failed").await;
        let status = &vmi["status"];
        assert_eq!(status["reason"], reason, "{name}: {status:#}");
        let conditions = status["conditions"].as_array().expect("conditions");
        let ready = conditions.iter().find(|one| one["type"] == "Ready");
        let ready = ready.expect("a condition");
        assert_eq!(ready["status"], "False", "{name}");
        let message = ready["message"].as_str().expect("a message");
        assert!(message.contains(part), "{name}: {message}");
        // A kubelet reports in the pod that memory ran out.
        let object = match cause {
            "out-of-memory" => name.to_owned(),
            _ => format!("vmi/{name}"),
        };
        let next = format!("virt-launcher-{name}-");
        test.why_answers(name, answer(cause, &object, &next)).await;
    }
}
