//! Changes of a running VM: what its VMI follows, and the migrations that they need.

use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::migration_request::VirtualMachineInstanceMigration;
use serde_json::{Value, json};

use super::cluster::TestCluster;
use super::instancetypes;
use super::migrations::{migrations, ready_to_move, report, wait_for_phase};
use super::workload_updates::{all_migrations, install};

const START: &str = "2026-11-21T12:00:05Z";
const HOUR: Duration = Duration::from_hours(1);

async fn patch_vmi(cluster: &TestCluster, name: &str, patch: Value) {
    let patch = Patch::Merge(patch);
    let parameters = PatchParams::default();
    let patched = cluster.vmis().patch(name, &parameters, &patch).await;
    patched.unwrap();
}

async fn vmi(cluster: &TestCluster, name: &str) -> VirtualMachineInstance {
    cluster.vmis().get(name).await.unwrap()
}

async fn sockets(cluster: &TestCluster, name: &str) -> Option<u32> {
    vmi(cluster, name).await.spec.domain.cpu?.sockets
}

async fn change_sockets(cluster: &TestCluster, sockets: u32) {
    let cpu = json!({"sockets": sockets});
    let patch = json!({"spec": {"template": {"spec": {"domain": {"cpu": cpu}}}}});
    cluster.patch_vm("a", patch).await;
}

/// The status of a condition of the VM.
async fn condition(cluster: &TestCluster, kind: &str) -> Option<(String, String)> {
    let status = cluster.vms().get("a").await.unwrap().status?;
    let mut all = status.conditions.into_iter();
    let found = all.find(|one| one.type_.as_str() == kind)?;
    Some((found.status, found.message.unwrap_or_default()))
}

async fn wait_for_condition(cluster: &TestCluster, kind: &str, status: Option<&str>) {
    cluster
        .wait_until(&format!("{kind} is {status:?}"), async || {
            let found = condition(cluster, kind).await;
            found.as_ref().map(|(status, _)| status.as_str()) == status
        })
        .await;
}

/// A running guest with one socket and room for three more, as defaults and virt-handler leave it.
async fn with_guest(can_move: bool) -> TestCluster {
    let cluster = TestCluster::new().await;
    create_guest(&cluster, can_move).await;
    cluster
}

async fn create_guest(cluster: &TestCluster, can_move: bool) {
    cluster.create_vm("a", "Always").await;
    equip_guest(cluster, can_move).await;
}

async fn equip_guest(cluster: &TestCluster, can_move: bool) {
    cluster.wait_for_printable("a", "Running").await;
    let (status, message) = if can_move {
        ("True", "")
    } else {
        ("False", "it has a device of its node")
    };
    let patch = json!({
        "spec": {
            "architecture": "amd64",
            "domain": {"cpu": {"sockets": 1, "cores": 1, "threads": 1, "maxSockets": 4}},
        },
        "status": {
            "currentCPUTopology": {"sockets": 1, "cores": 1, "threads": 1},
            "conditions": [
                {"type": "LiveMigratable", "status": status, "message": message},
                {"type": "Ready", "status": "True"},
            ],
        },
    });
    patch_vmi(cluster, "a", patch).await;
}

