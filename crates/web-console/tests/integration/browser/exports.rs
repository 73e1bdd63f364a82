//! Exports.

use serde_json::json;

use super::Browser;
use crate::support::{Environment, user, vm};

#[tokio::test]
async fn export_is_created_followed_and_deleted() {
    let environment = Environment::start(user()).await;
    environment.create(vm("tiny")).await;
    let browser = Browser::open(&environment.link()).await;
    browser.view("#/exports").await;
    browser
        .until_text("main .card", "There is no export here yet")
        .await;
    browser.click("[aria-label='Create an export']").await;
    // The names of what was chosen are suggested.
    browser
        .until("document.querySelector('#dialog-of-list option')?.value === 'tiny'")
        .await;
    browser.fill("#dialog-of", "tiny").await;
    browser.fill("#dialog-name", "Not A Name").await;
    browser.click("dialog button.main").await;
    browser.until_text("dialog [role=alert]", "name").await;
    browser.fill("#dialog-name", "copy").await;
    browser.fill("#dialog-ttl", "30m").await;
    browser.click("dialog button.main").await;
    let row = "tbody tr";
    browser.until_text(row, "Virtual machine tiny").await;
    let export = json!({
        "apiVersion": "export.kubevirt.io/v1", "kind": "VirtualMachineExport",
        "metadata": {"name": "copy", "namespace": "default"},
    });
    let made = environment.object(&export).await.unwrap();
    let source = json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "tiny"});
    assert_eq!(made.data["spec"]["source"], source);
    assert_eq!(made.data["spec"]["ttlDuration"], "30m");

    let condition = json!({
        "type": "Ready", "status": "False", "reason": "InUse", "message": "a guest of the VM runs",
    });
    let status = json!({"status": {"phase": "Pending", "conditions": [condition]}});
    environment.merge_status(&export, status).await;
    browser.until_text(row, "a guest of the VM runs").await;
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(29);
    let url = "https://192.0.2.1:6443/api/export.kubevirt.io/v1/namespaces/default/x/volumes/root/disk.img.gz";
    let volumes = json!([{"name": "root", "formats": [{"format": "gzip", "url": url}]}]);
    let status = json!({"status": {
        "phase": "Ready", "conditions": [{"type": "Ready", "status": "True"}],
        "ttlExpirationTime": until.to_string(), "tokenSecretRef": "export-token-copy",
        "links": {"external": {"cert": "", "volumes": volumes}},
    }});
    environment.merge_status(&export, status).await;
    browser
        .until_text(&format!("{row} .badge.good"), "Ready")
        .await;
    browser.until_text(row, "29 min").await;
    browser.click("[aria-label='Links of copy']").await;
    for text in [
        url,
        "export-token-copy",
        "virtctl vmexport download copy --namespace default",
    ] {
        browser.until_text("dialog", text).await;
    }
    // There is no token yet.
    browser
        .click("dialog [aria-label='Download root, gzip']")
        .await;
    browser
        .until_text("dialog li [role=alert]", "read the token of the export")
        .await;
    browser.click("dialog form button").await;

    browser.click("[aria-label='Delete copy']").await;
    browser.click("dialog [value=yes]").await;
    browser
        .until_text("main .card", "There is no export here yet")
        .await;
    assert!(environment.object(&export).await.is_none());
    // A VM and a snapshot have the dialog filled in.
    browser.view("#/vm/default/tiny").await;
    browser.click("[aria-label='Export tiny']").await;
    browser
        .until("document.querySelector('#dialog-of')?.value === 'tiny'")
        .await;
    browser
        .check_log(&["422 (Unprocessable", "400 (Bad Request)", "404 (Not Found)"])
        .await;
    environment.api.stop.cancel();
}
