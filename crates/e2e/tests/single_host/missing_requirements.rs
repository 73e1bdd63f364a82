//! A VM waits for requirements that the host does not meet, reports them, and starts once they are met.

use e2e::{Environment as _, Registry, images, tiny_vm, wait_for};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::{TestNamespace, test_namespace};

const CPU_MODEL: &str = "cpu-model.node.kubevirt.io/";

/// The name of the only node.
async fn node(test: &TestNamespace) -> Value {
    let nodes = test.kubectl(&["get", "nodes", "--output=json"]).await;
    let nodes: Value = serde_json::from_str(&nodes.success()).expect("kubectl writes JSON");
    nodes["items"][0].clone()
}

#[tokio::test]
async fn start_continues_once_registry_is_up() {
    let test = test_namespace().await;
    let mut registry = Registry::new();
    registry.up().await;
    registry
        .push(&images().join("guest-tiny.oci"), "tiny:1")
        .await;
    registry.down().await;
    test.apply(&tiny_vm("pulled").image(&registry.name("tiny:1")))
        .await;
    let is_reported = |vm: &Value| {
        let status = &vm["status"]["printableStatus"];
        status == "ErrImagePull" || status == "ImagePullBackOff"
    };
    wait_for(&test.vms(), "pulled", "reporting its image", is_reported).await;
    registry.up().await;
    test.wait_vmi_phase("pulled", "Running").await;
}

#[tokio::test]
async fn start_continues_once_memory_is_free() {
    let test = TestNamespace::create_exclusive().await;
    let memory = node(&test).await["status"]["allocatable"]["memory"].clone();
    let memory = memory.as_str().and_then(|text| text.strip_suffix("Ki"));
    let memory: u64 = memory.and_then(|text| text.parse().ok()).expect("in KiB");
    let most = format!("{}Ki", memory / 5 * 3);
    for name in ["first", "second"] {
        let resources = json!({"requests": {"memory": most}});
        let vm = tiny_vm(name).domain("resources", resources);
        test.apply(&vm).await;
        match name {
            "first" => drop(test.wait_vmi_phase(name, "Running").await),
            _ => drop(test.wait_vm_status(name, "ErrorUnschedulable").await),
        }
    }
    test.virtctl(&["stop", "first"]).await.success();
    test.wait_vmi_phase("second", "Running").await;
}

#[tokio::test]
async fn start_continues_once_node_has_cpu_model() {
    let test = TestNamespace::create_exclusive().await;
    let labels = node(&test).await["metadata"]["labels"].clone();
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
    test.environment
        .kubectl(&apply, text.as_bytes())
        .await
        .success();
    let nodes = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Node"));
    let nodes: Api<DynamicObject> = Api::all_with(test.client.clone(), &nodes);
    let is_without = |node: &Value| node["metadata"]["labels"][&label].is_null();
    wait_for(&nodes, "localhost", "without the model", is_without).await;

    let cpu = json!({"model": model});
    test.apply(&tiny_vm("picky").domain("cpu", cpu)).await;
    test.wait_vm_status("picky", "ErrorUnschedulable").await;
    let all = ["delete", "kubevirt", "kubevirt", "--namespace=kubevirt"];
    test.environment.kubectl(&all, b"").await.success();
    test.wait_vmi_phase("picky", "Running").await;
}