/// The only migration, once there is one.
async fn migration(cluster: &TestCluster) -> VirtualMachineInstanceMigration {
    cluster
        .wait_until("there is a migration", async || {
            !all_migrations(cluster).await.is_empty()
        })
        .await;
    let mut all = all_migrations(cluster).await;
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// virt-handler plugs the processors in.
async fn plug(cluster: &TestCluster, sockets: u32) {
    let topology = json!({"sockets": sockets, "cores": 1, "threads": 1});
    let patch = json!({"status": {"currentCPUTopology": topology}});
    patch_vmi(cluster, "a", patch).await;
}

async fn grow(cluster: &mut TestCluster, failpoint: &str) {
    let strategy = json!({"workloadUpdateMethods": ["LiveMigrate"]});
    install(cluster, strategy).await;
    create_guest(cluster, true).await;
    cluster.crash_after(failpoint);
    change_sockets(cluster, 2).await;
    wait_for_condition(cluster, "HotVCPUChange", Some("True")).await;
    assert_eq!(sockets(cluster, "a").await, Some(2));
    let migration = migration(cluster).await;
    let name = migration.name_any();
    assert!(name.starts_with("kubevirt-workload-update-"), "{name}");
    let marks = migration.annotations();
    assert_eq!(marks["kubevirt.io/workloadUpdateMigration"], "");
    assert_eq!(migration.spec.priority.unwrap().as_str(), "user-triggered");
    wait_for_phase(cluster, &name, "PreparingTarget").await;
    let pods = cluster.pods().list(&ListParams::default()).await.unwrap();
    let sizes = pods.items.iter().filter_map(|pod| {
        let all = pod.annotations();
        all.get("ferrovirt.io/guest-size")
    });
    let sizes: Vec<&String> = sizes.collect();
    assert!(
        matches!(&sizes[..], [size] if size.starts_with("vcpus=2,")),
        "{sizes:?}"
    );
    let moved = json!({
        "startTimestamp": START, "completed": true, "endTimestamp": cluster.now().to_string(),
    });
    report(cluster, "a", moved).await;
    cluster.advance(Duration::from_secs(30)).await;
    // It has succeeded once the guest has what it moved for; no other one begins meanwhile.
    wait_for_phase(cluster, &name, "Running").await;
    assert_eq!(all_migrations(cluster).await.len(), 1);
    plug(cluster, 2).await;
    wait_for_phase(cluster, &name, "Succeeded").await;
    wait_for_condition(cluster, "HotVCPUChange", None).await;
    cluster.advance(HOUR).await;
    assert_eq!(all_migrations(cluster).await.len(), 1);
    assert_eq!(condition(cluster, "RestartRequired").await, None);
    let vm = cluster.vms().get("a").await.unwrap();
    let status = vm.status.as_ref().unwrap();
    assert_eq!(status.observed_generation, vm.metadata.generation);
    assert!(!cluster.is_crash_pending(), "{failpoint}");
}

#[tokio::test(start_paused = true)]
async fn change_of_processors_moves_the_guest_once() {
    for name in ["vm/follow-template", "migration/move-guest"] {
        let mut cluster = TestCluster::new().await;
        grow(&mut cluster, &format!("virt-controller/{name}")).await;
        cluster.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn move_ends_when_its_change_is_taken_back() {
    let mut cluster = TestCluster::new().await;
    let strategy = json!({"workloadUpdateMethods": ["LiveMigrate"]});
    install(&cluster, strategy).await;
    create_guest(&cluster, true).await;
    change_sockets(&cluster, 3).await;
    let name = migration(&cluster).await.name_any();
    wait_for_phase(&cluster, &name, "PreparingTarget").await;
    cluster.crash_after("virt-controller/migration/abort-needless");
    change_sockets(&cluster, 1).await;
    cluster
        .wait_until("the abort is requested", async || {
            let state = vmi(&cluster, "a").await.status.unwrap().migration_state;
            state.is_some_and(|state| state.abort_requested == Some(true))
        })
        .await;
    let aborted = json!({"completed": true, "failed": true, "abortStatus": "Succeeded"});
    report(&cluster, "a", aborted).await;
    cluster
        .wait_until("it is gone", async || {
            migrations(&cluster).get_opt(&name).await.unwrap().is_none()
        })
        .await;
    wait_for_condition(&cluster, "HotVCPUChange", None).await;
    cluster.advance(HOUR).await;
    assert_eq!(all_migrations(&cluster).await.len(), 0);
    assert_eq!(sockets(&cluster, "a").await, Some(1));
    assert!(!cluster.is_crash_pending());
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn change_waits_visibly_while_the_guest_moves() {
    let cluster = with_guest(true).await;
    ready_to_move(&cluster, "m").await;
    report(&cluster, "a", json!({"startTimestamp": START})).await;
    wait_for_phase(&cluster, "m", "Running").await;
    change_sockets(&cluster, 2).await;
    wait_for_condition(&cluster, "ChangePending", Some("True")).await;
    let (_, message) = condition(&cluster, "ChangePending").await.unwrap();
    assert!(message.contains("the guest is migrating"), "{message}");
    assert_eq!(condition(&cluster, "RestartRequired").await, None);
    assert_eq!(sockets(&cluster, "a").await, Some(1));
    let failed = json!({"completed": true, "failed": true, "failureReason": "no room"});
    report(&cluster, "a", failed).await;
    wait_for_condition(&cluster, "HotVCPUChange", Some("True")).await;
    wait_for_condition(&cluster, "ChangePending", None).await;
    assert_eq!(sockets(&cluster, "a").await, Some(2));
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_method_the_change_waits_for_a_migration() {
    let cluster = with_guest(true).await;
    install(&cluster, json!({"workloadUpdateMethods": ["Evict"]})).await;
    change_sockets(&cluster, 2).await;
    wait_for_condition(&cluster, "HotVCPUChange", Some("True")).await;
    cluster.advance(HOUR).await;
    assert_eq!(all_migrations(&cluster).await.len(), 0);
    assert_eq!(condition(&cluster, "RestartRequired").await, None);
    let phase = vmi(&cluster, "a").await.status.unwrap().phase.unwrap();
    assert_eq!(phase.as_str(), "Running");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn guest_that_cannot_move_or_grow_so_far_needs_a_restart() {
    for (can_move, wanted, expected) in [
        (false, 2, "cannot migrate: it has a device of its node"),
        (true, 9, "room for 4 sockets"),
    ] {
        let cluster = with_guest(can_move).await;
        change_sockets(&cluster, wanted).await;
        wait_for_condition(&cluster, "RestartRequired", Some("True")).await;
        let (_, message) = condition(&cluster, "RestartRequired").await.unwrap();
        assert!(message.contains(expected), "{message}");
        assert_eq!(sockets(&cluster, "a").await, Some(1));
        change_sockets(&cluster, 1).await;
        wait_for_condition(&cluster, "RestartRequired", None).await;
        cluster.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn failed_change_needs_a_restart_and_starts_no_other_move() {
    let cluster = with_guest(true).await;
    let strategy = json!({"workloadUpdateMethods": ["LiveMigrate"]});
    change_sockets(&cluster, 2).await;
    wait_for_condition(&cluster, "HotVCPUChange", Some("True")).await;
    let failed = json!([
        {"type": "LiveMigratable", "status": "True"}, {"type": "Ready", "status": "True"},
        {"type": "HotVCPUChange", "status": "False", "message": "QEMU refuses"},
    ]);
    patch_vmi(&cluster, "a", json!({"status": {"conditions": failed}})).await;
    wait_for_condition(&cluster, "RestartRequired", Some("True")).await;
    let (_, message) = condition(&cluster, "RestartRequired").await.unwrap();
    assert!(message.contains("QEMU refuses"), "{message}");
    install(&cluster, strategy).await;
    cluster.advance(HOUR).await;
    assert_eq!(all_migrations(&cluster).await.len(), 0);
    // Taken back, the guest has all that it is to have.
    change_sockets(&cluster, 1).await;
    wait_for_condition(&cluster, "RestartRequired", None).await;
    wait_for_condition(&cluster, "HotVCPUChange", None).await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn nodes_of_the_guest_follow_and_take_effect_later() {
    let cluster = with_guest(true).await;
    install(&cluster, json!({"workloadUpdateMethods": ["LiveMigrate"]})).await;
    let selector = async || vmi(&cluster, "a").await.spec.node_selector;
    for wanted in [json!({"zone": "a"}), json!({"zone": null, "disk": "b"})] {
        let patch = json!({"spec": {"template": {"spec": {"nodeSelector": wanted}}}});
        cluster.patch_vm("a", patch).await;
        let key = if wanted["zone"].is_null() {
            "disk"
        } else {
            "zone"
        };
        cluster
            .wait_until("the VMI has the selector", async || {
                let found = selector().await;
                found.len() == 1 && found.contains_key(key)
            })
            .await;
    }
    cluster.advance(HOUR).await;
    assert_eq!(all_migrations(&cluster).await.len(), 0);
    assert_eq!(condition(&cluster, "RestartRequired").await, None);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn change_to_a_missing_instance_type_needs_a_restart() {
    let cluster = TestCluster::new().await;
    let kind = "VirtualMachineInstancetype";
    let small = instancetypes::instancetype(kind, "small", 1);
    instancetypes::create(&cluster, small).await;
    let choice = |name: &str| json!({"instancetype": {"name": name, "kind": kind}});
    instancetypes::create_vm(&cluster, instancetypes::sized("a", &choice("small"))).await;
    equip_guest(&cluster, true).await;
    for (name, expected) in [("missing", Some("True")), ("small", None)] {
        cluster.patch_vm("a", json!({"spec": choice(name)})).await;
        wait_for_condition(&cluster, "RestartRequired", expected).await;
        assert_eq!(sockets(&cluster, "a").await, Some(1));
    }
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn change_of_the_instance_type_is_followed_as_far_as_it_is_one_of_size() {
    let cluster = TestCluster::new().await;
    let kind = "VirtualMachineInstancetype";
    let mut dedicated = instancetypes::instancetype(kind, "dedicated", 2);
    dedicated["spec"]["cpu"]["dedicatedCPUPlacement"] = true.into();
    for made in [
        instancetypes::instancetype(kind, "small", 1),
        instancetypes::instancetype(kind, "large", 2),
        dedicated,
    ] {
        instancetypes::create(&cluster, made).await;
    }
    let choice = |name: &str| json!({"instancetype": {"name": name, "kind": kind}});
    instancetypes::create_vm(&cluster, instancetypes::sized("a", &choice("small"))).await;
    equip_guest(&cluster, true).await;
    cluster
        .patch_vm("a", json!({"spec": choice("large")}))
        .await;
    cluster
        .wait_until("the VMI has its processors", async || {
            sockets(&cluster, "a").await == Some(2)
        })
        .await;
    wait_for_condition(&cluster, "HotVCPUChange", Some("True")).await;
    assert_eq!(condition(&cluster, "RestartRequired").await, None);
    cluster
        .patch_vm("a", json!({"spec": choice("dedicated")}))
        .await;
    wait_for_condition(&cluster, "RestartRequired", Some("True")).await;
    let (_, message) = condition(&cluster, "RestartRequired").await.unwrap();
    let field = "spec.template.spec.domain.cpu.dedicatedCpuPlacement";
    assert!(
        message.to_lowercase().contains(&field.to_lowercase()),
        "{message}"
    );
    // The first one is what the guest was started with.
    cluster
        .patch_vm("a", json!({"spec": choice("small")}))
        .await;
    wait_for_condition(&cluster, "RestartRequired", None).await;
    wait_for_condition(&cluster, "HotVCPUChange", None).await;
    assert_eq!(sockets(&cluster, "a").await, Some(1));
    cluster.end().await;
}
