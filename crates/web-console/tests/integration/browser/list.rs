//! Signing in, and the list of VMs.

use serde_json::json;

use super::Browser;
use crate::support::{Environment, user, vm, vmi};

#[tokio::test]
async fn link_signs_in_once_and_the_list_is_live() {
    let environment = Environment::start(user()).await;
    let link = environment.link();
    let browser = Browser::open(&link).await;
    browser
        .until_text("main .card", "There is no VM here yet")
        .await;
    assert_eq!(browser.run("return location.hash").await, "#/");

    let tiny = vm("tiny");
    environment.create(tiny.clone()).await;
    environment.create(vm("other")).await;
    let row = "tr:has([href='#/vm/default/tiny'])";
    browser.until_text(row, "default").await;
    let status = json!({"status": {"printableStatus": "Starting"}});
    environment.merge_status(&tiny, status).await;
    browser
        .until_text(&format!("{row} .badge"), "Starting")
        .await;
    environment.create_guest(vmi("tiny")).await;
    let status = json!({"status": {"printableStatus": "Running"}});
    environment.merge_status(&tiny, status).await;
    browser
        .until_text(&format!("{row} .badge.good"), "Running")
        .await;
    browser.until_text(row, "10.0.2.2").await;
    browser.until_text(row, "node1").await;

    browser.press(&["/"]).await;
    browser.press(&["o", "t", "h"]).await;
    browser
        .until("document.querySelectorAll('tbody tr').length === 1")
        .await;
    browser.fill("#filter", "none such").await;
    browser.until_text("main .card", "No VM matches").await;
    browser.check_log(&[]).await;

    // A second tab cannot use the link of the first.
    let second = Browser::open(&link).await;
    second.until_text("main h1", "Sign in").await;
    second.until_text("#notices", "was used already").await;
    second.fill("#link", "wrong").await;
    second.click("main button.main").await;
    second.until_text("[role=alert]", "open the link").await;
    second.fill("#link", &environment.link()).await;
    second.click("main button.main").await;
    second.until_text(row, "Running").await;
    second.check_log(&["401 (Unauthorized)"]).await;
    environment.api.stop.cancel();
}

/// The key of the tab is still good: a new link would not help.
#[tokio::test]
async fn expired_credentials_do_not_end_the_session_of_the_tab() {
    let environment = Environment::start(user()).await;
    let browser = Browser::open(&environment.link()).await;
    browser.fill("#namespace", "expired\n").await;
    browser
        .until_text("[role=alert]", "renew them, for example with kubectl")
        .await;
    browser.until_text("main h1", "Virtual machines").await;
    browser.check_log(&["401 (Unauthorized)"]).await;
    environment.api.stop.cancel();
}
