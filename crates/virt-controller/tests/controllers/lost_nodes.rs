//! A node that nobody hears of, and that comes back to a cluster that went on without it.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use kubevirt_api::conditions;
use kubevirt_api::vmi_status::VirtualMachineInstanceConditionType as Condition;
use serde_json::json;

use crate::world::{Weather, World};

const AGENT_AT: &str = "2026-11-21T12:00:00Z";

/// The node's agent has been heard once.
async fn beat(world: &World) {
    let nodes: Api<Node> = Api::all(world.client.clone());
    let body = json!({"metadata": {
        "annotations": {"kubevirt.io/heartbeat": AGENT_AT},
        "labels": {"kubevirt.io/schedulable": "true"},
    }});
    let (parameters, body) = (PatchParams::default(), Patch::Merge(body));
    nodes.patch("node1", &parameters, &body).await.unwrap();
}

/// The pods that there are, by UID.
async fn pods(world: &World) -> Vec<String> {
    let list = world.pods().list(&ListParams::default()).await.unwrap();
    list.items
        .iter()
        .filter_map(kube::ResourceExt::uid)
        .collect()
}

/// Nothing is left of the first guest, and the second one runs.
async fn until_true(world: &World, first: &str) {
    world
        .until("one guest runs", async || {
            let now = pods(world).await;
            world.printable("a").await == "Running" && now.len() == 1 && now[0] != first
        })
        .await;
    let vmi = world.vmis().get("a").await.unwrap();
    let active: Vec<String> = vmi.status.unwrap().active_pods.into_keys().collect();
    assert_eq!(active, pods(world).await);
    let writes = world.all_writes();
    world.pass(Duration::from_mins(2)).await;
    assert_eq!(world.all_writes(), writes, "it has come to rest");
}

#[tokio::test(start_paused = true)]
async fn guest_of_a_lost_node_is_replaced_when_the_node_has_said_that_its_pod_is_gone() {
    let world = World::new().await;
    world.create_vm("a", "Always").await;
    world.until_printable("a", "Running").await;
    beat(&world).await;
    let first = world.vmis().get("a").await.unwrap();
    let pod = pods(&world).await.remove(0);

    world.set_weather(Weather::Away);
    world.pass(Duration::from_mins(6)).await;
    // It may run on, for all that is known: the pod is still asked for.
    let still = world.vmis().get("a").await.unwrap();
    assert_eq!(still.uid(), first.uid());
    assert_eq!(world.printable("a").await, "Running");
    let nodes: Api<Node> = Api::all(world.client.clone());
    let node = nodes.get("node1").await.unwrap();
    assert_eq!(node.labels()["kubevirt.io/schedulable"], "false");

    // What a cluster does after a while, and the node does not hear of.
    let name = launcher_pod::pod_name(&first);
    let asked = DeleteParams::default();
    world.pods().delete(&name, &asked).await.unwrap();
    world
        .until("given up", async || {
            let status = world.vmis().get("a").await.unwrap().status.unwrap();
            status.reason.as_deref() == Some("NodeUnresponsive")
        })
        .await;
    world.pass(Duration::from_mins(1)).await;
    let writes = world.all_writes();
    world.pass(Duration::from_mins(30)).await;
    // Given up or not, it may run: there is no other beside it.
    let still = world.vmis().get("a").await.unwrap();
    assert_eq!(still.uid(), first.uid());
    assert_eq!(pods(&world).await, std::slice::from_ref(&pod));
    assert_eq!(world.all_writes(), writes, "nothing more is tried");

    world.set_weather(Weather::Fair);
    until_true(&world, &pod).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_from_a_lost_node_by_force_is_made_again_once() {
    let world = World::new().await;
    world.create_vm("a", "Always").await;
    world.until_printable("a", "Running").await;
    beat(&world).await;
    let first = world.vmis().get("a").await.unwrap();
    let pod = pods(&world).await.remove(0);
    world.set_weather(Weather::Away);
    let asked = DeleteParams::default();
    world.vmis().delete("a", &asked).await.unwrap();
    world.pass(Duration::from_secs(30)).await;
    let still = world.vmis().get("a").await.unwrap();
    assert_eq!(still.uid(), first.uid(), "its guest may run");

    let at_once = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    let name = launcher_pod::pod_name(&first);
    world.pods().delete(&name, &at_once).await.unwrap();
    world
        .until("made again", async || {
            let vmi = world.vmis().get_opt("a").await.unwrap();
            let is_other = vmi.is_some_and(|vmi| vmi.uid() != first.uid());
            is_other && pods(&world).await.len() == 1
        })
        .await;
    world.set_weather(Weather::Fair);
    until_true(&world, &pod).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn guest_of_a_node_that_is_cut_off_is_told_not_to_be_ready_and_runs_on_for_all_that_is_known()
{
    let world = World::new().await;
    world.create_vm("a", "Always").await;
    world.until_printable("a", "Running").await;
    let is_ready = async || {
        let status = world.vms().get("a").await.unwrap().status;
        status.is_some_and(|status| status.ready == Some(true))
    };
    world.until("ready", is_ready).await;
    let first = world.vmis().get("a").await.unwrap();

    world.set_weather(Weather::Away);
    // What a cluster says of all pods of a node that it does not hear from; it does not say why.
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let name = launcher_pod::pod_name(&first);
    let (parameters, body) = (PatchParams::default(), Patch::Merge(unready));
    let patched = world.pods().patch_status(&name, &parameters, &body).await;
    patched.unwrap();
    let is_unready = async || !is_ready().await;
    world.until("no longer ready", is_unready).await;
    let now = world.vmis().get("a").await.unwrap();
    let status = now.status.as_ref().unwrap();
    let ready = conditions::find(&status.conditions, &Condition::Ready).unwrap();
    assert_eq!(ready.message.as_deref(), Some(conditions::OUT_OF_REACH));
    assert_eq!(now.uid(), first.uid());
    assert_eq!(world.printable("a").await, "Running");
    let writes = world.all_writes();
    world.pass(Duration::from_mins(2)).await;
    assert_eq!(world.all_writes(), writes, "it has come to rest");
    world.end().await;
}
