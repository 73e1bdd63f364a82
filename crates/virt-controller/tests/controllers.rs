//! Both controllers against our own API server, in process, on a stopped clock.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod world;

use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
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
