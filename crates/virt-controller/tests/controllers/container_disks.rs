//! How disks in images get into pods, as the administrator and the nodes change.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PodSpec};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Value, json};

use super::world::{NAMESPACE, World};

/// What the controllers were told is news to them for a while.
const TRIES: u32 = 20;

/// Starts machines until one gets its disk in that way.
async fn until(world: &World, name: &str, is_copied: bool) {
    for attempt in 0..TRIES {
        let pod = pod_of_new(world, &format!("{name}-{attempt}")).await;
        if copies(&pod) == is_copied {
            return;
        }
        world.pass(Duration::from_secs(1)).await;
    }
    panic!("disks of {name} never come that way");
}

/// The pod of a new machine.
async fn pod_of_new(world: &World, name: &str) -> PodSpec {
    world.create_vm(name, "Always").await;
    world.until_printable(name, "Running").await;
    let pods = world.pods().list(&<_>::default()).await.unwrap();
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
        other => panic!("neither one way nor the other: {other:?}"),
    }
}

async fn configure(world: &World, configuration: &Value) {
    let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "KubeVirt");
    let api = Api::<DynamicObject>::namespaced_with(
        world.client.clone(),
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

async fn run_node_by(world: &World, runtime: &str) {
    let info = json!({"containerRuntimeVersion": runtime, "kubeletVersion": "v1.34.1"});
    let patch = Patch::Merge(json!({"status": {"nodeInfo": info}}));
    let nodes = Api::<Node>::all(world.client.clone());
    let parameters = PatchParams::default();
    let patched = nodes.patch_status("node1", &parameters, &patch).await;
    patched.unwrap();
}

#[tokio::test(start_paused = true)]
async fn disks_are_volumes_until_the_administrator_or_a_node_objects() {
    let world = World::new().await;
    until(&world, "usual", false).await;

    configure(&world, &json!({"disabledFeatureGates": ["ImageVolume"]})).await;
    until(&world, "off", true).await;

    configure(&world, &json!({"disabledFeatureGates": []})).await;
    until(&world, "again", false).await;

    run_node_by(&world, "containerd://2.1.0").await;
    until(&world, "unsure", true).await;

    configure(&world, &json!({"featureGates": ["ImageVolume"]})).await;
    until(&world, "sure", false).await;

    run_node_by(&world, "containerd://1.7.28").await;
    until(&world, "old", true).await;
    world.end().await;
}
