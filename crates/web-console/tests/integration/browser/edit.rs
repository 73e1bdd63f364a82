//! Changing the object of a VM.

use serde_json::json;

use super::Browser;
use crate::support::{Environment, user, vm};

/// Replaces text in the field with the object.
async fn replace(browser: &Browser, from: &str, to: &str) {
    let shown = format!(
        "document.querySelector('#source')?.value.includes({})",
        json!(from)
    );
    browser.until(&shown).await;
    let (from, to) = (json!(from), json!(to));
    let script = format!(
        "const area = document.querySelector('#source'); area.value = area.value.replace({from}, {to});"
    );
    browser.run(&script).await;
}

#[tokio::test]
async fn spec_is_changed_and_errors_have_their_lines() {
    let environment = Environment::start(user()).await;
    let tiny = vm("tiny");
    environment.create(tiny.clone()).await;
    let browser = Browser::open(&environment.link()).await;
    browser.view("#/vm/default/tiny").await;
    browser.click("[data-key=edit]").await;
    replace(&browser, "cores: 2", "cores: many").await;
    browser.click("#save").await;
    browser.click("#problems button").await;
    let selected = "const { value, selectionStart, selectionEnd } = document.querySelector('#source'); \
                    return value.slice(selectionStart, selectionEnd).trim();";
    assert_eq!(browser.run(selected).await, "cores: many");
    replace(&browser, "cores: many", "cores: 3").await;
    browser.click("#check").await;
    browser
        .until_text("#notices", "The server accepts this change")
        .await;
    let cores = async || {
        let object = environment.object(&tiny).await.unwrap();
        object.data["spec"]["template"]["spec"]["domain"]["cpu"]["cores"].clone()
    };
    assert_eq!(cores().await, 2, "a check changes nothing");

    // The controller writes the status all the time.
    environment
        .merge_status(&tiny, json!({"status": {"printableStatus": "Stopped"}}))
        .await;
    browser.click("#save").await;
    browser.until("location.hash === '#/vm/default/tiny'").await;
    browser
        .until_text("#notices", "default/tiny is saved")
        .await;
    assert_eq!(cores().await, 3);
    let expected = ["422 (Unprocessable", "400 (Bad Request)", "409 (Conflict)"];
    browser.check_log(&expected).await;
    environment.api.stop.cancel();
}

#[tokio::test]
async fn change_of_another_user_is_not_overwritten() {
    let environment = Environment::start(user()).await;
    let tiny = vm("tiny");
    environment.create(tiny.clone()).await;
    let browser = Browser::open(&environment.link()).await;
    browser.view("#/edit/default/tiny").await;
    replace(&browser, "cores: 2", "cores: 3").await;
    let other = json!({"spec": {"runStrategy": "Manual"}});
    environment.merge(&tiny, other).await;
    browser.click("#save").await;
    browser
        .until_text("#problems", "was changed meanwhile")
        .await;
    let object = environment.object(&tiny).await.unwrap();
    assert_eq!(object.data["spec"]["runStrategy"], "Manual");
    browser.click("#again").await;
    replace(&browser, "runStrategy: Manual", "runStrategy: Always").await;
    browser.click("#save").await;
    browser.until("location.hash === '#/vm/default/tiny'").await;
    let object = environment.object(&tiny).await.unwrap();
    assert_eq!(object.data["spec"]["runStrategy"], "Always");
    browser.check_log(&["409 (Conflict)"]).await;
    environment.api.stop.cancel();
}

#[tokio::test]
async fn snapshot_is_shown_as_yaml_and_gets_a_label() {
    let environment = Environment::start(user()).await;
    environment.create(vm("tiny")).await;
    let snapshot = json!({
        "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshot",
        "metadata": {"name": "before", "namespace": "default", "labels": {"team": "web"}},
        "spec": {"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "tiny"}},
    });
    environment.create(snapshot.clone()).await;
    let browser = Browser::open(&environment.link()).await;
    browser.view("#/copies/default/tiny").await;
    browser.click("[aria-label='YAML of before']").await;
    browser
        .until_text("h1", "VirtualMachineSnapshot before")
        .await;
    replace(&browser, "team: web", "team: sales").await;
    browser.click("#save").await;
    browser
        .until("location.hash === '#/copies/default/tiny'")
        .await;
    browser
        .until_text("#notices", "default/before is saved")
        .await;
    let object = environment.object(&snapshot).await.unwrap();
    assert_eq!(object.metadata.labels.unwrap()["team"], "sales");
    // Another kind than those of the table leads to the list.
    browser.view("#/object/secret/default/before").await;
    browser.until_text("h1", "Virtual machines").await;
    browser.check_log(&[]).await;
    environment.api.stop.cancel();
}
