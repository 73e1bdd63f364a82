//! The page of one VM.

use serde_json::json;

use super::Browser;
use crate::support::{Environment, user, vm, vmi};

#[tokio::test]
async fn details_show_all_parts_and_the_cause() {
    let environment = Environment::start(user()).await;
    let mut tiny = vm("tiny");
    tiny["spec"]["runStrategy"] = "Always".into();
    environment.create(tiny.clone()).await;
    environment
        .merge_status(&tiny, json!({"status": {"printableStatus": "Starting"}}))
        .await;
    let mut guest = vmi("tiny");
    guest["status"] = json!({"phase": "Pending", "conditions": [
        {"type": "Synchronized", "status": "False", "reason": "FailedPvcNotFound", "lastProbeTime": null,
         "message": "PVC default/debian-root does not exist", "lastTransitionTime": "2026-11-21T12:00:00Z"}]});
    environment.create_guest(guest).await;
    environment
        .create(json!({
            "apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": "FailedPvcNotFound", "count": 3,
            "metadata": {"name": "tiny.1", "namespace": "default"}, "message": "the claim does not exist",
            "involvedObject": {"kind": "VirtualMachineInstance", "name": "tiny", "namespace": "default"},
            "lastTimestamp": "2026-11-21T12:00:00Z",
        }))
        .await;
    let browser = Browser::open(&environment.link()).await;
    browser.click("a[href='#/vm/default/tiny']").await;
    for (section, text) in [
        ("Summary", "1Gi"),
        ("Conditions", "FailedPvcNotFound"),
        ("Disks", "debian-root"),
        ("Disks", "cloudInitNoCloud"),
        ("Networks", "masquerade"),
        ("Events", "the claim does not exist"),
        ("Why", "debian-root"),
    ] {
        let selector = format!("section[aria-label={section}]");
        browser.until_text(&selector, text).await;
    }
    browser
        .until("document.querySelector('[data-cause=claim-missing]') !== null")
        .await;
    browser.click("section[aria-label=Object] summary").await;
    browser
        .until_text("section[aria-label=Object] pre", "runStrategy: Always")
        .await;
    browser
        .until_text("section[aria-label=Object] pre", "cores: 2")
        .await;
    browser.view("#/vm/default/absent").await;
    browser
        .until_text("[role=alert]", "There is no VM absent")
        .await;
    browser.check_log(&["404 (Not Found)"]).await;
    environment.api.stop.cancel();
}

#[tokio::test]
async fn buttons_start_stop_and_delete() {
    let environment = Environment::start(user()).await;
    let tiny = vm("tiny");
    environment.create(tiny.clone()).await;
    let browser = Browser::open(&environment.link()).await;
    browser.view("#/vm/default/tiny").await;
    browser.click("[data-verb=start]").await;
    browser
        .until_text("#notices", "default/tiny is starting")
        .await;
    let started = environment.object(&tiny).await.unwrap();
    assert_eq!(started.data["spec"]["runStrategy"], "Always");
    let verb = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/tiny";
    assert!(environment.log.last(&format!("PUT {verb}/start")).is_some());

    let guest = vmi("tiny");
    environment.create_guest(guest.clone()).await;
    browser.until("['stop', 'restart', 'pause'].every((verb) => document.querySelector(`[data-verb=${verb}]`))").await;
    assert_eq!(
        browser
            .run("return document.querySelector('[data-verb=start]')")
            .await,
        json!(null)
    );
    let paused = json!([{"type": "Paused", "status": "True", "lastProbeTime": null, "lastTransitionTime": null}]);
    environment
        .merge(&guest, json!({"status": {"conditions": paused}}))
        .await;
    browser
        .until("document.querySelector('[data-verb=unpause]') !== null")
        .await;

    browser.click("[data-verb=stop]").await;
    browser.click("dialog [value=no]").await;
    assert!(environment.log.last(&format!("PUT {verb}/stop")).is_none());
    browser.click("[data-verb=stop]").await;
    browser.click("dialog [value=yes]").await;
    browser
        .until_text("#notices", "default/tiny is stopping")
        .await;
    let stopped = environment.object(&tiny).await.unwrap();
    assert_eq!(stopped.data["spec"]["runStrategy"], "Halted");

    browser.click("[data-verb=delete]").await;
    browser.click("dialog [value=yes]").await;
    browser.until_text("#notices", "is being deleted").await;
    assert!(environment.object(&tiny).await.is_none());
    browser.check_log(&[]).await;
    environment.api.stop.cancel();
}

