//! The controllers against embedded-api, in process, on a paused clock.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "controllers/backup_restores.rs"]
mod backup_restores;
#[path = "controllers/backup_restores_overwrite.rs"]
mod backup_restores_overwrite;
#[path = "controllers/backups.rs"]
mod backups;
#[path = "controllers/clones.rs"]
mod clones;
mod cluster;
#[path = "controllers/container_disks.rs"]
mod container_disks;
#[path = "controllers/copies.rs"]
mod copies;
#[path = "controllers/data_import_crons.rs"]
mod data_import_crons;
#[path = "controllers/data_sources.rs"]
mod data_sources;
#[path = "controllers/data_volumes.rs"]
mod data_volumes;
#[path = "controllers/decentralized.rs"]
mod decentralized;
#[path = "controllers/exports.rs"]
mod exports;
#[path = "controllers/failpoints.rs"]
mod failpoints;
#[path = "controllers/frequencies.rs"]
mod frequencies;
#[path = "controllers/hotplug.rs"]
mod hotplug;
#[path = "controllers/hotplug_moves.rs"]
mod hotplug_moves;
#[path = "controllers/imports.rs"]
mod imports;
#[path = "controllers/instancetypes.rs"]
mod instancetypes;
#[path = "controllers/interfaces.rs"]
mod interfaces;
#[path = "controllers/interference.rs"]
mod interference;
#[path = "controllers/links.rs"]
mod links;
#[path = "controllers/live_updates.rs"]
mod live_updates;
#[path = "controllers/lost_nodes.rs"]
mod lost_nodes;
#[path = "controllers/memory_dumps.rs"]
mod memory_dumps;
#[path = "controllers/migrations.rs"]
mod migrations;
#[path = "controllers/namespaces.rs"]
mod namespaces;
#[path = "controllers/network_bindings.rs"]
mod network_bindings;
#[path = "controllers/pools.rs"]
mod pools;
#[path = "controllers/restores.rs"]
mod restores;
#[path = "controllers/snapshots.rs"]
mod snapshots;
#[path = "controllers/storage_profiles.rs"]
mod storage_profiles;
#[path = "controllers/suspends.rs"]
mod suspends;
#[path = "controllers/template_requests.rs"]
mod template_requests;
#[path = "controllers/uploads.rs"]
mod uploads;
#[path = "controllers/volume_moves.rs"]
mod volume_moves;
#[path = "controllers/workload_updates.rs"]
mod workload_updates;

use std::time::Duration;

