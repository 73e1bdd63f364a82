//! Guests whose state is saved to a claim, and which go on from it.

use std::path::PathBuf;

use e2e::{VmManifest, answer, tiny_vm, wait_for};
use serde_json::{Value, json};

use crate::{TestNamespace, test_namespace};

/// A guest that runs from memory, and whose disks are not lost with its pod.
fn guest(name: &str) -> VmManifest {
    let disk = json!({"bus": "virtio", "readonly": true});
    tiny_vm(name).set("/spec/template/spec/domain/devices/disks/0/disk", disk)
}

/// The reason of the condition; null without it.
fn state(vm: &Value) -> Value {
    let all = vm["status"]["conditions"].as_array();
    let mut all = all.into_iter().flatten();
    let condition = all.find(|one| one["type"] == "Suspended");
    condition.map_or(Value::Null, |one| one["reason"].clone())
}

async fn wait_for_state(test: &TestNamespace, name: &str, expected: Value) {
    let is_reached = |vm: &Value| state(vm) == expected;
    wait_for(&test.vms(), name, "its state", is_reached).await;
}

/// Suspends a guest that keeps a mark in its memory, and waits for the end of its pod.
async fn suspended(test: &TestNamespace, name: &str) {
    test.apply(&guest(name)).await;
    let mut console = test.shell(name).await;
    console.shell("echo kept-in-memory > /tmp/mark").await;
    drop(console);
    test.virtctl(&["suspend", name]).await.success();
    wait_for_state(test, name, json!("Suspended")).await;
    test.wait_gone(&test.vmis(), name).await;
}

/// The file with the saved state.
async fn saved_file(test: &TestNamespace) -> PathBuf {
    let claims = test.objects("", "v1", "PersistentVolumeClaim");
    let all = claims.list(&kube::api::ListParams::default()).await;
    let all = all.expect("list claims").items;
    let claim = all.first().expect("a claim");
    let volume = claim.data["spec"]["volumeName"].as_str().expect("a volume");
    let volumes = test.environment.state_dir().join("node/volumes");
    let directory = volumes.join(volume).join("data");
    let files = std::fs::read_dir(directory).expect("list the claim's files");
    let mut files = files.flatten().map(|entry| entry.path());
    let saved = files.find(|path| path.extension().is_some_and(|one| one == "saved"));
    saved.expect("a saved state")
}

#[tokio::test]
async fn suspended_guest_goes_on_where_it_was() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("lost")).await;
    test.wait_vmi_phase("lost", "Running").await;
    let refused = test.virtctl(&["suspend", "lost"]).await;
    assert!(
        refused.stderr.contains("is lost with the pod"),
        "{refused:?}"
    );

    suspended(&test, "kept").await;
    let expected = answer("suspended", "vm/kept", "resume kept");
    test.why_answers("kept", expected).await;
    let again = test.virtctl(&["suspend", "kept"]).await;
    assert!(again.stderr.contains("suspended already"), "{again:?}");

    test.virtctl(&["resume", "kept"]).await.success();
    wait_for_state(&test, "kept", Value::Null).await;
    test.wait_vmi_phase("kept", "Running").await;
    let mut console = test.console("kept").await;
    console.send("\n").await;
    console.expect("# ").await;
    let mark = console.shell("cat /tmp/mark").await;
    assert!(mark.contains("kept-in-memory"), "{mark}");
}

#[tokio::test]
async fn guest_whose_state_is_broken_stays_suspended_until_it_is_discarded() {
    let test = test_namespace().await;
    suspended(&test, "broken").await;
    let file = saved_file(&test).await;
    std::fs::write(file, "no state").expect("break the state");
    test.virtctl(&["resume", "broken"]).await.success();
    wait_for_state(&test, "broken", json!("ResumeFailed")).await;
    test.wait_vm_status("broken", "Stopped").await;
    let expected = answer("resume-failed", "vm/broken", "resume broken");
    test.why_answers("broken", expected).await;
    let why = test.virtctl(&["why", "broken"]).await;
    assert!(why.stdout.contains("incomplete"), "{why:?}");

    test.virtctl(&["resume", "broken", "--discard-state"])
        .await
        .success();
    wait_for_state(&test, "broken", Value::Null).await;
    let mut console = test.shell("broken").await;
    let mark = console.shell("cat /tmp/mark").await;
    assert!(!mark.contains("kept-in-memory"), "{mark}");
}
