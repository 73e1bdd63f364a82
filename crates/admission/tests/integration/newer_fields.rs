//! Forward compatibility: fields that the types do not know neither make an object unreadable nor
//! disappear when a component writes the object.

use admission::{review, review::Stage};
use apimachinery::{
    apply::{self, Conflicts, Writer},
    patch::merge,
    shape::Type,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cluster_config::ClusterConfig;
use defaults::Environment;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kubevirt_api::{VirtualMachine, VirtualMachineInstance};
use serde_json::{Value, json};
use uuid::Uuid;

/// An object with an unknown field `newer` at every level.
fn newer(kind: &str) -> Value {
    let spec = json!({
        "newer": [1, { "x": null }],
        "domain": {
            "newer": { "deep": true },
            "devices": {
                "newer": "x",
                "disks": [{ "name": "root", "newer": 1, "disk": { "bus": "virtio", "newer": 2 } }],
            },
            "memory": { "guest": "64Mi", "newer": 3 },
        },
        "volumes": [{ "name": "root", "newer": 4, "containerDisk": { "image": "a:1", "newer": 5 } }],
    });
    let spec = match kind {
        "VirtualMachine" => json!({
            "runStrategy": "Always",
            "newer": 6,
            "template": { "newer": 7, "spec": spec },
        }),
        _ => spec,
    };
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": kind,
        "metadata": { "name": "a", "namespace": "default" },
        "spec": spec,
        "status": {
            "newer": { "y": [1] },
            "conditions": [{ "type": "Newer", "status": "True", "newer": 8 }],
        },
        "newer": 9,
    })
}

/// All `newer` fields in a value, with their paths.
fn found(value: &Value) -> Vec<(String, Value)> {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| (key.clone(), value))
            .collect(),
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items
                .map(|(index, value)| (index.to_string(), value))
                .collect()
        }
        _ => Vec::new(),
    };
    let mut all = Vec::new();
    for (key, value) in inner {
        if key == "newer" {
            all.push((key, value.clone()));
        } else {
            let below = found(value).into_iter();
            all.extend(below.map(|(path, value)| (format!("{key}.{path}"), value)));
        }
    }
    all.sort_by(|left, right| left.0.cmp(&right.0));
    all
}

#[test]
fn objects_with_unknown_fields_are_read() {
    let vm: VirtualMachine = serde_json::from_value(newer("VirtualMachine")).expect("reads");
    let spec = vm.spec.template.spec.expect("a spec");
    assert_eq!(spec.volumes.len(), 1);
    let vmi: VirtualMachineInstance =
        serde_json::from_value(newer("VirtualMachineInstance")).expect("reads");
    assert_eq!(vmi.spec.domain.devices.disks.len(), 1);
}

#[test]
fn defaults_preserve_unknown_fields() {
    for kind in ["VirtualMachine", "VirtualMachineInstance"] {
        let mut object = newer(kind);
        let mut before = found(&object);
        // Users do not write the status of a VMI.
        before.retain(|(path, _)| kind == "VirtualMachine" || !path.starts_with("status."));
        let body = json!({ "request": {
            "uid": "u",
            "operation": "CREATE",
            "kind": { "group": "kubevirt.io", "version": "v1", "kind": kind },
            "userInfo": { "username": "a-user" },
            "object": object,
        }});
        let now = Time(Timestamp::UNIX_EPOCH);
        let env = Environment {
            now: &now,
            new_uuid: &Uuid::new_v4,
        };
        let review = review(Stage::Mutate, &body, &ClusterConfig::default(), env);
        let patch = review["response"]["patch"].as_str().expect("a patch");
        let patch = STANDARD.decode(patch).expect("base64");
        let patch: json_patch::Patch = serde_json::from_slice(&patch).expect("a patch");
        json_patch::patch(&mut object, &patch).expect("the patch fits");
        assert_eq!(found(&object), before, "{kind}");
    }
}

/// Components write by server-side apply under their own field manager, or by merge patch.
#[test]
fn status_writes_preserve_unknown_fields() {
    let live = newer("VirtualMachine");
    let ready = json!({ "type": "Ready", "status": "True" });
    for status in [
        json!({ "printableStatus": "Running" }),
        json!({ "created": true, "ready": true }),
        json!({ "observedGeneration": 3, "runStrategy": "Always" }),
        json!({ "volumeSnapshotStatuses": [{ "name": "root", "enabled": false }] }),
    ] {
        let config = json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": { "name": "a" },
            "status": status,
        });
        let writer = Writer {
            manager: "virt-controller",
            api_version: "kubevirt.io/v1",
            subresource: "status",
            ty: Type::Unknown,
            reset: &["spec", "metadata"],
            now: Timestamp::UNIX_EPOCH,
        };
        let applied = apply::apply(&writer, Some(&live), &config, Conflicts::TakeOver);
        let applied = applied.expect("applies");
        assert_eq!(found(&applied), found(&live), "{status}");
        let merged = merge::apply(&live, &json!({ "status": status }));
        assert_eq!(found(&merged), found(&live), "{status}");
    }
    // A list that is replaced as a whole loses only the unknown fields of its items.
    let merged = merge::apply(&live, &json!({ "status": { "conditions": [ready] } }));
    assert_eq!(found(&merged).len() + 1, found(&live).len());
}
