//! Volumes of running guests that move to other claims, with the parts of both virt-handlers played by the test.

use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use kubevirt_api::VirtualMachineInstance;
use serde_json::{Value, json};

use super::cluster::TestCluster;
use super::migrations::{migrations, report, wait_for_phase};
use super::workload_updates::{all_migrations, install};

const START: &str = "2026-11-21T12:00:05Z";
const HOUR: Duration = Duration::from_hours(1);

async fn vmi(cluster: &TestCluster) -> VirtualMachineInstance {
    cluster.vmis().get("a").await.unwrap()
}

async fn patch_vmi(cluster: &TestCluster, patch: Value) {
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
    let patched = cluster.vmis().patch("a", &parameters, &patch).await;
    patched.unwrap();
}

/// The claim of the volume in the spec of the VMI.
async fn claim_of_guest(cluster: &TestCluster) -> Option<String> {
    let vmi = cluster.vmis().get_opt("a").await.unwrap()?;
    let mut volumes = vmi.spec.volumes.into_iter();
    let volume = volumes.find(|volume| volume.name == "data")?;
    Some(volume.persistent_volume_claim?.claim_name)
}

/// Puts the volume of the VM on another claim.
async fn put_on(cluster: &TestCluster, claim: &str) {
    let vm = cluster.vms().get("a").await.unwrap();
    let mut volumes = json!(vm)["spec"]["template"]["spec"]["volumes"].take();
    for volume in volumes.as_array_mut().unwrap() {
        if volume["name"] == "data" {
            volume["persistentVolumeClaim"]["claimName"] = claim.into();
        }
    }
    let patch = json!({"spec": {
        "updateVolumesStrategy": "Migration", "template": {"spec": {"volumes": volumes}},
    }});
    cluster.patch_vm("a", patch).await;
}

async fn condition_of_vm(cluster: &TestCluster, kind: &str) -> Option<(String, String)> {
    let status = cluster.vms().get("a").await.unwrap().status?;
    let mut all = status.conditions.into_iter();
    let found = all.find(|one| one.type_.as_str() == kind)?;
    Some((found.status, found.message.unwrap_or_default()))
}

/// Status and reason of `VolumesChange` of the VMI.
async fn change(cluster: &TestCluster) -> Option<(String, String)> {
    let mut all = vmi(cluster).await.status.unwrap().conditions.into_iter();
    let found = all.find(|one| one.type_.as_str() == "VolumesChange")?;
    Some((found.status, found.reason.unwrap_or_default()))
}

/// Whether VM and VMI list a move.
async fn lists(cluster: &TestCluster) -> (bool, bool) {
    let vm = cluster.vms().get("a").await.unwrap().status.unwrap();
    let moving = cluster.vmis().get_opt("a").await.unwrap();
    let moving = moving.and_then(|vmi| vmi.status);
    let of_vmi = moving.is_some_and(|status| !status.migrated_volumes.is_empty());
    (vm.volume_update_state.is_some(), of_vmi)
}

async fn wait_for_lists(cluster: &TestCluster, expected: (bool, bool)) {
    cluster
        .wait_until(
            &format!("VM and VMI list moves: {expected:?}"),
            async || lists(cluster).await == expected,
        )
        .await;
}

/// A running guest with a disk on claim `old`.
async fn with_guest(cluster: &TestCluster) {
    install(cluster, json!({"workloadUpdateMethods": ["LiveMigrate"]})).await;
    for claim in ["old", "new"] {
        cluster.create_claim(claim).await;
    }
    cluster.create_vm_on_claim("a", "old").await;
    cluster.wait_for_printable("a", "Running").await;
    patch_vmi(
        cluster,
        json!({"status": {"conditions": [
            {"type": "LiveMigratable", "status": "True"}, {"type": "Ready", "status": "True"},
        ]}}),
    )
    .await;
}

