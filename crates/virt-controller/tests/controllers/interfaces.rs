//! Interfaces that a running guest gets and loses: VM, VMI and pod follow each other. The test plays virt-handler and the
//! network plugin.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::cluster::TestCluster;
use super::network_bindings::define_network;

const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
const STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

async fn with_guest() -> TestCluster {
    let cluster = TestCluster::new().await;
    cluster.create_vm("a", "Always").await;
    set_template(&cluster, &[]).await;
    cluster.wait_for_printable("a", "Running").await;
    let condition = json!({"type": "LiveMigratable", "status": "True"});
    let ready = json!({"type": "Ready", "status": "True"});
    let interfaces = json!([
        {"name": "default", "masquerade": {}},
    ]);
    let networks = json!([{"name": "default", "pod": {}}]);
    let patch = json!({
        "spec": {"domain": {"devices": {"interfaces": interfaces}}, "networks": networks},
        "status": {"conditions": [condition, ready]},
    });
    patch_vmi(&cluster, patch).await;
    cluster
}

/// The interfaces of the template: one on the pod network, and these.
async fn set_template(cluster: &TestCluster, more: &[Value]) {
    let mut interfaces = vec![json!({"name": "default", "masquerade": {}})];
    let mut networks = vec![json!({"name": "default", "pod": {}})];
    for one in more {
        let name = &one["name"];
        networks.push(json!({"name": name, "multus": {"networkName": name}}));
        interfaces.push(one.clone());
    }
    let spec = json!({"domain": {"devices": {"interfaces": interfaces}}, "networks": networks});
    let patch = json!({"spec": {"template": {"spec": spec}}});
    cluster.patch_vm("a", patch).await;
}

fn lan() -> Value {
    json!({"name": "lan", "bridge": {}})
}

async fn patch_vmi(cluster: &TestCluster, patch: Value) {
    let (patch, parameters) = (Patch::Merge(patch), PatchParams::default());
    let patched = cluster.vmis().patch("a", &parameters, &patch).await;
    patched.unwrap();
}

async fn vmi(cluster: &TestCluster) -> Value {
    json!(cluster.vmis().get("a").await.unwrap())
}

async fn template(cluster: &TestCluster) -> Value {
    json!(cluster.vms().get("a").await.unwrap())["spec"]["template"]["spec"].clone()
}

async fn pod(cluster: &TestCluster) -> Pod {
    let pods = cluster.pods().list(&ListParams::default()).await.unwrap();
    assert_eq!(pods.items.len(), 1, "the guest keeps its pod");
    pods.items.into_iter().next().unwrap()
}

fn annotation(pod: &Pod, key: &str) -> Value {
    let all = pod.metadata.annotations.clone().unwrap_or_default();
    let text = all.get(key).map_or("[]", String::as_str);
    serde_json::from_str(text).unwrap()
}

/// The network plugin reports what the pod names.
async fn report_networks(cluster: &TestCluster) {
    let pod = pod(cluster).await;
    let mut report = vec![json!({"name": "x", "interface": "eth0", "default": true})];
    let named = annotation(&pod, NETWORKS);
    report.extend(named.as_array().unwrap().iter().cloned());
    let report = Value::from(report).to_string();
    let patch = json!({"metadata": {"annotations": {STATUS: report}}});
    let name = pod.metadata.name.unwrap();
    let (patch, parameters) = (Patch::Merge(patch), PatchParams::default());
    let patched = cluster.pods().patch(&name, &parameters, &patch).await;
    patched.unwrap();
}

/// virt-handler reports the interface, or that there is none any more.
async fn report_interface(cluster: &TestCluster, sources: Option<&str>) {
    let shown = sources.map(|sources| json!({"name": "lan", "infoSource": sources}));
    let shown: Vec<Value> = shown.into_iter().collect();
    patch_vmi(cluster, json!({"status": {"interfaces": shown}})).await;
}

async fn wait_for_pod_on_lan(cluster: &TestCluster, expected: bool) {
    cluster
        .wait_until(&format!("the pod names lan: {expected}"), async || {
            let named = annotation(&pod(cluster).await, NETWORKS);
            let mut all = named.as_array().unwrap().iter();
            all.any(|one| one["interface"] == model::pod_interface_name("lan")) == expected
        })
        .await;
}

