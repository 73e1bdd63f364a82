//! Reviews of whole requests, by both webhooks.

mod compatibility;
mod defaults;
mod refusals;
mod updates;

use std::cell::Cell;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;

/// Calls a webhook as `user` and returns its response.
fn call(stage: Stage, user: &str, request: Value) -> Value {
    call_under(stage, user, request, &ClusterConfig::default())
}

fn call_under(stage: Stage, user: &str, mut request: Value, config: &ClusterConfig) -> Value {
    let kind = request["object"]["kind"].clone();
    request["uid"] = json!("u-1");
    request["kind"] = json!({ "group": "kubevirt.io", "version": "v1", "kind": kind });
    request["userInfo"] = json!({ "username": user });
    let now: Time = serde_json::from_value(json!("2026-01-02T03:04:05Z")).expect("time");
    let count = Cell::new(0);
    let new_uuid = || {
        count.set(count.get() + 1);
        Uuid::from_u128(count.get())
    };
    let env = Environment {
        now: &now,
        new_uuid: &new_uuid,
    };
    let reviewed = review(stage, &json!({ "request": request }), config, env);
    assert_eq!(reviewed["kind"], "AdmissionReview");
    assert_eq!(reviewed["response"]["uid"], "u-1");
    reviewed["response"].clone()
}

fn patch_of(response: &Value) -> json_patch::Patch {
    let text = response["patch"].as_str().expect("a patch");
    assert_eq!(response["patchType"], "JSONPatch");
    serde_json::from_slice(&STANDARD.decode(text).expect("base64")).expect("a JSON patch")
}

fn vmi() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": { "name": "a", "namespace": "default", "creationTimestamp": null },
        "spec": {
            "fromTheFuture": { "x": [1, null] },
            "domain": {
                "devices": { "disks": [{ "name": "root", "odd": 1 }] },
                "resources": { "requests": { "memory": "128Mi", "cpu": 2 } },
            },
            "volumes": [{ "name": "root", "containerDisk": { "image": "guest:1" } }],
        },
    })
}

fn vm() -> Value {
    let mut template = vmi();
    json!({
        "apiVersion": "kubevirt.io/v1alpha3",
        "kind": "VirtualMachine",
        "metadata": { "name": "a", "namespace": "default" },
        "spec": { "runStrategy": "Always", "template": { "spec": template["spec"].take() } },
    })
}

/// A manifest in the style of 2018 to 2020.
const OLD_MANIFEST: &str = r#"
apiVersion: kubevirt.io/v1alpha3
kind: VirtualMachineInstance
metadata:
  labels: { kubevirt.io/vm: old }
  name: old
  namespace: default
spec:
  domain:
    cpu: { cores: 2, model: Nehalem-IBRS }
    devices:
      disks: [{ disk: { bus: virtio }, name: host-disk }]
      interfaces: [{ name: default, masquerade: {}, ports: [{ port: 80 }] }]
    machine: { type: "" }
    resources: { requests: { memory: 2048M } }
  networks: [{ name: default, pod: {} }]
  terminationGracePeriodSeconds: 0
  volumes:
    - hostDisk: { path: /data/disk.img, type: Disk, shared: true }
      name: host-disk
status: {}
"#;

fn config_from_legacy_map(data: &[(&str, &str)]) -> ClusterConfig {
    let data = data
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let written = cluster_config::legacy::read(&data).expect("a good map");
    ClusterConfig::from_kubevirt(&serde_json::from_value(written).expect("a configuration"))
}