#[tokio::test]
async fn suspended_vm_can_be_resumed() {
    let environment = Environment::start(user()).await;
    let tiny = vm("tiny");
    environment.create(tiny.clone()).await;
    let suspended = json!([{"type": "Suspended", "status": "True", "reason": "Suspended",
                            "lastProbeTime": null, "lastTransitionTime": null}]);
    let status = json!({"printableStatus": "Stopped", "conditions": suspended});
    environment
        .merge_status(&tiny, json!({"status": status}))
        .await;
    let browser = Browser::open(&environment.link()).await;
    browser.until_text("tbody", "Suspended").await;
    browser.view("#/vm/default/tiny").await;
    browser
        .until("document.querySelector('[data-verb=resume]') !== null")
        .await;
    let other = "return document.querySelector('[data-verb=start], [data-verb=suspend]')";
    assert_eq!(browser.run(other).await, json!(null));
    browser.click("summary.button").await;
    browser.click("[data-verb=discard]").await;
    browser.click("dialog [value=no]").await;
    browser.click("[data-verb=resume]").await;
    browser
        .until_text("#notices", "default/tiny goes on where it was")
        .await;
    let verb = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/tiny/resume";
    assert!(environment.log.last(&format!("PUT {verb}")).is_some());
    let asked = environment.object(&tiny).await.unwrap();
    let requests = &asked.data["status"]["stateChangeRequests"];
    assert!(!requests.as_array().unwrap().is_empty(), "{requests}");
    browser.check_log(&[]).await;
    environment.api.stop.cancel();
}

#[tokio::test]
async fn usage_is_shown_and_volumes_come_and_go() {
    let environment = Environment::start(user()).await;
    let tiny = vm("tiny");
    environment.create(tiny.clone()).await;
    let guest = vmi("tiny");
    environment.create_guest(guest.clone()).await;
    let browser = Browser::open(&environment.link()).await;
    let row = "tr:has([href='#/vm/default/tiny'])";
    for figure in ["300 MiB", "50.0 %"] {
        browser.until_text(row, figure).await;
    }
    browser.view("#/vm/default/tiny").await;
    for figure in [
        "50.0 % of 200 %",
        "300 MiB for 1.0 GiB",
        "2.0 KiB/s",
        "3.0 KiB/s",
    ] {
        browser
            .until_text("section[aria-label=Usage]", figure)
            .await;
    }
    // Only a guest that can move has the button.
    assert_eq!(
        browser
            .run("return document.querySelector('[data-verb=migrate]')")
            .await,
        json!(null)
    );
    let movable = json!([{"type": "LiveMigratable", "status": "True", "lastProbeTime": null, "lastTransitionTime": null}]);
    environment
        .merge(&guest, json!({"status": {"conditions": movable}}))
        .await;
    browser
        .until("document.querySelector('[data-verb=migrate]') !== null")
        .await;

    browser.click("[data-verb=addvolume]").await;
    browser.fill("#dialog-claimName", "extra").await;
    browser.click("dialog button.main").await;
    browser
        .until_text("#notices", "default/tiny gets the volume")
        .await;
    let volumes = async || {
        let object = environment.object(&tiny).await.unwrap();
        object.data["spec"]["template"]["spec"]["volumes"].clone()
    };
    let claim = json!({"claimName": "extra", "hotpluggable": true});
    assert_eq!(volumes().await[2]["persistentVolumeClaim"], claim);
    browser.click("[aria-label='Detach extra']").await;
    browser.click("dialog [value=yes]").await;
    browser.until_text("#notices", "loses the volume").await;
    assert_eq!(volumes().await.as_array().unwrap().len(), 2);

    // An error stands in the dialog, which stays.
    browser.click("summary.button").await;
    browser.click("[data-verb=memorydump]").await;
    browser.fill("#dialog-claimName", "none").await;
    browser.click("dialog button.main").await;
    browser
        .until("document.querySelector('dialog [role=alert]').textContent !== ''")
        .await;
    browser.click("dialog button[type=button]").await;
    browser
        .until("document.querySelector('dialog') === null")
        .await;
    environment.api.stop.cancel();
}
