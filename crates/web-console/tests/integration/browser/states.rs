//! Lists of a user without rights, and of a server without the kinds.

use embedded_api::Identity;

use super::Browser;
use crate::support::{Environment, viewer_rights, vm};

#[tokio::test]
async fn views_say_what_the_user_may_not_read() {
    let environment = Environment::start(Identity::new("vera", &[])).await;
    viewer_rights(&environment, "vera").await;
    environment.create(vm("tiny")).await;
    let browser = Browser::open(&environment.link()).await;
    browser.until_text("tbody", "tiny").await;
    for (view, selector, text) in [
        (
            "#/exports",
            "main [role=alert]",
            "no right to list exports in namespace default",
        ),
        (
            "#/networks",
            "main [role=alert]",
            "network attachment definitions in namespace default",
        ),
        (
            "#/images",
            "section [role=alert]",
            "data volumes in namespace default",
        ),
        (
            "#/copies/default/tiny",
            "section[aria-label=Clones] [role=alert]",
            "no right to list clones",
        ),
        (
            "#/vm/default/tiny",
            "section[aria-label=Events] [role=alert]",
            "no right to list events",
        ),
    ] {
        browser.view(view).await;
        browser.until_text(selector, text).await;
        // The other lists of the view may still be on their way.
        browser
            .until("document.querySelector('main [aria-busy=true]:not([hidden])') === null")
            .await;
    }
    // What cannot be done is disabled and says why.
    browser.view("#/create").await;
    for (view, button) in [
        ("#/create", "#create"),
        ("#/images", "#send"),
        ("#/exports", "[aria-label='Create an export']"),
    ] {
        browser.view(view).await;
        browser
            .until(&format!(
                "document.querySelector(\"{button}\")?.title.startsWith('You have no right')"
            ))
            .await;
        let disabled = browser
            .run(&format!(
                "return document.querySelector(\"{button}\").disabled"
            ))
            .await;
        assert_eq!(disabled, true, "{view}");
    }
    browser
        .check_log(&["403 (Forbidden)", "404 (Not Found)"])
        .await;
    environment.api.stop.cancel();
}
