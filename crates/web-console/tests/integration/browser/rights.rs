//! A user with few rights.

use embedded_api::Identity;

use super::Browser;
use crate::support::{Environment, viewer_rights, vm, vmi};

#[tokio::test]
async fn buttons_without_a_right_are_disabled_and_the_own_namespace_is_shown() {
    let environment = Environment::start(Identity::new("vera", &[])).await;
    viewer_rights(&environment, "vera").await;
    environment.create(vm("tiny")).await;
    environment.create_guest(vmi("tiny")).await;
    let browser = Browser::open(&environment.link()).await;
    // Lists of all namespaces are forbidden.
    browser.until_text("tbody", "tiny").await;
    assert_eq!(
        browser
            .run("return document.querySelector('#namespace').value")
            .await,
        "default"
    );
    browser
        .until("document.querySelector('[data-key=create][aria-disabled]') !== null")
        .await;
    browser.view("#/vm/default/tiny").await;
    browser
        .until("document.querySelectorAll('[data-verb][data-checked]').length >= 4 && !document.querySelector('[data-key]:not([data-checked])')")
        .await;
    let enabled = "return [...document.querySelectorAll('[data-verb]')]\
                   .filter(({ disabled }) => !disabled).map(({ dataset }) => dataset.verb).join()";
    assert_eq!(browser.run(enabled).await, "stop,poweroff");
    // Links lead nowhere without the right to what they show.
    let links = "return [...document.querySelectorAll('a[data-key]')].filter(({ href }) => href)\
                 .map(({ dataset }) => dataset.key).join()";
    assert_eq!(browser.run(links).await, "");
    browser
        .until_text(
            "section[aria-label=Usage]",
            "no right to virtualmachineinstances/usage",
        )
        .await;
    let title = browser
        .run("return document.querySelector('[data-verb=delete]').title")
        .await;
    assert!(
        title.as_str().unwrap().contains("You have no right"),
        "{title}"
    );
    browser
        .until_text(
            "section[aria-label=Events] [role=alert]",
            "no right to list events",
        )
        .await;
    browser.check_log(&["403 (Forbidden)"]).await;
    environment.api.stop.cancel();
}
