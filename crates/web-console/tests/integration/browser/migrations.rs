//! Migrations: started, followed and cancelled.

use serde_json::json;

use super::Browser;
use crate::support::{Environment, user, vm, vmi};

#[tokio::test]
async fn guest_moves_with_its_progress_and_the_move_is_cancelled() {
    let environment = Environment::start(user()).await;
    let mut tiny = vm("tiny");
    tiny["spec"]["runStrategy"] = "Always".into();
    environment.create(tiny).await;
    let guest = vmi("tiny");
    environment.create_guest(guest.clone()).await;
    let movable = json!([{"type": "LiveMigratable", "status": "True", "lastProbeTime": null, "lastTransitionTime": null}]);
    environment
        .merge(&guest, json!({"status": {"conditions": movable}}))
        .await;
    let browser = Browser::open(&environment.link()).await;
    browser.view("#/vm/default/tiny").await;
    let section = "section[aria-label=Migrations]";
    browser.until_text(section, "No migrations").await;
    browser.click("[data-verb=migrate]").await;
    browser.click("dialog [value=yes]").await;
    browser
        .until_text("#notices", "is moving to another pod")
        .await;
    browser
        .until_text(&format!("{section} .badge"), "Pending")
        .await;
    let name = browser
        .until(&format!(
            "document.querySelector('{section} button')?.dataset.key.replace('Cancel ', '')"
        ))
        .await;
    let migration = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name, "namespace": "default"},
    });
    let progress = json!([{
        "type": "migrationProgress", "status": "True", "lastProbeTime": null, "lastTransitionTime": null,
        "message": "16.0 of 96.0 MiB remain",
    }]);
    let status = json!({"status": {
        "phase": "Running", "conditions": progress,
        "migrationState": {"sourceNode": "node1", "targetNode": "node2"},
    }});
    environment.merge_status(&migration, status).await;
    browser.until_text(section, "80 of 96 MiB").await;
    browser.until_text(section, "node1 → node2").await;
    let share = browser
        .run("const { value, max } = document.querySelector('progress'); return value / max")
        .await;
    assert!(
        (share.as_f64().unwrap() - 80.0 / 96.0).abs() < 0.001,
        "{share}"
    );

    // The message would lie above the button.
    browser.click("#notices button").await;
    browser.click(&format!("{section} button")).await;
    browser.click("dialog [value=yes]").await;
    browser
        .until(&format!(
            "['No migrations', 'Cancelling'].some((text) => document.querySelector('{section}').textContent.includes(text))"
        ))
        .await;
    let left = environment.object(&migration).await;
    assert!(left.is_none_or(|one| one.metadata.deletion_timestamp.is_some()));
    browser.check_log(&[]).await;
    environment.api.stop.cancel();
}