fn names(spec: &Value) -> Vec<String> {
    let [interfaces, networks] = ["/domain/devices/interfaces", "/networks"].map(|path| {
        let all = spec.pointer(path).and_then(Value::as_array);
        let all = all.into_iter().flatten();
        all.map(|one| one["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    });
    assert_eq!(interfaces, networks);
    interfaces
}

async fn requires_restart(cluster: &TestCluster) -> bool {
    let conditions = json!(cluster.vms().get("a").await.unwrap())["status"]["conditions"].clone();
    let mut all = conditions.as_array().unwrap().iter();
    all.any(|one| one["type"] == "RestartRequired" && one["status"] == "True")
}

async fn comes_and_goes(cluster: &TestCluster) {
    let uid = vmi(cluster).await["metadata"]["uid"].clone();
    set_template(cluster, &[lan()]).await;
    wait_for_pod_on_lan(cluster, true).await;
    assert_eq!(names(&vmi(cluster).await["spec"]), ["default", "lan"]);
    report_networks(cluster).await;
    report_interface(cluster, Some("domain, multus-status")).await;
    set_template(
        cluster,
        &[json!({"name": "lan", "bridge": {}, "state": "absent"})],
    )
    .await;
    cluster
        .wait_until("the VMI's interface is absent", async || {
            let vmi = vmi(cluster).await;
            vmi["spec"]["domain"]["devices"]["interfaces"][1]["state"] == "absent"
        })
        .await;
    // The guest still has it.
    wait_for_pod_on_lan(cluster, true).await;
    report_interface(cluster, Some("multus-status")).await;
    wait_for_pod_on_lan(cluster, false).await;
    assert_eq!(names(&vmi(cluster).await["spec"]), ["default", "lan"]);
    report_networks(cluster).await;
    report_interface(cluster, None).await;
    cluster
        .wait_until("VMI and VM have dropped it", async || {
            let specs = [vmi(cluster).await["spec"].clone(), template(cluster).await];
            specs.iter().all(|spec| names(spec) == ["default"])
        })
        .await;
    cluster
        .wait_until("no restart is required", async || {
            !requires_restart(cluster).await
        })
        .await;
    assert_eq!(vmi(cluster).await["metadata"]["uid"], uid);
}

#[tokio::test(start_paused = true)]
async fn interface_comes_to_a_running_guest_and_goes() {
    let cluster = with_guest().await;
    define_network(&cluster, "lan").await;
    for _ in 0..2 {
        comes_and_goes(&cluster).await;
    }
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn interfaces_survive_a_crash_of_the_controllers_at_every_failpoint() {
    let mut cluster = with_guest().await;
    define_network(&cluster, "lan").await;
    for name in [
        "virt-controller/vm/follow-template",
        "virt-controller/vm/drop-interfaces",
        "virt-controller/vmi/change-networks",
        "virt-controller/vmi/drop-interfaces",
    ] {
        cluster.crash_after(name);
        comes_and_goes(&cluster).await;
        assert!(!cluster.is_crash_pending(), "{name}");
    }
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn interface_waits_for_its_network_definition() {
    let cluster = with_guest().await;
    set_template(&cluster, &[lan()]).await;
    cluster
        .wait_until("the change is pending", async || {
            let vm = json!(cluster.vms().get("a").await.unwrap());
            let conditions = vm["status"]["conditions"].as_array().unwrap().clone();
            conditions.iter().any(|one| {
                let message = one["message"].as_str().unwrap_or_default();
                one["type"] == "ChangePending" && message.contains("lan")
            })
        })
        .await;
    assert!(!requires_restart(&cluster).await);
    assert_eq!(names(&vmi(&cluster).await["spec"]), ["default"]);
    define_network(&cluster, "lan").await;
    wait_for_pod_on_lan(&cluster, true).await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn interface_with_another_binding_needs_a_restart() {
    let cluster = with_guest().await;
    define_network(&cluster, "lan").await;
    set_template(&cluster, &[json!({"name": "lan", "sriov": {}})]).await;
    cluster
        .wait_until("a restart is required", async || {
            requires_restart(&cluster).await
        })
        .await;
    assert_eq!(names(&vmi(&cluster).await["spec"]), ["default"]);
    cluster.end().await;
}