/// Changes the claim, and returns the name of the migration, once it is handed over.
async fn handed_over(cluster: &TestCluster) -> String {
    put_on(cluster, "new").await;
    cluster
        .wait_until("there is a migration", async || {
            !all_migrations(cluster).await.is_empty()
        })
        .await;
    let migration = all_migrations(cluster).await.remove(0);
    let name = migration.name_any();
    wait_for_phase(cluster, &name, "PreparingTarget").await;
    assert_eq!(lists(cluster).await, (true, true));
    let vmi = vmi(cluster).await;
    assert_eq!(
        vmi.annotations().get("ferrovirt.io/volumes-carried-by"),
        migration.metadata.uid.as_ref()
    );
    // Until the guest has the other claim.
    assert_eq!(claim_of_guest(cluster).await.as_deref(), Some("old"));
    let pods = cluster.pods().list(&ListParams::default()).await.unwrap();
    let target = pods.iter().find(|pod| {
        let moved = pod.annotations().get("ferrovirt.io/migrated-volumes");
        moved.is_some_and(|moved| moved == r#"{"data":["old","new"]}"#)
    });
    let volumes = target.unwrap().spec.as_ref().unwrap().volumes.iter();
    let claims = volumes.flatten().filter_map(|volume| {
        let claim = volume.persistent_volume_claim.as_ref()?;
        Some(claim.claim_name.as_str())
    });
    assert_eq!(claims.collect::<Vec<_>>(), ["new"]);
    name
}

async fn wait_for_claim(cluster: &TestCluster, claim: &str) {
    cluster
        .wait_until(&format!("the guest has claim {claim}"), async || {
            claim_of_guest(cluster).await.as_deref() == Some(claim)
        })
        .await;
}

async fn wait_for_abort(cluster: &TestCluster) {
    cluster
        .wait_until("the abort is requested", async || {
            let state = vmi(cluster).await.status.unwrap().migration_state;
            state.is_some_and(|state| state.abort_requested == Some(true))
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn volume_moves_once_and_survives_a_crash_at_every_failpoint() {
    for name in [
        "vm/write-status",
        "vm/follow-volumes",
        "migration/move-guest",
        "migration/create-target",
        "migration/hand-over",
        "vmi/settle-volumes",
    ] {
        let mut cluster = TestCluster::new().await;
        with_guest(&cluster).await;
        cluster.crash_after(&format!("virt-controller/{name}"));
        let migration = handed_over(&cluster).await;
        assert_eq!(change(&cluster).await.unwrap().0, "True", "{name}");
        assert_eq!(condition_of_vm(&cluster, "RestartRequired").await, None);
        let over = json!({"startTimestamp": START, "completed": true, "endTimestamp": START});
        report(&cluster, "a", over).await;
        wait_for_phase(&cluster, &migration, "Succeeded").await;
        wait_for_claim(&cluster, "new").await;
        wait_for_lists(&cluster, (false, false)).await;
        assert_eq!(change(&cluster).await, None, "{name}");
        cluster.advance(HOUR).await;
        assert_eq!(all_migrations(&cluster).await.len(), 1, "{name}");
        assert_eq!(condition_of_vm(&cluster, "RestartRequired").await, None);
        let vm = cluster.vms().get("a").await.unwrap();
        let status = vm.status.as_ref().unwrap();
        assert_eq!(status.observed_generation, vm.metadata.generation, "{name}");
        assert!(!cluster.is_crash_pending(), "{name}");
        cluster.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn change_that_is_taken_back_ends_the_move() {
    for name in ["vm/follow-volumes", "migration/request-abort"] {
        let mut cluster = TestCluster::new().await;
        with_guest(&cluster).await;
        let migration = handed_over(&cluster).await;
        report(&cluster, "a", json!({"startTimestamp": START})).await;
        wait_for_phase(&cluster, &migration, "Running").await;
        cluster.crash_after(&format!("virt-controller/{name}"));
        put_on(&cluster, "old").await;
        wait_for_abort(&cluster).await;
        let cancelled = ("False".to_owned(), "VolumesChangeCancellation".to_owned());
        assert_eq!(change(&cluster).await, Some(cancelled.clone()), "{name}");
        // The old node may still give the guest to the new one.
        cluster.advance(HOUR).await;
        assert_eq!(lists(&cluster).await, (true, true), "{name}");
        let aborted = json!({"completed": true, "failed": true, "abortStatus": "Succeeded"});
        report(&cluster, "a", aborted).await;
        wait_for_lists(&cluster, (false, false)).await;
        cluster.advance(HOUR).await;
        assert_eq!(
            claim_of_guest(&cluster).await.as_deref(),
            Some("old"),
            "{name}"
        );
        assert_eq!(change(&cluster).await, Some(cancelled), "{name}");
        assert_eq!(condition_of_vm(&cluster, "RestartRequired").await, None);
        let open = all_migrations(&cluster).await.into_iter().filter(|one| {
            let phase = one.status.as_ref().and_then(|status| status.phase.as_ref());
            phase.is_none_or(|phase| !matches!(phase.as_str(), "Succeeded" | "Failed"))
        });
        assert_eq!(open.count(), 0, "{name}");
        assert!(!cluster.is_crash_pending(), "{name}");
        cluster.end().await;
    }
}

/// It was too late: the template names the claim that the guest has left, so it moves back.
#[tokio::test(start_paused = true)]
async fn guest_that_has_moved_all_the_same_moves_back() {
    let cluster = TestCluster::new().await;
    with_guest(&cluster).await;
    let first = handed_over(&cluster).await;
    report(&cluster, "a", json!({"startTimestamp": START})).await;
    wait_for_phase(&cluster, &first, "Running").await;
    put_on(&cluster, "old").await;
    wait_for_abort(&cluster).await;
    report(
        &cluster,
        "a",
        json!({"completed": true, "endTimestamp": START}),
    )
    .await;
    wait_for_claim(&cluster, "new").await;
    cluster
        .wait_until("another move begins", async || {
            let status = vmi(&cluster).await.status.unwrap();
            let destinations = status.migrated_volumes.into_iter();
            let mut claims = destinations.filter_map(|one| one.destination_pvc_info?.claim_name);
            claims.next().as_deref() == Some("old")
        })
        .await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn failed_move_is_tried_again_with_the_former_claim_in_use() {
    let cluster = TestCluster::new().await;
    with_guest(&cluster).await;
    let first = handed_over(&cluster).await;
    let failed = json!({"startTimestamp": START, "completed": true, "failed": true,
        "failureReason": "no room"});
    report(&cluster, "a", failed).await;
    wait_for_phase(&cluster, &first, "Failed").await;
    assert_eq!(claim_of_guest(&cluster).await.as_deref(), Some("old"));
    cluster
        .wait_until("another migration is handed over", async || {
            let status = vmi(&cluster).await.status.unwrap();
            let all = all_migrations(&cluster).await;
            let state = status.migration_state.unwrap_or_default();
            let mut others = all.iter().filter(|one| one.name_any() != first);
            others.any(|one| one.uid() == state.migration_uid)
        })
        .await;
    assert_eq!(lists(&cluster).await, (true, true));
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn no_guest_starts_on_a_claim_with_half_a_copy() {
    for name in ["vm/write-status", "vm/release-vmi"] {
        let mut cluster = TestCluster::new().await;
        with_guest(&cluster).await;
        handed_over(&cluster).await;
        report(&cluster, "a", json!({"startTimestamp": START})).await;
        cluster.crash_after(&format!("virt-controller/{name}"));
        patch_vmi(&cluster, json!({"status": {"phase": "Failed"}})).await;
        cluster
            .wait_until("recovery is required", async || {
                let found = condition_of_vm(&cluster, "ManualRecoveryRequired").await;
                found.is_some_and(|(status, _)| status == "True")
            })
            .await;
        cluster.advance(HOUR).await;
        assert_eq!(claim_of_guest(&cluster).await, None, "{name}");
        let (_, message) = condition_of_vm(&cluster, "ManualRecoveryRequired")
            .await
            .unwrap();
        assert!(message.contains("data from old to new"), "{message}");
        assert!(!cluster.is_crash_pending(), "{name}");
        put_on(&cluster, "old").await;
        wait_for_claim(&cluster, "old").await;
        cluster.wait_for_printable("a", "Running").await;
        assert_eq!(
            condition_of_vm(&cluster, "ManualRecoveryRequired").await,
            None
        );
        assert_eq!(lists(&cluster).await, (false, false), "{name}");
        cluster.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn administrator_may_declare_a_copy_complete() {
    let cluster = TestCluster::new().await;
    with_guest(&cluster).await;
    handed_over(&cluster).await;
    report(&cluster, "a", json!({"startTimestamp": START})).await;
    patch_vmi(&cluster, json!({"status": {"phase": "Failed"}})).await;
    cluster
        .wait_until("recovery is required", async || {
            condition_of_vm(&cluster, "ManualRecoveryRequired")
                .await
                .is_some()
        })
        .await;
    let patch = json!({"spec": {"updateVolumesStrategy": "Replacement"}});
    cluster.patch_vm("a", patch).await;
    wait_for_claim(&cluster, "new").await;
    wait_for_lists(&cluster, (false, false)).await;
    cluster.end().await;
}

/// The guest had arrived, and ended before that was written to the spec of its VMI.
#[tokio::test(start_paused = true)]
async fn guest_that_ended_after_its_move_starts_on_the_new_claim() {
    for name in ["vmi/settle-volumes", "vm/write-status"] {
        let mut cluster = TestCluster::new().await;
        with_guest(&cluster).await;
        handed_over(&cluster).await;
        let before = vmi(&cluster).await.uid();
        cluster.crash_after(&format!("virt-controller/{name}"));
        let ended = json!({"status": {"phase": "Failed",
            "migrationState": {"startTimestamp": START, "completed": true, "endTimestamp": START}}});
        patch_vmi(&cluster, ended).await;
        cluster
            .wait_until("another guest is there", async || {
                let now = cluster.vmis().get_opt("a").await.unwrap();
                now.is_some_and(|now| now.uid() != before)
            })
            .await;
        assert_eq!(
            claim_of_guest(&cluster).await.as_deref(),
            Some("new"),
            "{name}"
        );
        assert_eq!(
            condition_of_vm(&cluster, "ManualRecoveryRequired").await,
            None
        );
        assert_eq!(lists(&cluster).await, (false, false), "{name}");
        assert!(!cluster.is_crash_pending(), "{name}");
        cluster.end().await;
    }
}

/// A pod that was made before the change does not get the guest: it would have the former claim.
#[tokio::test(start_paused = true)]
async fn pod_that_was_made_for_other_claims_does_not_get_the_guest() {
    let mut cluster = TestCluster::new().await;
    with_guest(&cluster).await;
    cluster.crash_and_stay_down_after("virt-controller/migration/create-target");
    let migration = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "m"}, "spec": {"vmiName": "a"},
    });
    let migration = serde_json::from_value(migration).unwrap();
    migrations(&cluster)
        .create(&kube::api::PostParams::default(), &migration)
        .await
        .unwrap();
    cluster
        .wait_until("the pod is there", async || !cluster.is_crash_pending())
        .await;
    let claim = |name: &str| json!({"claimName": name});
    patch_vmi(
        &cluster,
        json!({"status": {
            "conditions": [{"type": "LiveMigratable", "status": "True"},
                {"type": "Ready", "status": "True"}, {"type": "VolumesChange", "status": "True"}],
            "migratedVolumes": [{"volumeName": "data", "sourcePVCInfo": claim("old"),
                "destinationPVCInfo": claim("new")}],
        }}),
    )
    .await;
    put_on(&cluster, "new").await;
    cluster.start_controllers();
    wait_for_phase(&cluster, "m", "Failed").await;
    assert_eq!(claim_of_guest(&cluster).await.as_deref(), Some("old"));
    cluster.end().await;
}
