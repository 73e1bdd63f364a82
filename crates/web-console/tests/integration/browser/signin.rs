//! A console for all users: signing in with a token or a kubeconfig, and out.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use embedded_api::Identity;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::Browser;
use crate::support::{Environment, user, viewer_rights, vm, vmi};

/// A token that names its namespace and its end; the API server of the test knows it as a whole.
fn token(lifetime: SignedDuration) -> String {
    let until = Timestamp::now() + lifetime;
    let claims = json!({"exp": until.as_second(), "kubernetes.io": {"namespace": "default"}});
    let payload = URL_SAFE_NO_PAD.encode(claims.to_string());
    format!("head.{payload}.signature")
}

#[tokio::test]
async fn token_signs_in_and_ends_with_a_clear_message() {
    let environment = Environment::start_for_tokens().await;
    viewer_rights(&environment, "vera").await;
    environment.create(vm("tiny")).await;
    environment.create_guest(vmi("tiny")).await;
    let vera = token(SignedDuration::from_hours(1));
    environment.users.add(&vera, Identity::new("vera", &[]));
    environment.users.add("of-the-administrator", user());

    let browser = Browser::open(&environment.page()).await;
    browser.click("main button.main").await;
    browser.until_text("[role=alert]", "Give a token").await;
    browser.fill("#token", "wrong").await;
    browser.click("main button.main").await;
    browser
        .until_text("[role=alert]", "does not accept this token")
        .await;
    browser.fill("#token", &vera).await;
    browser.click("main button.main").await;
    // The rights are those of the token: the list of all namespaces is forbidden.
    browser.until_text("tbody", "tiny").await;
    browser.until_text("#user", "vera").await;
    let stored = "return [Object.values(sessionStorage).join().includes('signature'), \
                  Object.values(localStorage).join().includes('signature'), document.cookie]";
    assert_eq!(browser.run(stored).await, json!([true, false, ""]));
    browser
        .until("document.querySelector('[data-key=create][aria-disabled]') !== null")
        .await;

    // The token is that of the requests until it is revoked.
    environment.users.revoke(&vera);
    browser.view("#/vm/default/tiny").await;
    browser
        .until_text("[role=alert]", "it has expired or was revoked. Sign in")
        .await;
    browser.until_text("main h1", "Sign in").await;
    assert_eq!(
        browser
            .run("return sessionStorage.getItem('ferrovirt.key')")
            .await,
        json!(null)
    );

    // Another user has other rights; the console of a guest takes the token, too.
    browser.fill("#token", "of-the-administrator").await;
    browser.click("main button.main").await;
    browser.until_text("#user", "admin").await;
    browser.until_text("main h1", "tiny").await;
    browser.click("[data-key=console]").await;
    browser.until_text(".terminal", "guest login: ").await;
    browser.click("#sign-out").await;
    browser.until_text("main h1", "Sign in").await;
    assert!(
        browser
            .run("return document.querySelector('#account').hidden")
            .await
            == true
            && browser
                .run("return sessionStorage.getItem('ferrovirt.key')")
                .await
                == json!(null)
    );
    browser
        .check_log(&["401 (Unauthorized)", "403 (Forbidden)"])
        .await;
    environment.api.stop.cancel();
}
