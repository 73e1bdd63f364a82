//! What is deleted by hand comes again, and what a deleted machine takes along or leaves behind.

use serde_json::Value;
use stories::{DEADLINE, kill_in_pod, machine, wait_for};

use crate::{Story, story};

const QEMU: &str = "qemu-system-x86";

async fn delete(story: &Story, arguments: &[&str]) {
    let patience = format!("--timeout={}s", DEADLINE.as_secs());
    let mut all = vec!["delete", &patience];
    all.extend(arguments);
    story.kubectl(&all).await.good();
}

fn uid(object: &Value) -> &str {
    let uid = object["metadata"]["uid"].as_str();
    uid.expect("what the server has has a UID")
}

#[tokio::test]
async fn an_instance_and_a_pod_that_are_deleted_come_again() {
    let story = story().await;
    story.apply(&machine("again")).await;
    let first = story.vmi_is("again", "Running").await;
    delete(&story, &["vmi", "again", "--wait=false"]).await;
    let second = story.runs_again("again", &first).await;
    let pods = format!("--selector=kubevirt.io/created-by={}", uid(&second));
    delete(&story, &["pods", &pods, "--wait=false"]).await;
    story.runs_again("again", &second).await;
    story.vm_is("again", "Running").await;
}

#[tokio::test]
async fn a_deleted_machine_leaves_its_guest_or_takes_it_along_as_it_is_told() {
    let story = story().await;
    story.apply(&machine("kept")).await;
    let guest = story.vmi_is("kept", "Running").await;
    delete(&story, &["vm", "kept", "--cascade=orphan"]).await;
    let is_alone = |vmi: &Value| vmi["metadata"]["ownerReferences"].is_null();
    let alone = wait_for(&story.vmis(), "kept", "left behind", is_alone).await;
    assert_eq!(uid(&alone), uid(&guest));
    assert_eq!(alone["status"]["phase"], "Running");

    story.apply(&machine("kept")).await;
    let is_owned = |vmi: &Value| vmi["metadata"]["ownerReferences"][0]["kind"] == "VirtualMachine";
    let adopted = wait_for(&story.vmis(), "kept", "adopted", is_owned).await;
    assert_eq!(uid(&adopted), uid(&guest));
    assert_eq!(adopted["status"]["phase"], "Running");

    delete(&story, &["vm", "kept", "--cascade=foreground"]).await;
    let left = story.vmis().get_opt("kept").await.expect("ask for it");
    assert!(left.is_none(), "the machine goes last: {left:?}");
}

#[tokio::test]
async fn a_guest_that_crashes_stays_so_where_nobody_wants_it_again() {
    let story = story().await;
    story.apply(&machine("once").strategy("Once")).await;
    story.apply(&machine("manual").strategy("Manual")).await;
    story.vm_is("manual", "Stopped").await;
    story.virtctl(&["start", "manual"]).await.good();
    let mut crashed = Vec::new();
    for name in ["once", "manual"] {
        let vmi = story.vmi_is(name, "Running").await;
        let pods = vmi["status"]["activePods"].as_object();
        let pod = pods.and_then(|pods| pods.keys().next());
        kill_in_pod(pod.expect("it has a pod"), QEMU);
        crashed.push(story.vmi_is(name, "Failed").await);
    }
    // Deleted by hand, the one comes again and the other does not.
    delete(&story, &["vmi", "once", "manual"]).await;
    story.runs_again("once", &crashed[0]).await;
    story.vm_is("manual", "Stopped").await;
    let manual = story.vmis().get_opt("manual").await.expect("ask for it");
    assert!(manual.is_none(), "{manual:?}");
}
