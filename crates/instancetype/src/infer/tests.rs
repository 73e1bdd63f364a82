//! Inference over synthetic clusters: maps from a source to its object.

use serde_json::json;

use super::*;

const NAME: &str = "instancetype.kubevirt.io/default-instancetype";
const KIND: &str = "instancetype.kubevirt.io/default-instancetype-kind";

/// A VM that infers from its volume `root`.
fn vm(volume: &Value, templates: &Value) -> VirtualMachine {
    let vm = json!({
        "metadata": { "name": "a", "namespace": "here" },
        "spec": {
            "instancetype": { "inferFromVolume": "root" },
            "dataVolumeTemplates": templates,
            "template": { "spec": {
                "domain": { "devices": {}, "memory": { "guest": "1Gi" } },
                "volumes": [volume],
            } },
        },
    });
    serde_json::from_value(vm).expect("a VM")
}

fn labelled(name: &str) -> Value {
    json!({ "metadata": { "labels": { NAME: name } } })
}

/// Runs all steps; `cluster` holds objects by the display form of their source.
fn infer(vm: &VirtualMachine, cluster: &Value) -> Outcome {
    let mut step = first_step(vm, Family::Instancetype).expect("something to infer");
    for _ in 0..10 {
        match step {
            Step::Done(outcome) => return outcome,
            Step::Lookup(source) => {
                let found = cluster.get(source.to_string());
                step = next_step(&source, found, Family::Instancetype);
            }
        }
    }
    panic!("the inference does not end");
}

fn found(name: &str) -> Outcome {
    Outcome::Found {
        name: name.to_owned(),
        kind: String::new(),
    }
}

#[test]
fn labels_are_found_through_every_kind_of_source() {
    let claim = json!({ "name": "root", "persistentVolumeClaim": { "claimName": "c" } });
    let volume = json!({ "name": "root", "dataVolume": { "name": "d" } });
    let none = json!([]);
    let source = |source: Value| json!({ "metadata": {}, "spec": source });
    let template = |labels: Value, spec: Value| json!([{ "metadata": { "name": "d", "labels": labels }, "spec": spec }]);
    let from_claim = json!({ "source": { "pvc": { "namespace": "images", "name": "p" } } });
    let from_source = json!({ "sourceRef": { "kind": "DataSource", "name": "s" } });
    let cases = [
        (&claim, &none, json!({ "PVC here/c": labelled("small") })),
        (
            &volume,
            &none,
            json!({ "DataVolume here/d": labelled("small") }),
        ),
        (&volume, &none, json!({ "PVC here/d": labelled("small") })),
        (
            &volume,
            &none,
            json!({ "DataVolume here/d": source(from_claim.clone()), "PVC images/p": labelled("small") }),
        ),
        (
            &volume,
            &none,
            json!({ "DataVolume here/d": source(json!({ "source": { "snapshot": { "name": "p" } } })), "VolumeSnapshot here/p": labelled("small") }),
        ),
        (
            &volume,
            &none,
            json!({ "DataVolume here/d": source(from_source.clone()), "DataSource here/s": labelled("small") }),
        ),
        (
            &volume,
            &none,
            json!({ "DataVolume here/d": source(from_source.clone()), "DataSource here/s": source(json!({ "source": { "pvc": { "namespace": "images", "name": "p" } } })), "PVC images/p": labelled("small") }),
        ),
        (
            &volume,
            &none,
            json!({ "DataVolume here/d": source(from_source.clone()), "DataSource here/s": source(json!({ "source": { "snapshot": { "namespace": "images", "name": "p" } } })), "VolumeSnapshot images/p": labelled("small") }),
        ),
        (
            &volume,
            &template(json!({ NAME: "small" }), json!({})),
            json!({}),
        ),
        (
            &volume,
            &template(json!({}), from_claim.clone()),
            json!({ "PVC images/p": labelled("small") }),
        ),
        (
            &volume,
            &template(
                json!({}),
                json!({ "sourceRef": { "kind": "datasource", "namespace": "images", "name": "s" } }),
            ),
            json!({ "DataSource images/s": labelled("small") }),
        ),
    ];
    for (volume, templates, cluster) in cases {
        assert_eq!(
            infer(&vm(volume, templates), &cluster),
            found("small"),
            "{cluster}"
        );
    }
}

