//! Container disks as image volumes or copies, depending on the configuration and the nodes.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PodSpec};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Value, json};

use super::cluster::{NAMESPACE, TestCluster};

/// The caches of the controllers lag behind.
const TRIES: u32 = 20;

/// Starts VMs until one gets its disk in that way.
async fn wait_until(cluster: &TestCluster, name: &str, is_copied: bool) {
    for attempt in 0..TRIES {
        let pod = pod_of_new(cluster, &format!("{name}-{attempt}")).await;
        if copies(&pod) == is_copied {
            return;
        }
        cluster.advance(Duration::from_secs(1)).await;
    }
    panic!("no VM {name} gets its disk in that way");
}

/// The pod of a new VM.
async fn pod_of_new(cluster: &TestCluster, name: &str) -> PodSpec {
    cluster.create_vm(name, "Always").await;
    cluster.wait_for_printable(name, "Running").await;
    let pods = cluster.pods().list(&<_>::default()).await.unwrap();
    let of = format!("virt-launcher-{name}-");
    let is_its = |one: &String| one.starts_with(&of);
    let mut pods = pods.items.into_iter();
    let pod = pods.find(|pod| pod.metadata.name.as_ref().is_some_and(is_its));
    pod.unwrap().spec.unwrap()
}

fn copies(pod: &PodSpec) -> bool {
    let mut volumes = pod.volumes.iter().flatten();
    let has_images = volumes.any(|volume| volume.image.is_some());
    let copiers = pod.init_containers.iter().flatten();
    let copiers: Vec<&str> = copiers.map(|copier| copier.name.as_str()).collect();
    match (has_images, &copiers[..]) {
        (true, []) => false,
        (false, ["container-disk-binary", "volumeroot-init"]) => true,
        other => panic!("neither a volume nor a copy: {other:?}"),
    }
}

async fn configure(cluster: &TestCluster, configuration: &Value) {
    let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "KubeVirt");
    let api = Api::<DynamicObject>::namespaced_with(
        cluster.client.clone(),
        NAMESPACE,
        &ApiResource::from_gvk(&kind),
    );
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt"},
        "spec": {"configuration": {"developerConfiguration": configuration}},
    });
    let parameters = PatchParams::apply("test").force();
    let patch = Patch::Apply(object);
    api.patch("kubevirt", &parameters, &patch).await.unwrap();
}

async fn run_node_by(cluster: &TestCluster, runtime: &str) {
    let info = json!({"containerRuntimeVersion": runtime, "kubeletVersion": "v1.34.1"});
    let patch = Patch::Merge(json!({"status": {"nodeInfo": info}}));
    let nodes = Api::<Node>::all(cluster.client.clone());
    let parameters = PatchParams::default();
    let patched = nodes.patch_status("node1", &parameters, &patch).await;
    patched.unwrap();
}

#[tokio::test(start_paused = true)]
async fn disks_are_volumes_unless_the_gate_is_off_or_a_node_lacks_support() {
    let cluster = TestCluster::new().await;
    wait_until(&cluster, "usual", false).await;

    configure(&cluster, &json!({"disabledFeatureGates": ["ImageVolume"]})).await;
    wait_until(&cluster, "off", true).await;

    configure(&cluster, &json!({"disabledFeatureGates": []})).await;
    wait_until(&cluster, "again", false).await;

    run_node_by(&cluster, "containerd://2.1.0").await;
    wait_until(&cluster, "unsure", true).await;

    configure(&cluster, &json!({"featureGates": ["ImageVolume"]})).await;
    wait_until(&cluster, "sure", false).await;

    run_node_by(&cluster, "containerd://1.7.28").await;
    wait_until(&cluster, "old", true).await;
    cluster.end().await;
}