use cluster::{FaultMode, TestCluster};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::api::{DeleteParams, ListParams, PropagationPolicy};
use kube::{Api, ResourceExt as _};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn start_takes_two_writes_to_the_vmi() {
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    cluster
        .wait_until("ready", async || {
            cluster.vms().get("a").await.unwrap().status.unwrap().ready == Some(true)
        })
        .await;

    let vmi = cluster.vmis().get("a").await.unwrap();
    let status = vmi.status.clone().unwrap();
    assert_eq!(vmi.labels()["kubevirt.io/nodeName"], "node1");
    assert_eq!(status.node_name.as_deref(), Some("node1"));
    assert_eq!(status.qos_class.as_deref(), Some("Burstable"));
    assert_eq!(status.active_pods.len(), 1);
    let phases: Vec<String> = status
        .phase_transition_timestamps
        .iter()
        .map(|change| change.phase.clone().unwrap().to_string())
        .collect();
    assert_eq!(phases, ["Pending", "Scheduling", "Scheduled", "Running"]);

    assert_eq!(cluster.writes_to("/virtualmachineinstances/a").len(), 2);
    assert_eq!(
        cluster.writes_to("/pods").len(),
        1,
        "{:?}",
        cluster.writes_to("/pods")
    );
    let writes = cluster.all_writes();
    cluster.advance(Duration::from_mins(3)).await;
    assert_eq!(cluster.all_writes(), writes, "writes without a change");

    let revisions =
        Api::<ControllerRevision>::namespaced(cluster.client.clone(), cluster::NAMESPACE);
    let name = status.virtual_machine_revision_name.unwrap();
    let revision = revisions.get(&name).await.unwrap();
    let spec = &revision.data.unwrap().0["spec"];
    assert_eq!(spec["runStrategy"], "Always");
    assert!(spec["template"]["spec"]["domain"].is_object());
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn halted_vm_is_stopped_and_can_be_started_again() {
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    let first = cluster.vmis().get("a").await.unwrap().uid();

    cluster
        .patch_vm("a", json!({"spec": {"runStrategy": "Halted"}}))
        .await;
    cluster.wait_for_printable("a", "Stopped").await;
    cluster.wait_until_gone("a").await;

    cluster
        .patch_vm("a", json!({"spec": {"runStrategy": "Always"}}))
        .await;
    cluster.wait_for_printable("a", "Running").await;
    assert_ne!(cluster.vmis().get("a").await.unwrap().uid(), first);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn deleted_vm_leaves_nothing() {
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    cluster
        .vms()
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .wait_until("gone", async || {
            cluster.vms().get_opt("a").await.unwrap().is_none()
        })
        .await;
    assert!(cluster.vmis().get_opt("a").await.unwrap().is_none());
    cluster
        .wait_until("no pods", async || {
            cluster
                .pods()
                .list(&ListParams::default())
                .await
                .unwrap()
                .items
                .is_empty()
        })
        .await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn failing_starts_back_off() {
    let cluster = TestCluster::new().await;
    cluster.set_fault_mode(FaultMode::PodsFail);
    cluster.create_vm("a", "Always").await;
    let begin = tokio::time::Instant::now();
    let count = async || {
        let status = cluster
            .vms()
            .get("a")
            .await
            .unwrap()
            .status
            .unwrap_or_default();
        status
            .start_failure
            .and_then(|failure| failure.consecutive_fail_count)
            .unwrap_or(0)
    };
    cluster
        .wait_until("three failures", async || count().await >= 3)
        .await;
    assert!(
        begin.elapsed() >= Duration::from_secs(50),
        "{:?}",
        begin.elapsed()
    );
    cluster.wait_for_printable("a", "CrashLoopBackOff").await;

    cluster.set_fault_mode(FaultMode::None);
    cluster.wait_for_printable("a", "Running").await;
    assert_eq!(count().await, 0);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn rerun_on_failure_restarts_failed_guests_only() {
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "RerunOnFailure").await;
    cluster.wait_for_printable("a", "Running").await;
    let first = cluster.vmis().get("a").await.unwrap().uid();

    cluster.set_phase("a", "Failed").await;
    cluster
        .wait_until("a second VMI", async || {
            let vmi = cluster.vmis().get_opt("a").await.unwrap();
            vmi.is_some_and(|vmi| vmi.uid() != first)
        })
        .await;
    cluster.wait_for_printable("a", "Running").await;

    cluster.set_phase("a", "Succeeded").await;
    cluster.wait_for_printable("a", "Stopped").await;
    cluster.advance(Duration::from_mins(10)).await;
    assert_eq!(cluster.printable("a").await, "Stopped");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn manual_vm_starts_on_request_only() {
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "Manual").await;
    cluster.advance(Duration::from_mins(1)).await;
    assert_eq!(cluster.printable("a").await, "Stopped");

    cluster.request("a", json!([{"action": "Start"}])).await;
    cluster.wait_for_printable("a", "Running").await;
    let first = cluster.vmis().get("a").await.unwrap().uid().unwrap();
    let requests = async || {
        cluster
            .vms()
            .get("a")
            .await
            .unwrap()
            .status
            .unwrap()
            .state_change_requests
            .len()
    };
    assert_eq!(requests().await, 0);

    cluster
        .request(
            "a",
            json!([{"action": "Stop", "uid": first}, {"action": "Start"}]),
        )
        .await;
    cluster
        .wait_until("a second VMI", async || {
            let vmi = cluster.vmis().get_opt("a").await.unwrap();
            vmi.is_some_and(|vmi| vmi.uid().unwrap() != first)
        })
        .await;
    cluster.wait_for_printable("a", "Running").await;
    assert_eq!(requests().await, 0);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn start_request_switches_a_halted_vm_to_always() {
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "Halted").await;
    cluster.wait_for_printable("a", "Stopped").await;
    cluster
        .request(
            "a",
            json!([{"action": "Start", "data": {"paused": "true"}}]),
        )
        .await;
    cluster.wait_for_printable("a", "Running").await;
    let vm = cluster.vms().get("a").await.unwrap();
    assert_eq!(vm.spec.run_strategy.unwrap().as_str(), "Always");
    let vmi = cluster.vmis().get("a").await.unwrap();
    assert!(vmi.spec.start_strategy.is_some());
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn unschedulable_vm_is_reported_and_can_be_stopped() {
    let cluster = TestCluster::new().await;
    cluster.set_fault_mode(FaultMode::Unschedulable);
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "ErrorUnschedulable").await;
    cluster
        .patch_vm("a", json!({"spec": {"runStrategy": "Halted"}}))
        .await;
    cluster.wait_for_printable("a", "Stopped").await;
    cluster.wait_until_gone("a").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn vm_with_a_lost_pod_is_started_again() {
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    let first = cluster.vmis().get("a").await.unwrap().uid();
    let pod = cluster
        .pods()
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .remove(0);
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    cluster.pods().delete(&pod.name_any(), &now).await.unwrap();
    cluster
        .wait_until("a second VMI runs", async || {
            let vmi = cluster.vmis().get_opt("a").await.unwrap();
            vmi.is_some_and(|vmi| vmi.uid() != first) && cluster.printable("a").await == "Running"
        })
        .await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn restarted_controllers_continue() {
    let mut cluster = TestCluster::new().await;
    for n in 0..8_u64 {
        let name = format!("a{n}");
        cluster.create_vm(&name, "Always").await;
        // Stopped at another point each time.
        cluster.advance(Duration::from_millis(30 * n)).await;
        cluster.stop_controllers().await;
        cluster.start_controllers();
        cluster.wait_for_printable(&name, "Running").await;
    }
    let pods = cluster
        .pods()
        .list(&ListParams::default())
        .await
        .unwrap()
        .items;
    assert_eq!(pods.len(), 8);
    assert_eq!(
        cluster
            .vmis()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        8
    );
    for n in 0..8 {
        let writes = cluster.writes_to(&format!("/virtualmachineinstances/a{n}"));
        assert!(writes.len() <= 3, "{writes:?}");
    }
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn change_of_a_running_vm_requires_a_restart_until_reverted() {
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    let is_required = async || {
        let status = cluster.vms().get("a").await.unwrap().status.unwrap();
        let mut all = status.conditions.iter();
        all.any(|condition| condition.type_.as_str() == "RestartRequired")
    };
    let memory =
        |size| json!({"spec": {"template": {"spec": {"domain": {"memory": {"guest": size}}}}}});
    cluster.patch_vm("a", memory("256Mi")).await;
    cluster
        .wait_until("restart required", async || is_required().await)
        .await;
    cluster.patch_vm("a", memory("128Mi")).await;
    cluster
        .wait_until("change reverted", async || !is_required().await)
        .await;
    let vm = cluster.vms().get("a").await.unwrap();
    let status = vm.status.unwrap();
    assert_eq!(status.observed_generation, vm.metadata.generation);

    cluster.patch_vm("a", memory("512Mi")).await;
    cluster
        .wait_until("restart required again", async || is_required().await)
        .await;
    let uid = cluster.vmis().get("a").await.unwrap().uid();
    cluster
        .request(
            "a",
            json!([{"action": "Stop", "uid": uid}, {"action": "Start"}]),
        )
        .await;
    cluster
        .wait_until("restarted", async || {
            let vmi = cluster.vmis().get_opt("a").await.unwrap();
            vmi.is_some_and(|vmi| vmi.uid() != uid) && cluster.printable("a").await == "Running"
        })
        .await;
    cluster
        .wait_until("done", async || !is_required().await)
        .await;

    let revisions =
        Api::<ControllerRevision>::namespaced(cluster.client.clone(), cluster::NAMESPACE);
    let left = revisions.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(left.len(), 1, "{left:?}");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn propagation_policy_decides_about_the_vmi() {
    let cluster = TestCluster::new().await;
    for policy in [PropagationPolicy::Background, PropagationPolicy::Foreground] {
        cluster.create_vm("a", "Always").await;
        cluster.wait_for_printable("a", "Running").await;
        let parameters = DeleteParams {
            propagation_policy: Some(policy.clone()),
            ..DeleteParams::default()
        };
        cluster.vms().delete("a", &parameters).await.unwrap();
        cluster
            .wait_until(&format!("{policy:?}: gone"), async || {
                cluster.vms().get_opt("a").await.unwrap().is_none()
            })
            .await;
        cluster.wait_until_gone("a").await;
    }

    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    let uid = cluster.vmis().get("a").await.unwrap().uid();
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    cluster.vms().delete("a", &orphan).await.unwrap();
    cluster
        .wait_until("the VM alone is gone", async || {
            cluster.vms().get_opt("a").await.unwrap().is_none()
        })
        .await;
    cluster.advance(Duration::from_mins(1)).await;
    let vmi = cluster.vmis().get("a").await.unwrap();
    assert_eq!(
        (vmi.uid(), vmi.metadata.deletion_timestamp),
        (uid.clone(), None)
    );
    let revisions =
        Api::<ControllerRevision>::namespaced(cluster.client.clone(), cluster::NAMESPACE);
    let left = revisions.list(&ListParams::default()).await.unwrap().items;
    assert!(left.is_empty(), "{left:?}");

    // Another VM of the name adopts it, and deletes it like its own.
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    assert_eq!(cluster.vmis().get("a").await.unwrap().uid(), uid);
    cluster
        .vms()
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    cluster.wait_until_gone("a").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn orphaned_vmi_can_be_deleted() {
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    cluster.vms().delete("a", &orphan).await.unwrap();
    cluster
        .wait_until("the VM is gone", async || {
            cluster.vms().get_opt("a").await.unwrap().is_none()
        })
        .await;
    cluster
        .vmis()
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    cluster.wait_until_gone("a").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn blocked_start_is_reported_and_continues_after_the_fault() {
    let cluster = TestCluster::new().await;
    for (n, (fault_mode, status, reason)) in [
        (
            FaultMode::ImageMissing,
            "ImagePullBackOff",
            "ImagePullBackOff",
        ),
        (
            FaultMode::SecretMissing,
            "Starting",
            "CreateContainerConfigError",
        ),
        (
            FaultMode::Unschedulable,
            "ErrorUnschedulable",
            "Unschedulable",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("a{n}");
        cluster.set_fault_mode(fault_mode);
        cluster.create_vm(&name, "Always").await;
        cluster.wait_for_printable(&name, status).await;
        cluster
            .wait_until(reason, async || {
                let vm = cluster.vms().get(&name).await.unwrap();
                let conditions = vm.status.unwrap().conditions;
                let mut reasons = conditions.iter().filter_map(|one| one.reason.as_deref());
                reasons.any(|one| one == reason)
            })
            .await;
        cluster.advance(Duration::from_secs(20)).await;
        let uid = cluster.vmis().get(&name).await.unwrap().uid();
        cluster.set_fault_mode(FaultMode::None);
        cluster.wait_for_printable(&name, "Running").await;
        assert_eq!(cluster.vmis().get(&name).await.unwrap().uid(), uid);
    }
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn start_waits_for_a_missing_claim() {
    let cluster = TestCluster::new().await;
    cluster.create_vm_on_claim("a", "data").await;
    cluster.wait_for_printable("a", "ErrorPvcNotFound").await;
    cluster.advance(Duration::from_secs(20)).await;
    assert!(cluster.writes_to("/pods").is_empty());
    cluster.create_claim("data").await;
    // The pod is created even before the claim is bound: the scheduler may have to choose a node.
    cluster
        .wait_until("it runs", async || {
            let vmi = cluster.vmis().get("a").await.unwrap();
            vmi.status.unwrap().phase.unwrap().as_str() == "Running"
        })
        .await;
    cluster.wait_for_printable("a", "Running").await;
    let events = Api::<Event>::namespaced(cluster.client.clone(), cluster::NAMESPACE);
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let is_reported = |event: &Event| event.reason.as_deref() == Some("FailedPvcNotFound");
    assert_eq!(events.iter().filter(|event| is_reported(event)).count(), 1);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn replica_set_is_scaled_and_replaces_ended_members() {
    let cluster = TestCluster::new().await;
    cluster.create_set("web", 0).await;
    cluster.wait_for_replicas("web", 0).await;
    cluster.scale("web", 3).await;
    cluster.wait_for_replicas("web", 3).await;
    let scale = cluster.sets().get_scale("web").await.unwrap();
    let status = scale.status.unwrap();
    assert_eq!(
        (status.replicas, status.selector.as_deref()),
        (3, Some("app=web"))
    );

    let vmis = cluster.vmis().list(&ListParams::default()).await.unwrap();
    let first = vmis.items[0].name_any();
    cluster.set_phase(&first, "Failed").await;
    cluster
        .wait_until("replaced", async || {
            cluster.vmis().get_opt(&first).await.unwrap().is_none()
        })
        .await;
    cluster.wait_for_replicas("web", 3).await;

    let vmis = cluster.vmis().list(&ListParams::default()).await.unwrap();
    let second = vmis.items[1].name_any();
    let now = DeleteParams::default();
    cluster.vmis().delete(&second, &now).await.unwrap();
    cluster
        .wait_until("replaced", async || {
            cluster.vmis().get_opt(&second).await.unwrap().is_none()
        })
        .await;
    cluster.wait_for_replicas("web", 3).await;

    cluster.scale("web", 1).await;
    cluster.wait_for_replicas("web", 1).await;
    let made = cluster.writes_to("POST /apis/kubevirt.io/v1/namespaces/default/virtualmachine");
    assert_eq!(made.len(), 5, "{made:?}");

    cluster
        .sets()
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    cluster.wait_until_gone("web").await;
    let events = Api::<Event>::namespaced(cluster.client.clone(), cluster::NAMESPACE);
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let of_set = |event: &&Event| {
        event.involved_object.kind.as_deref() == Some("VirtualMachineInstanceReplicaSet")
    };
    let mut reasons: Vec<&str> = events
        .iter()
        .filter(of_set)
        .filter_map(|event| event.reason.as_deref())
        .collect();
    reasons.sort_unstable();
    reasons.dedup();
    assert_eq!(reasons, ["SuccessfulCreate", "SuccessfulDelete"]);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn refused_members_are_reported_and_back_off() {
    let cluster = TestCluster::new().await;
    let refused = json!({"app": "web", "motto": "no label may hold blanks"});
    cluster.create_set_of("web", 2, refused).await;
    cluster.advance(Duration::from_mins(5)).await;
    let status = cluster.sets().get("web").await.unwrap().status.unwrap();
    let condition = &status.conditions[0];
    assert_eq!(condition.reason.as_deref(), Some("FailedCreate"));
    let message = condition.message.as_deref().unwrap();
    assert!(message.contains("blanks"), "{message}");
    let tries = cluster.writes_to("POST /apis/kubevirt.io/v1/namespaces/default/virtualmachine");
    assert!((5..40).contains(&tries.len()), "{}", tries.len());
    let status_writes = cluster.writes_to("/status");
    assert!(status_writes.len() <= 2, "{status_writes:?}");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn replica_set_creates_hundreds_without_duplicates() {
    let cluster = TestCluster::new().await;
    cluster.create_set("web", 300).await;
    cluster.wait_for_replicas("web", 300).await;
    let made = cluster.writes_to("POST /apis/kubevirt.io/v1/namespaces/default/virtualmachine");
    assert_eq!(made.len(), 300);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn next_leader_starts_at_once_after_a_stop_and_later_after_a_crash() {
    let mut cluster = TestCluster::new().await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    cluster.stop_controllers().await;
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), cluster::NAMESPACE);
    let lease = leases.get("virt-controller").await.unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity, None);

    let begin = tokio::time::Instant::now();
    cluster.start_controllers_as("two");
    cluster.create_vm("b", "Always").await;
    cluster.wait_for_printable("b", "Running").await;
    let quick = begin.elapsed();
    assert!(quick < Duration::from_secs(5), "{quick:?}");

    cluster.crash_controllers();
    let begin = tokio::time::Instant::now();
    cluster.start_controllers_as("three");
    cluster.create_vm("c", "Always").await;
    cluster.wait_for_printable("c", "Running").await;
    let slow = begin.elapsed();
    assert!(
        slow > Duration::from_secs(10) && slow < Duration::from_secs(30),
        "{slow:?}"
    );
    cluster.end().await;
}
