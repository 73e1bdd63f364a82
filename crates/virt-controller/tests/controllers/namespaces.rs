//! What the administrator and a namespace's quotas do to pods of guests.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::world::{NAMESPACE, Weather, World};

async fn create_quota(world: &World, name: &str, hard: Value) {
    let quota = json!({"metadata": {"name": name}, "spec": {"hard": hard}});
    let quota: ResourceQuota = serde_json::from_value(quota).unwrap();
    let api = Api::namespaced(world.client.clone(), NAMESPACE);
    api.create(&PostParams::default(), &quota).await.unwrap();
}

async fn pod_of(world: &World, vm: &str) -> Pod {
    let pods = world.pods().list(&ListParams::default()).await.unwrap();
    let mut pods = pods.items.into_iter();
    let is_its = |pod: &Pod| {
        pod.metadata
            .name
            .as_deref()
            .unwrap_or_default()
            .contains(vm)
    };
    pods.find(is_its).expect("a pod")
}

#[tokio::test(start_paused = true)]
async fn pod_that_a_quota_refuses_is_told_and_made_as_soon_as_there_is_room() {
    let world = World::new().await;
    create_quota(&world, "small", json!({"pods": "1"})).await;
    world.set_weather(Weather::NoRoom);
    world.create_vm("a", "Always").await;
    let says = async |reason: &str| {
        let vmi = world.vmis().get_opt("a").await.unwrap();
        let conditions = vmi
            .and_then(|vmi| vmi.status)
            .unwrap_or_default()
            .conditions;
        let mut synchronized = conditions
            .iter()
            .filter(|one| one.type_.as_str() == "Synchronized");
        synchronized.any(|one| {
            let message = one.message.as_deref().unwrap_or_default();
            one.reason.as_deref() == Some(reason) && message.contains("exceeded quota: small")
        })
    };
    world
        .until("the refusal is told", async || says("FailedCreate").await)
        .await;
    world.events_of("FailedCreate").await;
    // By now the next try of its own is minutes away.
    world.pass(Duration::from_mins(3)).await;
    let tries = world.writes_to("/pods").len();
    assert!((4..30).contains(&tries), "{tries}");

    world.set_weather(Weather::Fair);
    let begin = tokio::time::Instant::now();
    let quotas = Api::<ResourceQuota>::namespaced(world.client.clone(), NAMESPACE);
    let room = Patch::Merge(json!({"spec": {"hard": {"pods": "9"}}}));
    let parameters = PatchParams::default();
    quotas.patch("small", &parameters, &room).await.unwrap();
    world.until_printable("a", "Running").await;
    assert!(
        begin.elapsed() < Duration::from_secs(10),
        "{:?}",
        begin.elapsed()
    );
    assert!(!says("FailedCreate").await);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn quotas_on_limits_give_guests_limits() {
    let world = World::new().await;
    create_quota(
        &world,
        "limits",
        json!({"limits.cpu": "9", "limits.memory": "9Gi"}),
    )
    .await;
    // Until the controllers know of it.
    world.pass(Duration::from_secs(1)).await;
    world.create_vm("a", "Always").await;
    world.until_printable("a", "Running").await;
    let pod = pod_of(&world, "-a-").await;
    let resources = pod.spec.unwrap().containers.remove(0).resources.unwrap();
    let (limits, requests) = (resources.limits.unwrap(), resources.requests.unwrap());
    assert_eq!(limits["cpu"].0, "1");
    let bytes = |quantity: &str| quantity.trim_end_matches("Mi").parse::<u64>().unwrap();
    assert_eq!(bytes(&limits["memory"].0), 2 * bytes(&requests["memory"].0));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn new_pods_follow_what_the_administrator_wrote_last() {
    let world = World::new().await;
    let kind = kube::api::GroupVersionKind::gvk("kubevirt.io", "v1", "KubeVirt");
    let kind = kube::api::ApiResource::from_gvk(&kind);
    let api = Api::<DynamicObject>::namespaced_with(world.client.clone(), NAMESPACE, &kind);
    let written = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt"},
        "spec": {"configuration": {
            "imagePullPolicy": "Always",
            "developerConfiguration": {"cpuAllocationRatio": 1, "nodeSelectors": {"disk": "fast"}},
        }},
    });
    let written = serde_json::from_value(written).unwrap();
    api.create(&PostParams::default(), &written).await.unwrap();
    world.pass(Duration::from_secs(1)).await;
    world.create_vm("a", "Always").await;
    world.until_printable("a", "Running").await;
    let spec = pod_of(&world, "-a-").await.spec.unwrap();
    let container = &spec.containers[0];
    assert_eq!(container.image_pull_policy.as_deref(), Some("Always"));
    assert_eq!(spec.node_selector.unwrap()["disk"], "fast");
    let requests = container.resources.clone().unwrap().requests.unwrap();
    assert_eq!(requests["cpu"].0, "1");

    let change = json!({"spec": {"configuration": {"imagePullPolicy": "Never"}}});
    let parameters = PatchParams::default();
    let change = Patch::Merge(change);
    api.patch("kubevirt", &parameters, &change).await.unwrap();
    world.pass(Duration::from_secs(1)).await;
    world.create_vm("b", "Always").await;
    world.until_printable("b", "Running").await;
    let spec = pod_of(&world, "-b-").await.spec.unwrap();
    let policy = spec.containers[0].image_pull_policy.as_deref();
    assert_eq!(policy, Some("Never"));
    world.end().await;
}
