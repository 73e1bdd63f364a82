//! Uploads of images.

use std::{fs, path::Path};

use serde_json::json;
use tempfile::TempDir;

use super::Browser;
use crate::support::{Environment, Outcome, Proxy, user};

/// More than the connections between browser and proxy hold.
const SIZE: usize = 24 << 20;

#[tokio::test]
async fn image_is_uploaded_after_a_refusal_and_a_cancellation() {
    let environment = Environment::start(user()).await;
    let proxy = Proxy::start(&environment).await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("Debian_12.img");
    fs::write(&file, vec![7; SIZE]).unwrap();
    let browser = Browser::open(&environment.link()).await;
    browser.view("#/images").await;
    browser
        .until_text("section", "There is no data volume here yet")
        .await;
    choose(&browser, &file).await;
    browser
        .until("document.querySelector('#image-name').value === 'debian-12'")
        .await;
    browser.click("#send").await;
    browser.until_text("#step", "Waiting for the volume").await;
    let volume = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {"name": "debian-12", "namespace": "default"},
    });
    let made = environment.object(&volume).await.unwrap();
    assert_eq!(made.data["spec"]["source"], json!({"upload": {}}));
    let request = &made.data["spec"]["storage"]["resources"]["requests"];
    assert_eq!(request["storage"], "1Gi");
    let ready = json!({"status": {"phase": "UploadReady"}});
    environment.merge_status(&volume, ready).await;
    browser
        .until_text("form [role=alert]", "the image is damaged")
        .await;
    browser
        .until_text("form [role=alert]", "cannot be resumed")
        .await;

    proxy.next(Outcome::Hang);
    browser.until_text("#send", "Send again").await;
    browser.click("#send").await;
    browser.until_text("#step", "of 24 MiB").await;
    browser.click("#cancel").await;
    browser
        .until_text(
            "form [role=alert]",
            "Cancelled. An upload cannot be resumed",
        )
        .await;

    proxy.next(Outcome::Accept);
    browser.click("#send").await;
    browser
        .until_text(
            "#notices",
            "default/debian-12 has the data of Debian_12.img",
        )
        .await;
    assert_eq!(proxy.sizes(), [SIZE]);
    let done = json!({"status": {"phase": "Succeeded"}});
    environment.merge_status(&volume, done).await;
    browser.until_text("section tbody", "Succeeded").await;

    // What has its data is not overwritten.
    browser.click("#send").await;
    browser
        .until_text(
            "form [role=alert]",
            "There is a data volume debian-12 already",
        )
        .await;
    // The message would lie above the button.
    browser.click("#notices button").await;
    browser.click("[aria-label='Delete debian-12']").await;
    browser.click("dialog [value=yes]").await;
    browser
        .until_text("section", "There is no data volume here yet")
        .await;
    browser
        .check_log(&["400 (Bad Request)", "409 (Conflict)"])
        .await;
    environment.api.stop.cancel();
}

async fn choose(browser: &Browser, file: &Path) {
    browser.choose("#image-file", file).await;
}
