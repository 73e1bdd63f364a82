//! Guests in pods with an outdated launcher.

use std::time::Duration;

use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use kubevirt_api::KubeVirt;
use kubevirt_api::migration_request::VirtualMachineInstanceMigration;
use serde_json::{Value, json};

use super::cluster::{FaultMode, NAMESPACE, TestCluster};
use super::migrations::{keep_on_node, migrations, report, wait_for_phase};

const OUTDATED: &str = "kubevirt.io/outdatedLauncherImage";

fn installations(cluster: &TestCluster) -> Api<KubeVirt> {
    Api::namespaced(cluster.client.clone(), NAMESPACE)
}

/// A complete installation.
pub(crate) async fn install(cluster: &TestCluster, strategy: Value) {
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt"},
        "spec": {"workloadUpdateStrategy": strategy},
    });
    let object = serde_json::from_value(object).unwrap();
    let api = installations(cluster);
    api.create(&PostParams::default(), &object).await.unwrap();
    let deployed = Patch::Merge(json!({"status": {"phase": "Deployed"}}));
    let parameters = PatchParams::default();
    let patched = api.patch_status("kubevirt", &parameters, &deployed).await;
    patched.unwrap();
}

async fn wait_for_count(cluster: &TestCluster, count: i64) {
    cluster
        .wait_until(&format!("{count} outdated guests"), async || {
            let found = installations(cluster).get("kubevirt").await.unwrap();
            let status = found.status.unwrap();
            status.outdated_virtual_machine_instance_workloads == Some(count)
        })
        .await;
}

async fn image(cluster: &TestCluster, vmi: &str) -> Option<String> {
    let vmi = cluster.vmis().get_opt(vmi).await.unwrap()?;
    vmi.status?.launcher_container_image_version
}

/// Running guests that can move, or cannot.
async fn create_guests(cluster: &TestCluster, names: &[&str], can_move: bool) {
    for name in names {
        cluster.create_vm(name, "Always").await;
        cluster.wait_for_printable(name, "Running").await;
        let status = if can_move { "True" } else { "False" };
        let conditions = json!([
            {"type": "LiveMigratable", "status": status}, {"type": "Ready", "status": "True"}]);
        let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
        let parameters = PatchParams::default();
        let patched = cluster.vmis().patch(name, &parameters, &patch).await;
        patched.unwrap();
    }
}

pub(crate) async fn all_migrations(cluster: &TestCluster) -> Vec<VirtualMachineInstanceMigration> {
    let all = migrations(cluster).list(&ListParams::default()).await;
    all.unwrap().items
}

