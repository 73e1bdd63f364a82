//! The pictures of the guide.

use serde_json::json;

use super::Browser;
use crate::support::{Environment, user, vm, vmi};

/// The pictures are as small as documents like them; without the variable they are made and not kept.
#[tokio::test]
async fn pictures_of_the_guide_can_be_made() {
    let environment = Environment::start(user()).await;
    for (name, status) in [
        ("debian", "Running"),
        ("build-1", "Stopped"),
        ("database", "Starting"),
    ] {
        let mut made = vm(name);
        if status != "Stopped" {
            made["spec"]["runStrategy"] = "Always".into();
        }
        environment.create(made.clone()).await;
        environment
            .merge_status(&made, json!({"status": {"printableStatus": status}}))
            .await;
    }
    environment.create_guest(vmi("debian")).await;
    let mut waiting = vmi("database");
    waiting["status"] = json!({"phase": "Pending", "conditions": [
        {"type": "Synchronized", "status": "False", "reason": "FailedPvcNotFound", "lastProbeTime": null,
         "message": "PVC default/debian-root does not exist", "lastTransitionTime": "2026-11-21T12:00:00Z"}]});
    environment.create_guest(waiting).await;
    let browser = Browser::open(&environment.link()).await;
    browser.resize(960, 640).await;
    browser.until_text("tbody", "database").await;
    browser.until_text("tbody", "50.0 %").await;
    browser
        .until("document.querySelectorAll('[data-verb]:not([data-checked])').length === 0")
        .await;
    browser.picture("list").await;
    browser.view("#/vm/default/database").await;
    browser
        .until("document.querySelector('[data-cause]') !== null")
        .await;
    browser.click("#theme").await;
    browser.click("#theme").await;
    browser.picture("details-dark").await;
    browser.check_log(&[]).await;
    environment.api.stop.cancel();
}
