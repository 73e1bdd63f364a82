//! Table tests of the plan for claims.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

struct Case {
    claim: Value,
    volumes: Vec<Value>,
    classes: Vec<Value>,
    consumer: Consumer,
    usage: Usage,
}

fn class(name: &str, provisioner: &str, mode: &str, default: &str) -> Value {
    json!({
        "metadata": {"name": name, "annotations": {DEFAULT_CLASS: default}},
        "provisioner": provisioner, "volumeBindingMode": mode,
    })
}

fn local() -> Value {
    class("local", PROVISIONER, "WaitForFirstConsumer", "true")
}

fn volume(name: &str, size: &str, class: &str, claim: &Value) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": class, "claimRef": claim,
        },
    })
}

/// A claim with these fields added to a minimal one.
fn claim(spec: &Value, annotations: &Value) -> Value {
    let mut claim = json!({
        "metadata": {
            "name": "c", "namespace": "n", "uid": "u", "annotations": annotations,
            "finalizers": [CLAIM_PROTECTION],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Pending"},
    });
    for (key, value) in spec.as_object().unwrap() {
        claim["spec"][key] = value.clone();
    }
    claim
}

fn case(claim: Value) -> Case {
    Case {
        claim,
        volumes: vec![],
        classes: vec![local()],
        consumer: Consumer::None,
        usage: Usage::Unused,
    }
}

fn step(case: &Case) -> Option<Step> {
    let volumes: Vec<Arc<PersistentVolume>> = case
        .volumes
        .iter()
        .map(|one| Arc::new(serde_json::from_value(one.clone()).unwrap()))
        .collect();
    let classes: Vec<Arc<StorageClass>> = case
        .classes
        .iter()
        .map(|one| Arc::new(serde_json::from_value(one.clone()).unwrap()))
        .collect();
    next(&Observed {
        claim: &serde_json::from_value(case.claim.clone()).unwrap(),
        volumes: &volumes,
        classes: &classes,
        consumer: case.consumer,
        usage: case.usage,
        node: "here",
    })
}

fn lost(case: &Case) -> Reason {
    match step(case) {
        Some(Step::SetLost(event)) => event.reason,
        other => panic!("{other:?}"),
    }
}

fn reason(case: &Case) -> Reason {
    match step(case) {
        Some(Step::Publish(event)) => event.reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn claim_is_protected_while_a_pod_uses_it() {
    let mut bare = case(claim(&json!({}), &json!({})));
    bare.claim["metadata"]["finalizers"] = json!([]);
    assert_eq!(step(&bare), Some(Step::Protect));
    let mut deleted = case(claim(&json!({}), &json!({})));
    deleted.claim["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
    deleted.usage = Usage::InUse;
    assert_eq!(step(&deleted), None);
    deleted.usage = Usage::Unused;
    assert_eq!(step(&deleted), Some(Step::Unprotect));
    deleted.claim["metadata"]["finalizers"] = json!(["other/one"]);
    assert_eq!(step(&deleted), None);
}

#[test]
fn local_claim_is_provisioned_for_its_first_consumer() {
    let mut new = case(claim(&json!({}), &json!({})));
    assert_eq!(step(&new), Some(Step::SetClass("local".into())));
    new.claim["spec"]["storageClassName"] = json!("local");
    assert_eq!(reason(&new), "WaitForFirstConsumer");
    new.consumer = Consumer::Waiting;
    assert_eq!(step(&new), Some(Step::SelectNode));
    new.claim["metadata"]["annotations"] = json!({SELECTED_NODE: "here"});
    let provision = |mode| {
        Some(Step::Provision {
            class: "local".into(),
            mode,
            data: DataSource::None,
        })
    };
    assert_eq!(step(&new), provision(Mode::Filesystem));
    new.claim["spec"]["volumeMode"] = json!("Block");
    assert_eq!(step(&new), provision(Mode::Block));
    new.claim["metadata"]["annotations"] = json!({SELECTED_NODE: "elsewhere"});
    assert_eq!(step(&new), None);
}

#[test]
fn immediate_class_needs_no_consumer() {
    let mut new = case(claim(&json!({"storageClassName": "now"}), &json!({})));
    new.classes = vec![class("now", PROVISIONER, "Immediate", "false")];
    assert!(matches!(step(&new), Some(Step::Provision { .. })));
}

#[test]
fn binding_writes_volume_then_claim_then_status() {
    let ours = json!({"name": "c", "namespace": "n", "uid": "u"});
    let mut one = case(claim(&json!({"storageClassName": "local"}), &json!({})));
    one.volumes = vec![volume("v", "1Gi", "local", &ours)];
    assert_eq!(step(&one), Some(Step::Bind("v".into())));
    one.claim["spec"]["volumeName"] = json!("v");
    assert_eq!(step(&one), Some(Step::Bind("v".into())));
    one.claim["metadata"]["annotations"] = json!({BIND_COMPLETED: "yes"});
    assert_eq!(step(&one), Some(Step::SetBound("v".into())));
    one.claim["status"]["phase"] = json!("Bound");
    assert_eq!(step(&one), None);
    one.volumes.clear();
    assert_eq!(lost(&one), "ClaimLost");
    one.claim["status"]["phase"] = json!("Lost");
    assert_eq!(step(&one), None);
}

#[test]
fn volume_of_another_claim_is_not_bound() {
    let theirs = json!({"name": "c", "namespace": "n", "uid": "older"});
    let mut one = case(claim(
        &json!({"storageClassName": "", "volumeName": "v"}),
        &json!({}),
    ));
    one.volumes = vec![volume("v", "1Gi", "", &theirs)];
    assert_eq!(lost(&one), "ClaimMisbound");
    one.claim["spec"]["volumeName"] = Value::Null;
    assert_eq!(reason(&one), "FailedBinding");
}

#[test]
fn smallest_fitting_volume_is_taken() {
    let mut one = case(claim(&json!({"storageClassName": ""}), &json!({})));
    one.volumes = vec![
        volume("large", "9Gi", "", &Value::Null),
        volume("small", "512Mi", "", &Value::Null),
        volume("right", "2Gi", "", &Value::Null),
        volume("other", "1Gi", "other", &Value::Null),
    ];
    assert_eq!(step(&one), Some(Step::TakeVolume("right".into())));
    one.claim["spec"]["accessModes"] = json!(["ReadWriteMany"]);
    assert_eq!(reason(&one), "FailedBinding");
    one.claim["spec"]["accessModes"] = json!(["ReadWriteOnce"]);
    one.claim["spec"]["selector"] = json!({"matchLabels": {"a": "b"}});
    assert_eq!(reason(&one), "FailedBinding");
    one.volumes[0]["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(step(&one), Some(Step::TakeVolume("large".into())));
    // Reserved by an administrator for this claim, whatever else is free.
    let reserved = json!({"name": "c", "namespace": "n"});
    one.volumes.push(volume("mine", "1Mi", "", &reserved));
    assert_eq!(step(&one), Some(Step::Bind("mine".into())));
    one.claim["spec"]["volumeName"] = json!("mine");
    assert_eq!(step(&one), Some(Step::TakeVolume("mine".into())));
}

#[test]
fn failed_provisioning_publishes_a_reason() {
    let named = |name: &str| json!({"storageClassName": name});
    let no_default = || Case {
        classes: vec![],
        ..case(claim(&json!({}), &json!({})))
    };
    assert_eq!(reason(&no_default()), "FailedBinding");
    let unknown = case(claim(&named("no-such"), &json!({})));
    assert_eq!(reason(&unknown), "ProvisioningFailed");
    let foreign = Case {
        classes: vec![class("nfs", "example.com/nfs", "Immediate", "false")],
        ..case(claim(&named("nfs"), &json!({})))
    };
    assert_eq!(reason(&foreign), "ExternalProvisioning");
    let mut filled = case(claim(&named("local"), &json!({SELECTED_NODE: "here"})));
    filled.claim["spec"]["dataSource"] = json!({"kind": "VolumeSnapshot", "name": "s"});
    assert_eq!(reason(&filled), "ProvisioningFailed");
}

#[test]
fn data_source_is_copied_and_never_taken_from_an_existing_volume() {
    let snapshot = json!({
        "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s",
    });
    let other = json!({"kind": "PersistentVolumeClaim", "name": "o"});
    let elsewhere = json!({"kind": "PersistentVolumeClaim", "name": "o", "namespace": "else"});
    let populator = json!({"apiGroup": "example.com", "kind": "Image", "name": "i"});
    for (field, source, expected) in [
        (
            "dataSource",
            &snapshot,
            Some(DataSource::Snapshot("s".into())),
        ),
        (
            "dataSourceRef",
            &snapshot,
            Some(DataSource::Snapshot("s".into())),
        ),
        ("dataSource", &other, Some(DataSource::Claim("o".into()))),
        ("dataSourceRef", &elsewhere, None),
        ("dataSourceRef", &populator, None),
    ] {
        let spec = json!({"storageClassName": "local", field: source});
        let mut filled = case(claim(&spec, &json!({SELECTED_NODE: "here"})));
        filled.volumes = vec![volume("free", "1Gi", "local", &Value::Null)];
        match expected {
            Some(data) => {
                let provision = Step::Provision {
                    class: "local".into(),
                    mode: Mode::Filesystem,
                    data,
                };
                assert_eq!(step(&filled), Some(provision), "{source}");
            }
            None => assert_eq!(reason(&filled), "ProvisioningFailed", "{source}"),
        }
    }
}
