//! Guests with a network binding of the administrator.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::cluster::{NAMESPACE, TestCluster};

async fn create_vm(cluster: &TestCluster) {
    let mut spec = test_cluster::guest();
    let interface = json!({"name": "default", "binding": {"name": "fast"}});
    spec["domain"]["devices"]["interfaces"] = json!([interface]);
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

#[tokio::test(start_paused = true)]
async fn devices_of_networks_are_published_for_the_sidecar() {
    let cluster = TestCluster::new().await;
    register(&cluster).await;
    cluster.advance(Duration::from_secs(5)).await;
    create_vm(&cluster).await;
    cluster.wait_for_printable("a", "Running").await;
    let pod = only_pod(&cluster).await;
    assert_eq!(annotation(&pod, "kubevirt.io/network-info"), None);

    let device = json!({"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:65:00.2"}});
    let report = json!([{
        "name": "ns/n", "interface": model::pod_interface_name("default"),
        "mac": "02:00:00:00:00:0b", "device-info": device,
    }]);
    let annotations = json!({"k8s.v1.cni.cncf.io/network-status": report.to_string()});
    let change = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    let name = pod.metadata.name.unwrap();
    let parameters = PatchParams::default();
    let patched = cluster.pods().patch(&name, &parameters, &change).await;
    patched.unwrap();
    let expected = json!({"interfaces": [
        {"network": "default", "deviceInfo": device, "mac": "02:00:00:00:00:0b"},
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
