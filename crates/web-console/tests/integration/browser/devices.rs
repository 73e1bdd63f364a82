//! The serial console and the screen.

use super::Browser;
use crate::support::{Environment, user, vm, vmi};

const BELOW: &str =
    "GET /apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/tiny";
/// Keys of `WebDriver`.
const ENTER: &str = "\u{E007}";
const UP: &str = "\u{E013}";
const CONTROL: &str = "\u{E009}";

async fn running() -> (Environment, Browser) {
    let environment = Environment::start(user()).await;
    environment.create(vm("tiny")).await;
    environment.create_guest(vmi("tiny")).await;
    let browser = Browser::open(&environment.link()).await;
    browser.view("#/vm/default/tiny").await;
    (environment, browser)
}

/// The key of the tab stays between browser and console.
fn check_request(environment: &Environment, device: &str) {
    let headers = environment.log.last(&format!("{BELOW}/{device}")).unwrap();
    assert_eq!(headers["sec-websocket-protocol"], "plain.kubevirt.io");
    assert!(!headers.contains_key("authorization"));
}

#[tokio::test]
async fn console_shows_output_and_sends_keys() {
    let (environment, browser) = running().await;
    browser.click("[data-key=console]").await;
    browser.until_text("main [role=status]", "Connected").await;
    browser.until_text(".terminal", "guest login: ").await;
    // The row of the cursor is in view, and what does not apply is hidden.
    let shown = "const row = document.querySelector('.terminal .cursor').getBoundingClientRect(); \
        const box = document.querySelector('.terminal').getBoundingClientRect(); \
        return row.top >= box.top && row.bottom <= box.bottom && !document.querySelector('main button').checkVisibility()";
    assert_eq!(browser.run(shown).await, true);
    let colour = browser
        .run("return getComputedStyle([...document.querySelectorAll('.terminal .bold')][0]).color")
        .await;
    assert_eq!(colour, "rgb(107, 179, 111)");
    browser.press(&["r", "o", ENTER]).await;
    browser.until_text(".terminal", "<r><o>").await;
    check_request(&environment, "console");
    browser.press(&[UP]).await;
    browser.press_with(CONTROL, "c").await;
    browser.until_text(".terminal", ">").await;
    browser.press_with(CONTROL, "]").await;
    browser
        .until("document.activeElement.textContent === 'Back'")
        .await;
    browser.press(&[ENTER]).await;
    browser.until("location.hash === '#/vm/default/tiny'").await;
    browser.check_log(&[]).await;
    environment.api.stop.cancel();
}

#[tokio::test]
async fn browser_without_websockets_says_what_to_use() {
    let (environment, browser) = running().await;
    browser.run("window.WebSocket = undefined").await;
    for device in ["console", "screen"] {
        browser.click(&format!("[data-key={device}]")).await;
        let message = "This browser has no websockets, which the console and the screen need; use virtctl console";
        browser.until_text("main [role=status]", message).await;
        browser.view("#/vm/default/tiny").await;
    }
    browser.check_log(&[]).await;
    environment.api.stop.cancel();
}

#[tokio::test]
async fn screen_shows_the_picture_and_sends_keys() {
    let (environment, browser) = running().await;
    browser.click("[data-key=screen]").await;
    browser.until_text("main [role=status]", "Connected").await;
    let is_point = |x: u8, y: u8, colour: &str| {
        format!(
            "[...document.querySelector('canvas').getContext('2d').getImageData({x}, {y}, 1, 1).data].join() === '{colour}'"
        )
    };
    for (x, y, colour) in [
        (0, 0, "200,40,10,255"),
        (63, 23, "200,40,10,255"),
        (0, 24, "10,40,200,255"),
        (1, 26, "255,255,255,255"),
        (19, 29, "255,255,255,255"),
        (20, 30, "10,40,200,255"),
        (63, 47, "10,40,200,255"),
    ] {
        browser.until(&is_point(x, y, colour)).await;
    }
    check_request(&environment, "vnc");
    browser.press(&["g"]).await;
    browser.until(&is_point(5, 40, "0,255,0,255")).await;
    browser.press_with(CONTROL, "]").await;
    browser
        .until("document.activeElement.textContent === 'Back'")
        .await;
    browser.check_log(&[]).await;
    environment.api.stop.cancel();
}
