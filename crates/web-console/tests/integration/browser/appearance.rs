//! Themes, small screens, roles for assistive technology.

use super::Browser;
use crate::support::{Environment, user, vm, vmi};

const VIEWS: [&str; 10] = [
    "#/",
    "#/create",
    "#/images",
    "#/networks",
    "#/exports",
    "#/vm/default/tiny",
    "#/edit/default/tiny",
    "#/copies/default/tiny",
    "#/console/default/tiny",
    "#/screen/default/tiny",
];
/// Controls without a name that a screen reader could read.
const UNNAMED: &str = "return [...document.querySelectorAll('button, a[href], input, select, textarea, canvas, summary')]\
    .filter((one) => one.checkVisibility())\
    .filter((one) => !(one.textContent.trim() || one.getAttribute('aria-label') || one.labels?.length))\
    .map((one) => one.outerHTML).join()";
const BACKGROUND: &str = "return getComputedStyle(document.documentElement).backgroundColor";

#[tokio::test]
async fn views_fit_small_screens_and_all_controls_have_names() {
    let environment = Environment::start(user()).await;
    environment.create(vm("tiny")).await;
    environment.create_guest(vmi("tiny")).await;
    let browser = Browser::open(&environment.link()).await;
    browser.until_text("tbody", "tiny").await;
    // Chromium's smallest window is wider than a telephone.
    browser.resize(500, 800).await;
    for view in VIEWS {
        browser.view(view).await;
        browser.until("document.querySelector('main h1')?.textContent && !document.querySelector('[aria-busy=true]:not([hidden])')").await;
        let width = browser
            .run("return [document.documentElement.scrollWidth, innerWidth]")
            .await;
        assert!(width[0].as_u64() <= width[1].as_u64(), "{view}: {width}");
        assert_eq!(browser.run(UNNAMED).await, "", "{view}");
        let title = browser.run("return document.title").await;
        assert!(title.as_str().unwrap().ends_with("Ferrovirt"), "{title}");
    }
    // This server has no importer and no secondary networks.
    browser.check_log(&["404 (Not Found)"]).await;
    environment.api.stop.cancel();
}

#[tokio::test]
async fn theme_is_chosen_by_a_button_and_kept() {
    let environment = Environment::start(user()).await;
    let browser = Browser::open(&environment.link()).await;
    let mut colours = Vec::new();
    for theme in ["light", "dark"] {
        browser.click("#theme").await;
        browser.until_text("#theme", theme).await;
        colours.push(browser.run(BACKGROUND).await);
    }
    assert_ne!(colours[0], colours[1]);
    browser.run("location.reload()").await;
    browser.until_text("#theme", "dark").await;
    assert_eq!(browser.run(BACKGROUND).await, colours[1]);
    // The key is still that of the tab.
    browser.until_text("main h1", "Virtual machines").await;
    browser.check_log(&[]).await;
    environment.api.stop.cancel();
}
