//! A guest moves with a volume that was attached while it runs. The test plays the parts of both virt-handlers.

use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::cluster::TestCluster;
use super::hotplug::{self, report_with, set_volumes, volume};
use super::migrations::{keep_on_node, migrations, ready_to_move, report, wait_for_phase};

const TIME: &str = "2026-11-21T12:00:05Z";

async fn with_volume() -> TestCluster {
    let cluster = hotplug::with_guest().await;
    set_volumes(&cluster, &["one"]).await;
    hotplug::wait_for_phase(&cluster, "one", "AttachedToNode").await;
    report_with(&cluster, "one", json!({"phase": "Ready", "target": "sda"})).await;
    cluster
}

/// The pod that brings the volume, by the VMI's status.
async fn published(cluster: &TestCluster) -> Value {
    volume(cluster, "one").await["hotplugVolume"]["attachPodUID"].clone()
}

async fn wait_for_published(cluster: &TestCluster, expected: &Value) {
    cluster
        .wait_until("the volume is in its new pod", async || {
            published(cluster).await == *expected
        })
        .await;
}

/// The pod that brings it to the new pod of the guest, by the record of the migration.
async fn of_target(cluster: &TestCluster) -> Value {
    let vmi = cluster.vmis().get("a").await.unwrap();
    let state = json!(vmi.status.unwrap().migration_state);
    state["targetAttachmentPodUID"].clone()
}

/// A crash of the controllers at any step changes nothing.
#[tokio::test(start_paused = true)]
async fn volume_of_a_running_guest_moves_along() {
    let crashes = ["create-attachment", "hand-over", ""];
    for (crash, leaves) in crashes.iter().flat_map(|one| [(*one, true), (*one, false)]) {
        let mut cluster = with_volume().await;
        if !leaves {
            keep_on_node(&cluster, "a").await;
        }
        let before = published(&cluster).await;
        if !crash.is_empty() {
            cluster.crash_after(&format!("virt-controller/migration/{crash}"));
        }
        ready_to_move(&cluster, "m").await;
        let after = of_target(&cluster).await;
        assert!(
            after.is_string() && after != before,
            "{crash}: {after} {before}"
        );
        // The old pod has the guest.
        assert_eq!(published(&cluster).await, before, "{crash}");
        report(&cluster, "a", json!({"startTimestamp": TIME})).await;
        let end = json!({"completed": true, "endTimestamp": TIME});
        report(&cluster, "a", end).await;
        wait_for_phase(&cluster, "m", "Succeeded").await;
        wait_for_published(&cluster, &after).await;
        assert_eq!(volume(&cluster, "one").await["phase"], "Ready", "{crash}");
        // It leaves the guest there as anywhere.
        set_volumes(&cluster, &[]).await;
        hotplug::wait_for_phase(&cluster, "one", "Detaching").await;
        assert!(!cluster.is_crash_pending(), "{crash} was not reached");
        cluster.end().await;
    }
}

/// What the spec says about volumes waits for the end of the migration, though that fails.
#[tokio::test(start_paused = true)]
async fn volume_stays_until_a_failed_migration_is_over() {
    let cluster = with_volume().await;
    let before = published(&cluster).await;
    ready_to_move(&cluster, "m").await;
    let api = migrations(&cluster);
    api.delete("m", &DeleteParams::default()).await.unwrap();
    set_volumes(&cluster, &[]).await;
    cluster
        .wait_until("the VMI has lost it", async || {
            let vmi = cluster.vmis().get("a").await.unwrap();
            vmi.spec.volumes.iter().all(|volume| volume.name != "one")
        })
        .await;
    assert_eq!(volume(&cluster, "one").await["phase"], "Ready");
    let aborted = json!({"completed": true, "failed": true, "abortStatus": "Succeeded"});
    report(&cluster, "a", aborted).await;
    hotplug::wait_for_phase(&cluster, "one", "Detaching").await;
    assert_eq!(published(&cluster).await, before);
    cluster.end().await;
}
