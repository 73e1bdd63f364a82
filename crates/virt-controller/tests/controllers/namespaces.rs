//! Launcher pods under the administrator's configuration and the quotas of a namespace.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::cluster::{FaultMode, NAMESPACE, TestCluster};

async fn create_quota(cluster: &TestCluster, name: &str, hard: Value) {
    let quota = json!({"metadata": {"name": name}, "spec": {"hard": hard}});
    let quota: ResourceQuota = serde_json::from_value(quota).unwrap();
    let api = Api::namespaced(cluster.client.clone(), NAMESPACE);
    api.create(&PostParams::default(), &quota).await.unwrap();
}

async fn pod_of(cluster: &TestCluster, vm: &str) -> Pod {
    let pods = cluster.pods().list(&ListParams::default()).await.unwrap();
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
async fn refusal_by_a_quota_is_reported_and_ends_with_the_quota() {
    let cluster = TestCluster::new().await;
    create_quota(&cluster, "small", json!({"pods": "1"})).await;
    cluster.set_fault_mode(FaultMode::QuotaExceeded);
    cluster.create_vm("a", "Always").await;
    let is_reported = async |reason: &str| {
        let vmi = cluster.vmis().get_opt("a").await.unwrap();
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
    cluster
        .wait_until("the refusal is reported", async || {
            is_reported("FailedCreate").await
        })
        .await;
    cluster.events_of("FailedCreate").await;
    // By now the next retry is minutes away.
    cluster.advance(Duration::from_mins(3)).await;
    let tries = cluster.writes_to("/pods").len();
    assert!((4..30).contains(&tries), "{tries}");

    cluster.set_fault_mode(FaultMode::None);
    let begin = tokio::time::Instant::now();
    let quotas = Api::<ResourceQuota>::namespaced(cluster.client.clone(), NAMESPACE);
    let larger = Patch::Merge(json!({"spec": {"hard": {"pods": "9"}}}));
    let parameters = PatchParams::default();
    quotas.patch("small", &parameters, &larger).await.unwrap();
    cluster.wait_for_printable("a", "Running").await;
    assert!(
        begin.elapsed() < Duration::from_secs(10),
        "{:?}",
        begin.elapsed()
    );
    assert!(!is_reported("FailedCreate").await);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn quotas_on_limits_set_limits_of_pods() {
    let cluster = TestCluster::new().await;
    create_quota(
        &cluster,
        "limits",
        json!({"limits.cpu": "9", "limits.memory": "9Gi"}),
    )
    .await;
    // Until the caches show it.
    cluster.advance(Duration::from_secs(1)).await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    let pod = pod_of(&cluster, "-a-").await;
    let resources = pod.spec.unwrap().containers.remove(0).resources.unwrap();
    let (limits, requests) = (resources.limits.unwrap(), resources.requests.unwrap());
    assert_eq!(limits["cpu"].0, "1");
    let bytes = |quantity: &str| quantity.trim_end_matches("Mi").parse::<u64>().unwrap();
    assert_eq!(bytes(&limits["memory"].0), 2 * bytes(&requests["memory"].0));
    cluster.end().await;
}

fn installations(cluster: &TestCluster) -> Api<DynamicObject> {
    let kind = kube::api::GroupVersionKind::gvk("kubevirt.io", "v1", "KubeVirt");
    let kind = kube::api::ApiResource::from_gvk(&kind);
    Api::namespaced_with(cluster.client.clone(), NAMESPACE, &kind)
}

#[tokio::test(start_paused = true)]
async fn vm_starts_once_its_device_is_permitted() {
    let cluster = TestCluster::new().await;
    let permitted = |devices: Value| {
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
            "metadata": {"name": "kubevirt", "namespace": NAMESPACE},
            "spec": {"configuration": {"permittedHostDevices": {"pciHostDevices": devices}}},
        })
    };
    cluster.create(permitted(json!([]))).await;
    cluster.advance(Duration::from_secs(1)).await;
    let card = json!({"name": "card", "deviceName": "example.com/card"});
    let guest = json!({"domain": {"devices": {"gpus": [card]}, "memory": {"guest": "64Mi"}}});
    cluster
        .create(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": "a", "namespace": NAMESPACE},
            "spec": {"runStrategy": "Always", "template": {"spec": guest}},
        }))
        .await;
    cluster.events_of("FailedCreate").await;
    cluster.advance(Duration::from_mins(30)).await;
    assert!(cluster.writes_to("/pods").is_empty());
    let selected = json!([{"pciVendorSelector": "10DE:1EB8", "resourceName": "example.com/card"}]);
    let (parameters, change) = (PatchParams::default(), Patch::Merge(permitted(selected)));
    let begin = tokio::time::Instant::now();
    let api = installations(&cluster);
    api.patch("kubevirt", &parameters, &change).await.unwrap();
    cluster.wait_for_printable("a", "Running").await;
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn new_pods_follow_the_latest_configuration() {
    let cluster = TestCluster::new().await;
    let api = installations(&cluster);
    let written = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt"},
        "spec": {"configuration": {
            "imagePullPolicy": "Always",
            "developerConfiguration": {"cpuAllocationRatio": 1, "nodeSelectors": {"disk": "fast"}},
        }},
    });
    let written = serde_json::from_value(written).unwrap();
    api.create(&PostParams::default(), &written).await.unwrap();
    cluster.advance(Duration::from_secs(1)).await;
    cluster.create_vm("a", "Always").await;
    cluster.wait_for_printable("a", "Running").await;
    let spec = pod_of(&cluster, "-a-").await.spec.unwrap();
    let container = &spec.containers[0];
    assert_eq!(container.image_pull_policy.as_deref(), Some("Always"));
    assert_eq!(spec.node_selector.unwrap()["disk"], "fast");
    let requests = container.resources.clone().unwrap().requests.unwrap();
    assert_eq!(requests["cpu"].0, "1");

    let change = json!({"spec": {"configuration": {"imagePullPolicy": "Never"}}});
    let parameters = PatchParams::default();
    let change = Patch::Merge(change);
    api.patch("kubevirt", &parameters, &change).await.unwrap();
    cluster.advance(Duration::from_secs(1)).await;
    cluster.create_vm("b", "Always").await;
    cluster.wait_for_printable("b", "Running").await;
    let spec = pod_of(&cluster, "-b-").await.spec.unwrap();
    let policy = spec.containers[0].image_pull_policy.as_deref();
    assert_eq!(policy, Some("Never"));
    cluster.end().await;
}

/// The API server refuses every new object while a namespace terminates. The controllers try again less and
/// less often, and at once succeed if it was a mistake.
#[tokio::test(start_paused = true)]
async fn creates_are_retried_with_back_off_in_a_terminating_namespace() {
    let cluster = TestCluster::new().await;
    cluster.set_fault_mode(FaultMode::NamespaceTerminating);
    cluster.create_vm("a", "Always").await;
    let mut tries = Vec::new();
    for _ in 0..3 {
        let before = cluster.all_creates();
        cluster.advance(Duration::from_mins(5)).await;
        tries.push(cluster.all_creates() - before);
    }
    // Once or twice a minute at the end, never in a loop.
    assert!((3..40).contains(&tries[0]), "{tries:?}");
    assert!(
        tries[2] <= tries[0] && (1..20).contains(&tries[2]),
        "{tries:?}"
    );
    cluster.set_fault_mode(FaultMode::None);
    cluster.wait_for_printable("a", "Running").await;
    cluster.end().await;
}