#[test]
fn missing_label_is_ignorable_and_missing_source_is_fatal() {
    let claim = json!({ "name": "root", "persistentVolumeClaim": { "claimName": "c" } });
    let volume = json!({ "name": "root", "dataVolume": { "name": "d" } });
    let none = json!([]);
    let spec = |spec: Value| json!({ "metadata": {}, "spec": spec });
    let source = spec(json!({ "sourceRef": { "kind": "DataSource", "name": "s" } }));
    for (volume, cluster) in [
        (
            json!({ "name": "root", "containerDisk": { "image": "i" } }),
            json!({}),
        ),
        (claim.clone(), json!({ "PVC here/c": {} })),
        (
            volume.clone(),
            json!({ "DataVolume here/d": spec(json!({ "source": { "blank": {} } })) }),
        ),
        (
            volume.clone(),
            json!({ "DataVolume here/d": source, "DataSource here/s": spec(json!({ "source": { "dataSource": { "namespace": "here", "name": "t" } } })) }),
        ),
    ] {
        let outcome = infer(&vm(&volume, &none), &cluster);
        assert!(matches!(outcome, Outcome::Ignorable(_)), "{outcome:?}");
    }
    for (volume, cluster) in [
        (
            json!({ "name": "other", "persistentVolumeClaim": { "claimName": "c" } }),
            json!({}),
        ),
        (claim, json!({})),
        (volume.clone(), json!({})),
        (volume.clone(), json!({ "DataVolume here/d": source })),
        (
            volume,
            json!({ "DataVolume here/d": spec(json!({ "source": 1 })) }),
        ),
    ] {
        let outcome = infer(&vm(&volume, &none), &cluster);
        assert!(matches!(outcome, Outcome::Fatal(_)), "{outcome:?}");
    }
}

#[test]
fn kind_comes_from_the_second_label() {
    let claim = json!({ "name": "root", "persistentVolumeClaim": { "claimName": "c" } });
    let labels = json!({ NAME: "small", KIND: "VirtualMachineInstancetype" });
    let cluster = json!({ "PVC here/c": { "metadata": { "labels": labels } } });
    let outcome = infer(&vm(&claim, &json!([])), &cluster);
    let wanted = Outcome::Found {
        name: "small".to_owned(),
        kind: "VirtualMachineInstancetype".to_owned(),
    };
    assert_eq!(outcome, wanted);
}

#[test]
fn nothing_is_inferred_for_a_matcher_with_a_name() {
    let claim = json!({ "name": "root", "persistentVolumeClaim": { "claimName": "c" } });
    let mut named = vm(&claim, &json!([]));
    if let Some(matcher) = &mut named.spec.instancetype {
        matcher.name = Some("small".to_owned());
    }
    assert_eq!(first_step(&named, Family::Instancetype), None);
    assert_eq!(first_step(&named, Family::Preference), None);
}

#[test]
fn failure_policy_decides_on_a_missing_label() {
    let claim = json!({ "name": "root", "persistentVolumeClaim": { "claimName": "c" } });
    let resolved = |policy: Option<&str>, outcome: Outcome| {
        let mut vm = vm(&claim, &json!([]));
        if let Some(matcher) = &mut vm.spec.instancetype {
            matcher.infer_from_volume_failure_policy =
                policy.map(InferFromVolumeFailurePolicy::from);
        }
        let inferred = Inferred {
            instancetype: Some(outcome),
            preference: None,
        };
        resolve(&mut vm, &inferred).map(|()| vm.spec)
    };
    let ignorable = || Outcome::Ignorable("has no label".to_owned());
    let fatal = || Outcome::Fatal("does not exist".to_owned());
    assert!(
        resolved(None, ignorable())
            .expect_err("refused")
            .contains("has no label")
    );
    assert!(resolved(Some("Reject"), ignorable()).is_err());
    assert_eq!(
        resolved(Some("Ignore"), ignorable())
            .expect("ignored")
            .instancetype,
        None
    );
    assert!(
        resolved(Some("Ignore"), fatal())
            .expect_err("refused")
            .contains("does not exist")
    );
    let has_memory = |policy| {
        let spec = resolved(policy, found("small")).expect("found");
        let matcher = spec.instancetype.expect("a matcher");
        assert_eq!(matcher.name.as_deref(), Some("small"));
        assert_eq!(matcher.infer_from_volume, None);
        spec.template.spec.expect("a spec").domain.memory.is_some()
    };
    assert!(has_memory(None));
    assert!(!has_memory(Some("Ignore")));
}
