//! Snapshots, restores and clones.

use serde_json::{Value, json};

use super::Browser;
use crate::support::{Environment, user, vm};

fn named(group: &str, kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": format!("{group}/v1beta1"), "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
    })
}

#[tokio::test]
async fn snapshot_is_taken_restored_cloned_and_deleted() {
    let environment = Environment::start(user()).await;
    environment.create(vm("tiny")).await;
    environment.create(vm("other")).await;
    let browser = Browser::open(&environment.link()).await;
    browser.view("#/vm/default/tiny").await;
    browser.click("[data-key=copies]").await;
    browser
        .until_text("section[aria-label=Snapshots]", "No snapshots yet")
        .await;
    browser
        .click("[aria-label='Take a snapshot of tiny']")
        .await;
    browser.fill("#dialog-name", "Not A Name").await;
    browser.click("dialog button.main").await;
    browser.until_text("dialog [role=alert]", "name").await;
    browser.fill("#dialog-name", "before").await;
    browser.click("dialog button.main").await;
    browser
        .until_text("section[aria-label=Snapshots]", "before")
        .await;
    let snapshot = named("snapshot.kubevirt.io", "VirtualMachineSnapshot", "before");
    let made = environment.object(&snapshot).await.unwrap();
    assert_eq!(made.data["spec"]["source"]["name"], "tiny");
    let status =
        json!({"status": {"readyToUse": true, "phase": "Succeeded", "indications": ["Online"]}});
    environment.merge_status(&snapshot, status).await;
    browser
        .until_text("section[aria-label=Snapshots]", "Online")
        .await;
    browser
        .until_text("section[aria-label=Snapshots]", "Ready")
        .await;

    browser.click("[aria-label='Restore before']").await;
    browser.click("dialog [value=yes]").await;
    browser
        .until_text("section[aria-label=Restores]", "before-")
        .await;
    browser.click("[aria-label='Clone before']").await;
    browser.fill("#dialog-target", "second").await;
    browser.click("dialog button.main").await;
    browser
        .until_text("section[aria-label=Clones] a", "second")
        .await;

    browser.click("[aria-label='Delete before']").await;
    browser.click("dialog [value=yes]").await;
    browser
        .until_text("section[aria-label=Snapshots]", "No snapshots yet")
        .await;
    assert!(environment.object(&snapshot).await.is_none());

    // Those of other VMs are not shown.
    browser.view("#/copies/default/other").await;
    browser
        .until_text("section[aria-label=Restores]", "No restores")
        .await;
    browser
        .check_log(&["422 (Unprocessable", "400 (Bad Request)"])
        .await;
    environment.api.stop.cancel();
}