#[tokio::test(start_paused = true)]
async fn without_a_method_outdated_guests_are_counted_and_stay() {
    let mut cluster = TestCluster::new().await;
    install(&cluster, json!({})).await;
    wait_for_count(&cluster, 0).await;
    create_guests(&cluster, &["a"], true).await;
    assert_eq!(image(&cluster, "a").await.as_deref(), Some("launcher:1"));
    cluster.update_launcher("launcher:2").await;
    wait_for_count(&cluster, 1).await;
    let is_marked = async || {
        let vmi = cluster.vmis().get("a").await.unwrap();
        vmi.labels().contains_key(OUTDATED)
    };
    cluster
        .wait_until("it is marked", async || is_marked().await)
        .await;
    cluster.advance(Duration::from_mins(5)).await;
    assert_eq!(all_migrations(&cluster).await.len(), 0);
    assert_eq!(image(&cluster, "a").await.as_deref(), Some("launcher:1"));
    // The update is taken back.
    cluster.update_launcher("launcher:1").await;
    wait_for_count(&cluster, 0).await;
    let vmi = cluster.vmis().get("a").await.unwrap();
    cluster
        .wait_until("it is not marked", async || {
            let vmi = cluster.vmis().get("a").await.unwrap();
            !vmi.labels().contains_key(OUTDATED)
        })
        .await;
    assert_eq!(vmi.status.unwrap().phase.unwrap().as_str(), "Running");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn outdated_guest_moves_to_a_pod_with_the_current_launcher() {
    let mut cluster = TestCluster::new().await;
    let strategy = json!({"workloadUpdateMethods": ["LiveMigrate"]});
    install(&cluster, strategy).await;
    create_guests(&cluster, &["a"], true).await;
    let uid = cluster.vmis().get("a").await.unwrap().uid();
    cluster.update_launcher("launcher:2").await;
    cluster.crash_after("virt-controller/migration/move-guest");
    cluster
        .wait_until("there is a migration", async || {
            !all_migrations(&cluster).await.is_empty()
        })
        .await;
    wait_for_count(&cluster, 1).await;
    let mut all = all_migrations(&cluster).await;
    let migration = all.remove(0);
    assert_eq!(all.len(), 0, "created once");
    let name = migration.name_any();
    assert!(name.starts_with("kubevirt-workload-update-"), "{name}");
    let marks = migration.annotations();
    assert_eq!(marks["kubevirt.io/workloadUpdateMigration"], "");
    let priority = migration.spec.priority.unwrap();
    assert_eq!(priority.as_str(), "system-maintenance");
    wait_for_phase(&cluster, &name, "PreparingTarget").await;
    let moved = json!({"startTimestamp": "2026-11-21T12:00:05Z", "completed": true});
    report(&cluster, "a", moved).await;
    wait_for_phase(&cluster, &name, "Succeeded").await;
    wait_for_count(&cluster, 0).await;
    let vmi = cluster.vmis().get("a").await.unwrap();
    assert_eq!(vmi.uid(), uid);
    assert!(!vmi.labels().contains_key(OUTDATED));
    assert_eq!(image(&cluster, "a").await.as_deref(), Some("launcher:2"));
    cluster.advance(Duration::from_mins(5)).await;
    assert_eq!(all_migrations(&cluster).await.len(), 1);
    assert!(!cluster.is_crash_pending());
    cluster.end().await;
}

/// On a single host, both pods of a guest need its memory.
#[tokio::test(start_paused = true)]
async fn outdated_guests_of_one_node_move_one_after_the_other() {
    let mut cluster = TestCluster::new().await;
    let strategy = json!({"workloadUpdateMethods": ["LiveMigrate"]});
    install(&cluster, strategy).await;
    let guests = ["a", "b"];
    create_guests(&cluster, &guests, true).await;
    for name in guests {
        keep_on_node(&cluster, name).await;
    }
    cluster.update_launcher("launcher:2").await;
    wait_for_count(&cluster, 2).await;
    for count in 1..=guests.len() {
        cluster
            .wait_until("there is another migration", async || {
                all_migrations(&cluster).await.len() == count
            })
            .await;
        let all = all_migrations(&cluster).await;
        let is_new = |one: &&VirtualMachineInstanceMigration| {
            let phase = one.status.as_ref().and_then(|status| status.phase.clone());
            phase.is_none_or(|phase| phase.as_str() != "Succeeded")
        };
        let migration = all.iter().find(is_new).unwrap();
        let (name, guest) = (
            migration.name_any(),
            migration.spec.vmi_name.clone().unwrap(),
        );
        wait_for_phase(&cluster, &name, "PreparingTarget").await;
        cluster.advance(Duration::from_mins(1)).await;
        assert_eq!(all_migrations(&cluster).await.len(), count);
        let moved = json!({"startTimestamp": "2026-11-21T12:00:05Z", "completed": true});
        report(&cluster, &guest, moved).await;
        wait_for_phase(&cluster, &name, "Succeeded").await;
        assert_eq!(image(&cluster, &guest).await.as_deref(), Some("launcher:2"));
    }
    wait_for_count(&cluster, 0).await;
    cluster.advance(Duration::from_mins(5)).await;
    assert_eq!(all_migrations(&cluster).await.len(), guests.len());
    cluster.end().await;
}

/// Issue: a refused migration kept all other guests from their update, and their number from the status.
#[tokio::test(start_paused = true)]
async fn refused_migration_is_published_and_tried_again() {
    let mut cluster = TestCluster::new().await;
    let strategy = json!({"workloadUpdateMethods": ["LiveMigrate"]});
    install(&cluster, strategy).await;
    create_guests(&cluster, &["a"], true).await;
    cluster.set_fault_mode(FaultMode::NamespaceTerminating);
    cluster.update_launcher("launcher:2").await;
    wait_for_count(&cluster, 1).await;
    assert!(cluster.events_of("FailedCreate").await > 0);
    cluster.set_fault_mode(FaultMode::None);
    cluster
        .wait_until("there is a migration", async || {
            !all_migrations(&cluster).await.is_empty()
        })
        .await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn guests_that_cannot_move_are_evicted_in_batches() {
    let mut cluster = TestCluster::new().await;
    let strategy = json!({
        "workloadUpdateMethods": ["LiveMigrate", "Evict"],
        "batchEvictionSize": 1, "batchEvictionInterval": "2m",
    });
    install(&cluster, strategy).await;
    create_guests(&cluster, &["a", "b"], false).await;
    cluster.update_launcher("launcher:2").await;
    wait_for_count(&cluster, 2).await;
    let begin = tokio::time::Instant::now();
    for name in ["a", "b"] {
        cluster
            .wait_until(&format!("{name} is updated"), async || {
                image(&cluster, name).await.as_deref() == Some("launcher:2")
                    && cluster.printable(name).await == "Running"
            })
            .await;
    }
    assert!(
        begin.elapsed() > Duration::from_secs(100),
        "{:?}",
        begin.elapsed()
    );
    wait_for_count(&cluster, 0).await;
    assert_eq!(all_migrations(&cluster).await.len(), 0);
    assert_eq!(cluster.events_of("SuccessfulEvict").await, 2);

    // A new leader may evict another one too early, but none is lost.
    cluster.update_launcher("launcher:3").await;
    cluster.crash_after("virt-controller/migration/evict-outdated");
    for name in ["a", "b"] {
        cluster
            .wait_until(&format!("{name} is updated again"), async || {
                image(&cluster, name).await.as_deref() == Some("launcher:3")
            })
            .await;
    }
    wait_for_count(&cluster, 0).await;
    assert!(!cluster.is_crash_pending());
    cluster.end().await;
}
