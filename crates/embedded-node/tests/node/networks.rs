//! Secondary networks: definitions, the pod that waits for one, and the report.

use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::Environment;

const STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
const DEFINITION: &str = "NetworkAttachmentDefinition";

fn definitions(env: &Environment) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", DEFINITION);
    let resource = ApiResource::from_gvk_with_plural(&kind, "network-attachment-definitions");
    Api::default_namespaced_with(env.client.clone(), &resource)
}

fn define(env: &Environment, name: &str, config: &Value) {
    let object = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": DEFINITION, "metadata": {"name": name},
        "spec": {"config": config.to_string()},
    });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let created = definitions(env);
    env.wait(created.create(&PostParams::default(), &object))
        .unwrap();
}

fn correct(env: &Environment, name: &str, config: &Value) {
    let patch = Patch::Merge(json!({"spec": {"config": config.to_string()}}));
    let definitions = definitions(env);
    env.wait(definitions.patch(name, &PatchParams::default(), &patch))
        .unwrap();
}

/// A pod on the network `lan` runs, is reported and removed.
pub(crate) fn run_pod_on_network(env: &Environment) {
    define(env, "lan", &json!({"type": "bridge"}));
    let pod = env.create_annotated("on-lan", &networks("lan"));
    env.wait_phase("on-lan", "Running");
    check_report(env, "on-lan");
    env.delete_and_wait("on-lan");
    env.assert_no_leftovers(&pod);
}

/// A pod that runs leaves its network and joins another one, and then none.
pub(crate) fn change_networks_of_pod(env: &Environment) {
    define(env, "lan", &json!({"type": "bridge"}));
    define(env, "dmz", &json!({"type": "bridge", "bridge": "dmz0"}));
    let pod = env.create_annotated("on-lan", &networks("lan"));
    env.wait_phase("on-lan", "Running");
    for (name, expected) in [("dmz", Some("default/dmz")), ("", None)] {
        let annotations = match name {
            "" => json!({"k8s.v1.cni.cncf.io/networks": "[]"}),
            name => networks(name),
        };
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let pods = env.pods();
        env.wait(pods.patch("on-lan", &PatchParams::default(), &patch))
            .unwrap();
        env.until(&format!("on {name:?}"), || {
            let pod = env.wait(env.pods().get("on-lan")).unwrap();
            let report = &pod.metadata.annotations.unwrap()[STATUS];
            let report: Value = serde_json::from_str(report).unwrap();
            report[0]["interface"] == "eth0" && report[1]["name"].as_str() == expected
        });
    }
    env.delete_and_wait("on-lan");
    env.assert_no_leftovers(&pod);
}

#[test]
fn running_pod_gets_and_loses_networks() {
    let env = Environment::new("changed-networks");
    change_networks_of_pod(&env);
}

fn networks(name: &str) -> Value {
    let network = json!({"name": name, "interface": "pod1", "mac": "02:00:00:00:00:0b"});
    json!({"k8s.v1.cni.cncf.io/networks": json!([network]).to_string()})
}

fn check_report(env: &Environment, pod: &str) {
    let pod = env.wait(env.pods().get(pod)).unwrap();
    let report: Value = serde_json::from_str(&pod.metadata.annotations.unwrap()[STATUS]).unwrap();
    assert_eq!(report[0]["interface"], "eth0");
    assert_eq!(report[0]["ips"], json!(["10.9.8.7"]));
    assert_eq!(report[1]["name"], "default/lan");
    assert_eq!(report[1]["interface"], "pod1");
    assert_eq!(report[1]["mac"], "02:00:00:00:00:0b");
}

#[test]
fn pod_waits_with_a_reason_until_its_network_is_defined() {
    let env = Environment::new("networks");
    let waits_for = |reason: &str| {
        env.wait_until("on-lan", reason, |status| {
            let waiting = &status["containerStatuses"][0]["state"]["waiting"];
            waiting["reason"] == reason
                && waiting["message"]
                    .as_str()
                    .is_some_and(|text| text.contains("default/lan"))
        });
    };
    let pod = env.create_annotated("on-lan", &networks("lan"));
    waits_for("NetworkDefinitionMissing");
    define(&env, "lan", &json!({"type": "ovs"}));
    waits_for("NetworkDefinitionNotSupported");
    correct(&env, "lan", &json!({"type": "bridge", "mtu": "x"}));
    waits_for("NetworkDefinitionInvalid");
    correct(&env, "lan", &json!({"type": "bridge"}));
    env.wait_phase("on-lan", "Running");
    check_report(&env, "on-lan");
    env.delete_and_wait("on-lan");
    env.assert_no_leftovers(&pod);
}
