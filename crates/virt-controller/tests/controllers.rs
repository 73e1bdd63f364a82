//! Both controllers against our own API server, in process, on a stopped clock.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "controllers/container_disks.rs"]
mod container_disks;
#[path = "controllers/data_volumes.rs"]
mod data_volumes;
#[path = "controllers/lost_nodes.rs"]
mod lost_nodes;
#[path = "controllers/namespaces.rs"]
mod namespaces;
#[path = "controllers/places.rs"]
mod places;
#[path = "controllers/sizes.rs"]
mod sizes;
#[path = "controllers/strangers.rs"]
mod strangers;
mod world;

use std::time::Duration;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::api::{DeleteParams, ListParams, PropagationPolicy};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use world::{Weather, World};

#[tokio::test(start_paused = true)]
async fn vm_starts_with_two_writes_to_its_instance_and_then_rests() {
    let world = World::new().await;
    world.create_vm("a", "Always").await;
    world.until_printable("a", "Running").await;
    world
        .until("ready", async || {
            world.vms().get("a").await.unwrap().status.unwrap().ready == Some(true)
        })
        .await;

    let vmi = world.vmis().get("a").await.unwrap();
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

    assert_eq!(world.writes_to("/virtualmachineinstances/a").len(), 2);
    assert_eq!(
        world.writes_to("/pods").len(),
        1,
        "{:?}",
        world.writes_to("/pods")
    );
    let writes = world.all_writes();
    world.pass(Duration::from_mins(3)).await;
    assert_eq!(world.all_writes(), writes, "rest");

    let revisions = Api::<ControllerRevision>::namespaced(world.client.clone(), world::NAMESPACE);
    let name = status.virtual_machine_revision_name.unwrap();
    let revision = revisions.get(&name).await.unwrap();
    let spec = &revision.data.unwrap().0["spec"];
    assert_eq!(spec["runStrategy"], "Always");
    assert!(spec["template"]["spec"]["domain"].is_object());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn halted_vm_loses_its_instance_and_pod_and_starts_again() {
    let world = World::new().await;
    world.create_vm("a", "Always").await;
    world.until_printable("a", "Running").await;
    let first = world.vmis().get("a").await.unwrap().uid();

    world
        .patch_vm("a", json!({"spec": {"runStrategy": "Halted"}}))
        .await;
    world.until_printable("a", "Stopped").await;
    world.until_gone("a").await;

    world
        .patch_vm("a", json!({"spec": {"runStrategy": "Always"}}))
        .await;
    world.until_printable("a", "Running").await;
    assert_ne!(world.vmis().get("a").await.unwrap().uid(), first);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn deleted_vm_takes_everything_with_it() {
    let world = World::new().await;
    world.create_vm("a", "Always").await;
    world.until_printable("a", "Running").await;
    world
        .vms()
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    world
        .until("gone", async || {
            world.vms().get_opt("a").await.unwrap().is_none()
        })
        .await;
    assert!(world.vmis().get_opt("a").await.unwrap().is_none());
    world
        .until("no pods", async || {
            world
                .pods()
                .list(&ListParams::default())
                .await
                .unwrap()
                .items
                .is_empty()
        })
        .await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn guest_that_never_runs_is_tried_less_and_less_often() {
    let world = World::new().await;
    world.set_weather(Weather::Broken);
    world.create_vm("a", "Always").await;
    let begin = tokio::time::Instant::now();
    let count = async || {
        let status = world
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
    world
        .until("three failures", async || count().await >= 3)
        .await;
    assert!(
        begin.elapsed() >= Duration::from_secs(50),
        "{:?}",
        begin.elapsed()
    );
    world.until_printable("a", "CrashLoopBackOff").await;

    world.set_weather(Weather::Fair);
    world.until_printable("a", "Running").await;
    assert_eq!(count().await, 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn rerun_on_failure_restarts_a_failed_guest_but_not_one_that_ended_well() {
    let world = World::new().await;
    world.create_vm("a", "RerunOnFailure").await;
    world.until_printable("a", "Running").await;
    let first = world.vmis().get("a").await.unwrap().uid();

    world.set_phase("a", "Failed").await;
    world
        .until("a second instance", async || {
            let vmi = world.vmis().get_opt("a").await.unwrap();
            vmi.is_some_and(|vmi| vmi.uid() != first)
        })
        .await;
    world.until_printable("a", "Running").await;

    world.set_phase("a", "Succeeded").await;
    world.until_printable("a", "Stopped").await;
    world.pass(Duration::from_mins(10)).await;
    assert_eq!(world.printable("a").await, "Stopped");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn manual_vm_obeys_requests_only() {
    let world = World::new().await;
    world.create_vm("a", "Manual").await;
    world.pass(Duration::from_mins(1)).await;
    assert_eq!(world.printable("a").await, "Stopped");

    world.request("a", json!([{"action": "Start"}])).await;
    world.until_printable("a", "Running").await;
    let first = world.vmis().get("a").await.unwrap().uid().unwrap();
    let requests = async || {
        world
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

    world
        .request(
            "a",
            json!([{"action": "Stop", "uid": first}, {"action": "Start"}]),
        )
        .await;
    world
        .until("a second instance", async || {
            let vmi = world.vmis().get_opt("a").await.unwrap();
            vmi.is_some_and(|vmi| vmi.uid().unwrap() != first)
        })
        .await;
    world.until_printable("a", "Running").await;
    assert_eq!(requests().await, 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn start_request_to_a_halted_vm_makes_it_run_always() {
    let world = World::new().await;
    world.create_vm("a", "Halted").await;
    world.until_printable("a", "Stopped").await;
    world
        .request(
            "a",
            json!([{"action": "Start", "data": {"paused": "true"}}]),
        )
        .await;
    world.until_printable("a", "Running").await;
    let vm = world.vms().get("a").await.unwrap();
    assert_eq!(vm.spec.run_strategy.unwrap().as_str(), "Always");
    let vmi = world.vmis().get("a").await.unwrap();
    assert!(vmi.spec.start_strategy.is_some());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn vm_that_finds_no_node_says_so_and_can_be_stopped() {
    let world = World::new().await;
    world.set_weather(Weather::Full);
    world.create_vm("a", "Always").await;
    world.until_printable("a", "ErrorUnschedulable").await;
    world
        .patch_vm("a", json!({"spec": {"runStrategy": "Halted"}}))
        .await;
    world.until_printable("a", "Stopped").await;
    world.until_gone("a").await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn lost_pod_fails_the_instance_and_the_vm_is_started_again() {
    let world = World::new().await;
    world.create_vm("a", "Always").await;
    world.until_printable("a", "Running").await;
    let first = world.vmis().get("a").await.unwrap().uid();
    let pod = world
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
    world.pods().delete(&pod.name_any(), &now).await.unwrap();
    world
        .until("a second instance runs", async || {
            let vmi = world.vmis().get_opt("a").await.unwrap();
            vmi.is_some_and(|vmi| vmi.uid() != first) && world.printable("a").await == "Running"
        })
        .await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn controllers_that_are_stopped_anywhere_go_on_where_they_were() {
    let mut world = World::new().await;
    for n in 0..8_u64 {
        let name = format!("a{n}");
        world.create_vm(&name, "Always").await;
        // Cut at another place each time.
        world.pass(Duration::from_millis(30 * n)).await;
        world.stop_controllers().await;
        world.start_controllers();
        world.until_printable(&name, "Running").await;
    }
    let pods = world
        .pods()
        .list(&ListParams::default())
        .await
        .unwrap()
        .items;
    assert_eq!(pods.len(), 8);
    assert_eq!(
        world
            .vmis()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        8
    );
    for n in 0..8 {
        let writes = world.writes_to(&format!("/virtualmachineinstances/a{n}"));
        assert!(writes.len() <= 3, "{writes:?}");
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn change_under_a_running_guest_asks_for_a_restart_until_it_is_taken_back() {
    let world = World::new().await;
    world.create_vm("a", "Always").await;
    world.until_printable("a", "Running").await;
    let is_asked = async || {
        let status = world.vms().get("a").await.unwrap().status.unwrap();
        let mut all = status.conditions.iter();
        all.any(|condition| condition.type_.as_str() == "RestartRequired")
    };
    let memory =
        |size| json!({"spec": {"template": {"spec": {"domain": {"memory": {"guest": size}}}}}});
    world.patch_vm("a", memory("256Mi")).await;
    world.until("asked for", async || is_asked().await).await;
    world.patch_vm("a", memory("128Mi")).await;
    world.until("taken back", async || !is_asked().await).await;
    let vm = world.vms().get("a").await.unwrap();
    let status = vm.status.unwrap();
    assert_eq!(status.observed_generation, vm.metadata.generation);

    world.patch_vm("a", memory("512Mi")).await;
    world
        .until("asked for again", async || is_asked().await)
        .await;
    let uid = world.vmis().get("a").await.unwrap().uid();
    world
        .request(
            "a",
            json!([{"action": "Stop", "uid": uid}, {"action": "Start"}]),
        )
        .await;
    world
        .until("restarted", async || {
            let vmi = world.vmis().get_opt("a").await.unwrap();
            vmi.is_some_and(|vmi| vmi.uid() != uid) && world.printable("a").await == "Running"
        })
        .await;
    world.until("done", async || !is_asked().await).await;

    let revisions = Api::<ControllerRevision>::namespaced(world.client.clone(), world::NAMESPACE);
    let left = revisions.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(left.len(), 1, "{left:?}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn each_propagation_policy_takes_or_leaves_the_instance() {
    let world = World::new().await;
    for policy in [PropagationPolicy::Background, PropagationPolicy::Foreground] {
        world.create_vm("a", "Always").await;
        world.until_printable("a", "Running").await;
        let parameters = DeleteParams {
            propagation_policy: Some(policy.clone()),
            ..DeleteParams::default()
        };
        world.vms().delete("a", &parameters).await.unwrap();
        world
            .until(&format!("{policy:?}: gone"), async || {
                world.vms().get_opt("a").await.unwrap().is_none()
            })
            .await;
        world.until_gone("a").await;
    }

    world.create_vm("a", "Always").await;
    world.until_printable("a", "Running").await;
    let uid = world.vmis().get("a").await.unwrap().uid();
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    world.vms().delete("a", &orphan).await.unwrap();
    world
        .until("the VM alone is gone", async || {
            world.vms().get_opt("a").await.unwrap().is_none()
        })
        .await;
    world.pass(Duration::from_mins(1)).await;
    let vmi = world.vmis().get("a").await.unwrap();
    assert_eq!(
        (vmi.uid(), vmi.metadata.deletion_timestamp),
        (uid.clone(), None)
    );
    let revisions = Api::<ControllerRevision>::namespaced(world.client.clone(), world::NAMESPACE);
    let left = revisions.list(&ListParams::default()).await.unwrap().items;
    assert!(left.is_empty(), "{left:?}");

    // Another VM of the name takes it over, and ends it like its own.
    world.create_vm("a", "Always").await;
    world.until_printable("a", "Running").await;
    assert_eq!(world.vmis().get("a").await.unwrap().uid(), uid);
    world
        .vms()
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    world.until_gone("a").await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn orphaned_instance_can_be_deleted_by_hand() {
    let world = World::new().await;
    world.create_vm("a", "Always").await;
    world.until_printable("a", "Running").await;
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    world.vms().delete("a", &orphan).await.unwrap();
    world
        .until("the VM is gone", async || {
            world.vms().get_opt("a").await.unwrap().is_none()
        })
        .await;
    world
        .vmis()
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    world.until_gone("a").await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn start_that_is_stuck_says_why_and_goes_on_once_mended() {
    let world = World::new().await;
    for (n, (weather, word, reason)) in [
        (Weather::NoImage, "ImagePullBackOff", "ImagePullBackOff"),
        (Weather::NoSecret, "Starting", "CreateContainerConfigError"),
        (Weather::Full, "ErrorUnschedulable", "Unschedulable"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("a{n}");
        world.set_weather(weather);
        world.create_vm(&name, "Always").await;
        world.until_printable(&name, word).await;
        world
            .until(reason, async || {
                let vm = world.vms().get(&name).await.unwrap();
                let conditions = vm.status.unwrap().conditions;
                let mut reasons = conditions.iter().filter_map(|one| one.reason.as_deref());
                reasons.any(|one| one == reason)
            })
            .await;
        world.pass(Duration::from_secs(20)).await;
        let uid = world.vmis().get(&name).await.unwrap().uid();
        world.set_weather(Weather::Fair);
        world.until_printable(&name, "Running").await;
        assert_eq!(world.vmis().get(&name).await.unwrap().uid(), uid);
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn start_waits_for_a_claim_and_goes_on_when_it_comes() {
    let world = World::new().await;
    world.create_vm_on_claim("a", "data").await;
    world.until_printable("a", "ErrorPvcNotFound").await;
    world.pass(Duration::from_secs(20)).await;
    assert!(world.writes_to("/pods").is_empty());
    world.create_claim("data").await;
    // Bound or not, a pod is made: a node may have to be chosen first.
    world
        .until("it runs", async || {
            let vmi = world.vmis().get("a").await.unwrap();
            vmi.status.unwrap().phase.unwrap().as_str() == "Running"
        })
        .await;
    world.until_printable("a", "Running").await;
    let events = Api::<Event>::namespaced(world.client.clone(), world::NAMESPACE);
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let is_told = |event: &Event| event.reason.as_deref() == Some("FailedPvcNotFound");
    assert_eq!(events.iter().filter(|event| is_told(event)).count(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn replica_set_is_scaled_and_replaces_what_ends() {
    let world = World::new().await;
    world.create_set("web", 0).await;
    world.until_replicas("web", 0).await;
    world.scale("web", 3).await;
    world.until_replicas("web", 3).await;
    let scale = world.sets().get_scale("web").await.unwrap();
    let status = scale.status.unwrap();
    assert_eq!(
        (status.replicas, status.selector.as_deref()),
        (3, Some("app=web"))
    );

    let vmis = world.vmis().list(&ListParams::default()).await.unwrap();
    let first = vmis.items[0].name_any();
    world.set_phase(&first, "Failed").await;
    world
        .until("replaced", async || {
            world.vmis().get_opt(&first).await.unwrap().is_none()
        })
        .await;
    world.until_replicas("web", 3).await;

    let vmis = world.vmis().list(&ListParams::default()).await.unwrap();
    let second = vmis.items[1].name_any();
    let now = DeleteParams::default();
    world.vmis().delete(&second, &now).await.unwrap();
    world
        .until("replaced", async || {
            world.vmis().get_opt(&second).await.unwrap().is_none()
        })
        .await;
    world.until_replicas("web", 3).await;

    world.scale("web", 1).await;
    world.until_replicas("web", 1).await;
    let made = world.writes_to("POST /apis/kubevirt.io/v1/namespaces/default/virtualmachine");
    assert_eq!(made.len(), 5, "{made:?}");

    world
        .sets()
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    world.until_gone("web").await;
    let events = Api::<Event>::namespaced(world.client.clone(), world::NAMESPACE);
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
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn replica_set_whose_instances_are_refused_says_so_and_tries_ever_less_often() {
    let world = World::new().await;
    let refused = json!({"app": "web", "motto": "no label may hold blanks"});
    world.create_set_of("web", 2, refused).await;
    world.pass(Duration::from_mins(5)).await;
    let status = world.sets().get("web").await.unwrap().status.unwrap();
    let told = &status.conditions[0];
    assert_eq!(told.reason.as_deref(), Some("FailedCreate"));
    let message = told.message.as_deref().unwrap();
    assert!(message.contains("blanks"), "{message}");
    let tries = world.writes_to("POST /apis/kubevirt.io/v1/namespaces/default/virtualmachine");
    assert!((5..40).contains(&tries.len()), "{}", tries.len());
    let tellings = world.writes_to("/status");
    assert!(tellings.len() <= 2, "{tellings:?}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn replica_set_works_off_hundreds_without_one_too_many() {
    let world = World::new().await;
    world.create_set("web", 300).await;
    world.until_replicas("web", 300).await;
    let made = world.writes_to("POST /apis/kubevirt.io/v1/namespaces/default/virtualmachine");
    assert_eq!(made.len(), 300);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn next_leader_goes_on_at_once_after_an_orderly_end_and_later_after_a_crash() {
    let mut world = World::new().await;
    world.create_vm("a", "Always").await;
    world.until_printable("a", "Running").await;
    world.stop_controllers().await;
    let leases = Api::<Lease>::namespaced(world.client.clone(), world::NAMESPACE);
    let lease = leases.get("virt-controller").await.unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity, None);

    let begin = tokio::time::Instant::now();
    world.start_controllers_as("two");
    world.create_vm("b", "Always").await;
    world.until_printable("b", "Running").await;
    let quick = begin.elapsed();
    assert!(quick < Duration::from_secs(5), "{quick:?}");

    world.crash_controllers();
    let begin = tokio::time::Instant::now();
    world.start_controllers_as("three");
    world.create_vm("c", "Always").await;
    world.until_printable("c", "Running").await;
    let slow = begin.elapsed();
    assert!(
        slow > Duration::from_secs(10) && slow < Duration::from_secs(30),
        "{slow:?}"
    );
    world.end().await;
}
