//! The web console: a guest's life in a browser.

use browser::Browser;
use serde_json::Value;

use crate::test_namespace;

/// Keys of `WebDriver`.
const ENTER: &str = "\u{E007}";

/// Types text and Enter, wherever the focus is.
async fn type_line(browser: &Browser, text: &str) {
    let characters: Vec<String> = text.chars().map(String::from).collect();
    let mut keys: Vec<&str> = characters.iter().map(String::as_str).collect();
    keys.push(ENTER);
    browser.press(&keys).await;
}

#[tokio::test]
async fn vm_is_created_used_edited_and_deleted_in_a_browser() {
    let test = test_namespace().await;
    let mut ui = test.virtctl_terminal(&["ui", "--no-browser"]);
    ui.expect("http://").await;
    let link = format!("http://{}", ui.expect("\n").await.trim());
    let browser = Browser::open(&link).await;
    browser.resize(960, 640).await;
    let status = "main [role=status]";
    let page = format!("#/vm/{}/web", test.namespace);
    let guest = |view: &str| page.replace("vm", view);

    browser.view("#/create").await;
    for (field, text) in [
        ("name", "web"),
        ("image", "ferrovirt/guest-tiny:devel"),
        ("memory", "96Mi"),
    ] {
        browser.fill(&format!("#field-{field}"), text).await;
    }
    browser.click("#create").await;
    browser.until_text(status, "Running").await;
    browser
        .until_text("section[aria-label=Usage]", "MiB for 96 MiB")
        .await;
    browser
        .until_text("section[aria-label=Networks]", "masquerade")
        .await;

    test.greeting("web").await;
    browser.click("[data-key=console]").await;
    browser.until_text(status, "Connected").await;
    type_line(&browser, "").await;
    browser.until_text(".terminal", "# ").await;
    type_line(&browser, "echo sum-$((20+22))").await;
    browser.until_text(".terminal", "sum-42").await;
    browser.picture("console").await;

    browser.view(&guest("screen")).await;
    browser.until_text(status, "Connected").await;
    // Before the first picture the canvas is transparent.
    let is_drawn = "document.querySelector('canvas')?.getContext('2d').getImageData(0, 0, 1, 1).data[3] === 255";
    browser.until(is_drawn).await;
    browser.picture("screen").await;

    browser.view(&page).await;
    browser.click("[data-verb=pause]").await;
    browser.until_text(status, "Paused").await;
    browser.click("[data-verb=unpause]").await;
    browser.until_text(status, "Running").await;
    browser.click("[data-verb=stop]").await;
    browser.click("dialog [value=yes]").await;
    browser.until_text(status, "Stopped").await;

    browser.click("[data-key=edit]").await;
    let shown = "document.querySelector('#source')?.value.includes('96Mi')";
    browser.until(shown).await;
    let change = "const area = document.querySelector('#source'); \
                  area.value = area.value.replace('96Mi', '112Mi');";
    browser.run(change).await;
    browser.click("#save").await;
    browser
        .until_text("section[aria-label=Summary]", "112Mi")
        .await;
    let vm = test.vms().get("web").await.expect("read the VM");
    let memory = &vm.data["spec"]["template"]["spec"]["domain"]["memory"];
    assert_eq!(memory["guest"], "112Mi");

    browser.click("[data-verb=delete]").await;
    browser.click("dialog [value=yes]").await;
    browser
        .until_text("[role=alert]", "There is no VM web")
        .await;
    e2e::wait_for(&test.vms(), "web", "gone", Value::is_null).await;
    // A guest that starts or ends has no usage and no diagnosis for a moment.
    browser.check_log(&["Failed to load resource"]).await;
}
