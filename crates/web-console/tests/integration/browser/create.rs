//! Creating a VM.

use serde_json::json;

use super::Browser;
use crate::support::{Environment, user, vm};

#[tokio::test]
async fn form_creates_a_vm_and_shows_errors_at_their_fields() {
    let environment = Environment::start(user()).await;
    let browser = Browser::open(&environment.link()).await;
    browser.until_text("main h1", "Virtual machines").await;
    browser.press(&["c"]).await;
    browser.fill("#field-name", "tiny").await;
    browser
        .fill("#field-image", "registry.example/debian:12")
        .await;
    browser.fill("#field-cores", "many").await;
    browser.click("#create").await;
    browser.until_text("#error-cores", "expected u32").await;
    browser
        .until("document.activeElement.id === 'field-cores'")
        .await;
    let invalid =
        "[...document.querySelectorAll('[aria-invalid=true]')].map(({ id }) => id).join()";
    assert_eq!(
        browser.run(&format!("return {invalid}")).await,
        "field-cores"
    );

    // A rule of the webhooks, not of the schema.
    browser.fill("#field-cores", "1").await;
    browser.fill("#field-memory", "-1Gi").await;
    browser.click("#check").await;
    browser
        .until("document.querySelector('#error-memory').textContent !== ''")
        .await;
    browser.fill("#field-memory", "512Mi").await;
    browser.click("#check").await;
    browser
        .until_text("#notices", "The server accepts this VM")
        .await;
    let tiny = vm("tiny");
    assert!(
        environment.object(&tiny).await.is_none(),
        "a check creates nothing"
    );
    browser.click("#create").await;
    browser.until("location.hash === '#/vm/default/tiny'").await;
    let made = environment.object(&tiny).await.unwrap();
    let spec = &made.data["spec"]["template"]["spec"];
    assert_eq!(spec["domain"]["memory"]["guest"], "512Mi");
    assert_eq!(
        spec["volumes"][0]["containerDisk"]["image"],
        "registry.example/debian:12"
    );
    browser
        .check_log(&["422 (Unprocessable", "400 (Bad Request)", "404 (Not Found)"])
        .await;
    environment.api.stop.cancel();
}

#[tokio::test]
async fn yaml_creates_a_vm_and_shows_errors_at_their_lines() {
    let environment = Environment::start(user()).await;
    let browser = Browser::open(&environment.link()).await;
    browser.view("#/create").await;
    browser.fill("#field-name", "tiny").await;
    browser
        .fill("#field-image", "registry.example/debian:12")
        .await;
    browser.click("[data-tab=YAML]").await;
    browser
        .until("document.querySelector('#source').value.includes('name: tiny')")
        .await;
    let replace = |from: &str, to: &str| {
        let (from, to) = (json!(from), json!(to));
        format!(
            "const area = document.querySelector('#source'); area.value = area.value.replace({from}, {to});"
        )
    };
    browser
        .run(&replace("cores: 1", "cores: 1\n          coers: 2"))
        .await;
    browser.click("#create").await;
    browser.until_text("#problems", "unknown field").await;
    browser.click("#problems button").await;
    let selected = "const { value, selectionStart, selectionEnd } = document.querySelector('#source'); \
                    return value.slice(selectionStart, selectionEnd).trim();";
    let line = browser.run(selected).await;
    assert_eq!(line, "coers: 2");
    browser.run(&replace("          coers: 2\n", "")).await;
    browser.run(&replace("bus: virtio", "bus: floppy")).await;
    browser.click("#check").await;
    browser
        .until("document.querySelector('#problems button') !== null")
        .await;
    browser.click("#problems button").await;
    assert_eq!(browser.run(selected).await, "bus: floppy");
    browser.run(&replace("bus: floppy", "bus: virtio")).await;
    browser.click("#create").await;
    browser.until("location.hash === '#/vm/default/tiny'").await;
    assert!(environment.object(&vm("tiny")).await.is_some());
    environment.api.stop.cancel();
}
