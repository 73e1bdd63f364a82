//! Guests with a network binding of the administrator.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use serde_json::{Value, json};

use super::cluster::{NAMESPACE, TestCluster};
use super::migrations::{migrations, wait_for_phase};

/// Creates a VM whose interface on its pod's network has the binding.
async fn create_vm(cluster: &TestCluster) {
    let mut spec = test_cluster::guest();
    let interface = json!({"name": "default", "binding": {"name": "fast"}});
    spec["domain"]["devices"]["interfaces"] = json!([interface]);
    create_vm_of(cluster, spec).await;
}

async fn create_vm_of(cluster: &TestCluster, spec: Value) {
    cluster
        .create(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": "a", "namespace": NAMESPACE},
            "spec": {"runStrategy": "Always", "template": {"spec": spec}},
        }))
        .await;
}

async fn register(cluster: &TestCluster) {
    let plugin = json!({"sidecarImage": "registry.example/fast:1", "downwardAPI": "device-info"});
    cluster
        .create(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
            "metadata": {"name": "kubevirt", "namespace": NAMESPACE},
            "spec": {"configuration": {"network": {"binding": {"fast": plugin}}}},
        }))
        .await;
}

async fn unregister(cluster: &TestCluster) {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", "KubeVirt"));
    let all: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), NAMESPACE, &kind);
    let deleted = all.delete("kubevirt", &DeleteParams::default()).await;
    deleted.unwrap();
}

/// Creates a secondary network, with its kind.
pub(crate) async fn define_network(cluster: &TestCluster, name: &str) {
    let (group, kind) = ("k8s.cni.cncf.io", "NetworkAttachmentDefinition");
    let plural = "network-attachment-definitions";
    let definition = json!({
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    });
    let definition = serde_json::from_value(definition).unwrap();
    let parameters = PostParams::default();
    let all: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    all.create(&parameters, &definition).await.unwrap();
    let network = json!({
        "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": name},
    });
    let network = serde_json::from_value(network).unwrap();
    let kind = GroupVersionKind::gvk(group, "v1", kind);
    let kind = ApiResource::from_gvk_with_plural(&kind, plural);
    let all: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), NAMESPACE, &kind);
    all.create(&parameters, &network).await.unwrap();
}

async fn only_pod(cluster: &TestCluster) -> Pod {
    let pods = cluster.pods().list(&ListParams::default()).await.unwrap();
    assert_eq!(pods.items.len(), 1);
    pods.items.into_iter().next().unwrap()
}

fn annotation(pod: &Pod, key: &str) -> Option<Value> {
    let text = pod.metadata.annotations.as_ref()?.get(key)?;
    Some(serde_json::from_str(text).unwrap())
}

#[tokio::test(start_paused = true)]
async fn vm_starts_once_its_binding_is_registered() {
    let cluster = TestCluster::new().await;
    create_vm(&cluster).await;
    cluster.events_of("FailedCreate").await;
    cluster.advance(Duration::from_mins(30)).await;
    assert!(cluster.writes_to("/pods").is_empty());
    let begin = tokio::time::Instant::now();
    register(&cluster).await;
    cluster.wait_for_printable("a", "Running").await;
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    let spec = only_pod(&cluster).await.spec.unwrap();
    let sidecar = &spec.init_containers.unwrap()[0];
    assert_eq!(sidecar.image.as_deref(), Some("registry.example/fast:1"));
    cluster.end().await;
}

/// The pod keeps the binding that it was made for; a new pod needs one that is registered.
#[tokio::test(start_paused = true)]
async fn migration_waits_for_its_binding_and_says_so() {
    let cluster = TestCluster::new().await;
    register(&cluster).await;
    define_network(&cluster, "lan").await;
    cluster.advance(Duration::from_secs(5)).await;
    // On the pod network, the guest cannot move while the binding is not registered.
    let mut spec = test_cluster::guest();
    spec["domain"]["devices"]["interfaces"] =
        json!([{"name": "blue", "binding": {"name": "fast"}}]);
    spec["networks"] = json!([{"name": "blue", "multus": {"networkName": "lan"}}]);
    create_vm_of(&cluster, spec).await;
    cluster.wait_for_printable("a", "Running").await;
    let recorded = annotation(&only_pod(&cluster).await, "ferrovirt.io/network-bindings");
    let expected = json!({"fast": {"attachment": "sidecar", "linkRefresh": false}});
    assert_eq!(recorded, Some(expected));

    unregister(&cluster).await;
    cluster.advance(Duration::from_secs(5)).await;
    cluster
        .create(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
            "metadata": {"name": "m", "namespace": NAMESPACE}, "spec": {"vmiName": "a"},
        }))
        .await;
    cluster.events_of("FailedCreate").await;
    cluster
        .wait_until("the migration says why it waits", async || {
            let status = migrations(&cluster).get("m").await.unwrap().status;
            let conditions = status.map(|status| status.conditions).unwrap_or_default();
            conditions.iter().any(|one| {
                let message = one.message.as_deref().unwrap_or_default();
                message.contains("no network binding \"fast\"")
            })
        })
        .await;
    cluster.advance(Duration::from_mins(30)).await;
    only_pod(&cluster).await;
    let begin = tokio::time::Instant::now();
    register(&cluster).await;
    wait_for_phase(&cluster, "m", "PreparingTarget").await;
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn devices_of_networks_are_published_for_the_sidecar() {
    let cluster = TestCluster::new().await;
    register(&cluster).await;
    define_network(&cluster, "lan").await;
    cluster.advance(Duration::from_secs(5)).await;
    let mut spec = test_cluster::guest();
    spec["domain"]["devices"]["interfaces"] = json!([
        {"name": "default", "binding": {"name": "fast"}},
        {"name": "blue", "binding": {"name": "fast"}},
    ]);
    spec["networks"] = json!([
        {"name": "default", "pod": {}},
        {"name": "blue", "multus": {"networkName": "lan"}},
    ]);
    create_vm_of(&cluster, spec).await;
    cluster.wait_for_printable("a", "Running").await;
    let pod = only_pod(&cluster).await;
    assert_eq!(annotation(&pod, "kubevirt.io/network-info"), None);

    let device = json!({"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:65:00.2"}});
    // Multus reports devices of secondary networks only.
    let report = json!([
        {"name": "cni", "interface": "eth0", "ips": ["10.244.0.5"], "default": true, "dns": {}},
        {
            "name": format!("{NAMESPACE}/lan"), "interface": model::pod_interface_name("blue"),
            "mac": "02:00:00:00:00:0b", "mtu": 1500, "device-info": device,
        },
    ]);
    let annotations = json!({"k8s.v1.cni.cncf.io/network-status": report.to_string()});
    let change = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    let name = pod.metadata.name.unwrap();
    let parameters = PatchParams::default();
    let patched = cluster.pods().patch(&name, &parameters, &change).await;
    patched.unwrap();
    let expected = json!({"interfaces": [
        {"network": "blue", "deviceInfo": device, "mac": "02:00:00:00:00:0b", "mtu": 1500},
    ]});
    cluster
        .wait_until("the devices are published", async || {
            let pod = only_pod(&cluster).await;
            annotation(&pod, "kubevirt.io/network-info").as_ref() == Some(&expected)
        })
        .await;
    let writes = cluster.all_writes();
    cluster.advance(Duration::from_mins(2)).await;
    assert_eq!(cluster.all_writes(), writes, "writes without a change");
    cluster.end().await;
}
