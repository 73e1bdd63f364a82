//! A start waits for what the host lacks, says so, and goes on once that is there.

use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};
use stories::{Home as _, Registry, images, machine, wait_for};

use crate::{Story, story};

const CPU_MODEL: &str = "cpu-model.node.kubevirt.io/";

/// The only node.
async fn node(story: &Story) -> Value {
    let nodes = story.kubectl(&["get", "nodes", "--output=json"]).await;
    let nodes: Value = serde_json::from_str(&nodes.good()).expect("kubectl writes JSON");
    nodes["items"][0].clone()
}

#[tokio::test]
async fn a_start_goes_on_once_its_registry_is_up() {
    let story = story().await;
    let mut registry = Registry::new();
    registry.up().await;
    registry
        .push(&images().join("guest-tiny.oci"), "tiny:1")
        .await;
    registry.down().await;
    story
        .apply(&machine("pulled").image(&registry.name("tiny:1")))
        .await;
    let is_told = |vm: &Value| {
        let status = &vm["status"]["printableStatus"];
        status == "ErrImagePull" || status == "ImagePullBackOff"
    };
    wait_for(&story.vms(), "pulled", "told about its image", is_told).await;
    registry.up().await;
    story.vmi_is("pulled", "Running").await;
}

#[tokio::test]
async fn a_start_goes_on_once_there_is_memory() {
    let story = Story::alone().await;
    let memory = node(&story).await["status"]["allocatable"]["memory"].clone();
    let memory = memory.as_str().and_then(|text| text.strip_suffix("Ki"));
    let memory: u64 = memory.and_then(|text| text.parse().ok()).expect("in KiB");
    let most = format!("{}Ki", memory / 5 * 3);
    for name in ["first", "second"] {
        let resources = json!({"requests": {"memory": most}});
        let vm = machine(name).domain("resources", resources);
        story.apply(&vm).await;
        match name {
            "first" => drop(story.vmi_is(name, "Running").await),
            _ => drop(story.vm_is(name, "ErrorUnschedulable").await),
        }
    }
    story.virtctl(&["stop", "first"]).await.good();
    story.vmi_is("second", "Running").await;
}

#[tokio::test]
async fn a_start_goes_on_once_the_node_has_its_cpu_model() {
    let story = Story::alone().await;
    let labels = node(&story).await["metadata"]["labels"].clone();
    let labels = labels.as_object().expect("it has labels").keys();
    let mut models = labels.filter_map(|label| label.strip_prefix(CPU_MODEL));
    let model = models.next().expect("the node has models");
    let label = format!("{CPU_MODEL}{model}");
    let kubevirt = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
        "spec": {"configuration": {"obsoleteCPUModels": {model: true}}},
    });
    let apply = ["apply", "--filename=-"];
    let text = kubevirt.to_string();
    story.home.kubectl(&apply, text.as_bytes()).await.good();
    let nodes = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Node"));
    let nodes: Api<DynamicObject> = Api::all_with(story.client.clone(), &nodes);
    let is_without = |node: &Value| node["metadata"]["labels"][&label].is_null();
    wait_for(&nodes, "localhost", "without the model", is_without).await;

    let cpu = json!({"model": model});
    story.apply(&machine("picky").domain("cpu", cpu)).await;
    story.vm_is("picky", "ErrorUnschedulable").await;
    let all = ["delete", "kubevirt", "kubevirt", "--namespace=kubevirt"];
    story.home.kubectl(&all, b"").await.good();
    story.vmi_is("picky", "Running").await;
}
