//! Ways from a volume to a name, over clusters given as data: kind and place to object.

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

/// Walks the whole way; `cluster` has objects by what they are shown as.
fn walk(vm: &VirtualMachine, cluster: &Value) -> Outcome {
    let mut next = begin(vm, Family::Instancetype).expect("something to infer");
    for _ in 0..10 {
        match next {
            Next::End(outcome) => return outcome,
            Next::Look(place) => {
                next = after(&place, cluster.get(place.shown()), Family::Instancetype);
            }
        }
    }
    panic!("no end");
}

fn found(name: &str) -> Outcome {
    Outcome::Found {
        name: name.to_owned(),
        kind: String::new(),
    }
}

#[test]
fn labels_are_found_along_every_way() {
    let claim = json!({ "name": "root", "persistentVolumeClaim": { "claimName": "c" } });
    let volume = json!({ "name": "root", "dataVolume": { "name": "d" } });
    let none = json!([]);
    let source = |source: Value| json!({ "metadata": {}, "spec": source });
    let template = |labels: Value, spec: Value| json!([{ "metadata": { "name": "d", "labels": labels }, "spec": spec }]);
    let from_claim = json!({ "source": { "pvc": { "namespace": "images", "name": "p" } } });
    let from_source = json!({ "sourceRef": { "kind": "DataSource", "name": "s" } });
    let cases = [
        (&claim, &none, json!({ "claim here/c": labelled("small") })),
        (
            &volume,
            &none,
            json!({ "data volume here/d": labelled("small") }),
        ),
        (&volume, &none, json!({ "claim here/d": labelled("small") })),
        (
            &volume,
            &none,
            json!({ "data volume here/d": source(from_claim.clone()), "claim images/p": labelled("small") }),
        ),
        (
            &volume,
            &none,
            json!({ "data volume here/d": source(json!({ "source": { "snapshot": { "name": "p" } } })), "volume snapshot here/p": labelled("small") }),
        ),
        (
            &volume,
            &none,
            json!({ "data volume here/d": source(from_source.clone()), "data source here/s": labelled("small") }),
        ),
        (
            &volume,
            &none,
            json!({ "data volume here/d": source(from_source.clone()), "data source here/s": source(json!({ "source": { "pvc": { "namespace": "images", "name": "p" } } })), "claim images/p": labelled("small") }),
        ),
        (
            &volume,
            &none,
            json!({ "data volume here/d": source(from_source.clone()), "data source here/s": source(json!({ "source": { "snapshot": { "namespace": "images", "name": "p" } } })), "volume snapshot images/p": labelled("small") }),
        ),
        (
            &volume,
            &template(json!({ NAME: "small" }), json!({})),
            json!({}),
        ),
        (
            &volume,
            &template(json!({}), from_claim.clone()),
            json!({ "claim images/p": labelled("small") }),
        ),
        (
            &volume,
            &template(
                json!({}),
                json!({ "sourceRef": { "kind": "datasource", "namespace": "images", "name": "s" } }),
            ),
            json!({ "data source images/s": labelled("small") }),
        ),
    ];
    for (volume, templates, cluster) in cases {
        assert_eq!(
            walk(&vm(volume, templates), &cluster),
            found("small"),
            "{cluster}"
        );
    }
}

#[test]
fn what_cannot_say_is_silent_and_what_is_not_there_is_broken() {
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
        (claim.clone(), json!({ "claim here/c": {} })),
        (
            volume.clone(),
            json!({ "data volume here/d": spec(json!({ "source": { "blank": {} } })) }),
        ),
        (
            volume.clone(),
            json!({ "data volume here/d": source, "data source here/s": spec(json!({ "source": { "dataSource": { "namespace": "here", "name": "t" } } })) }),
        ),
    ] {
        let outcome = walk(&vm(&volume, &none), &cluster);
        assert!(matches!(outcome, Outcome::Silent(_)), "{outcome:?}");
    }
    for (volume, cluster) in [
        (
            json!({ "name": "other", "persistentVolumeClaim": { "claimName": "c" } }),
            json!({}),
        ),
        (claim, json!({})),
        (volume.clone(), json!({})),
        (volume.clone(), json!({ "data volume here/d": source })),
        (
            volume,
            json!({ "data volume here/d": spec(json!({ "source": 1 })) }),
        ),
    ] {
        let outcome = walk(&vm(&volume, &none), &cluster);
        assert!(matches!(outcome, Outcome::Broken(_)), "{outcome:?}");
    }
}

#[test]
fn kind_comes_from_the_second_label() {
    let claim = json!({ "name": "root", "persistentVolumeClaim": { "claimName": "c" } });
    let labels = json!({ NAME: "small", KIND: "VirtualMachineInstancetype" });
    let cluster = json!({ "claim here/c": { "metadata": { "labels": labels } } });
    let outcome = walk(&vm(&claim, &json!([])), &cluster);
    let wanted = Outcome::Found {
        name: "small".to_owned(),
        kind: "VirtualMachineInstancetype".to_owned(),
    };
    assert_eq!(outcome, wanted);
}

#[test]
fn nothing_is_inferred_for_a_matcher_that_names_something() {
    let claim = json!({ "name": "root", "persistentVolumeClaim": { "claimName": "c" } });
    let mut named = vm(&claim, &json!([]));
    if let Some(matcher) = &mut named.spec.instancetype {
        matcher.name = Some("small".to_owned());
    }
    assert_eq!(begin(&named, Family::Instancetype), None);
    assert_eq!(begin(&named, Family::Preference), None);
}

#[test]
fn policy_decides_what_becomes_of_a_source_that_cannot_say() {
    let claim = json!({ "name": "root", "persistentVolumeClaim": { "claimName": "c" } });
    let settled = |policy: Option<&str>, outcome: Outcome| {
        let mut vm = vm(&claim, &json!([]));
        if let Some(matcher) = &mut vm.spec.instancetype {
            matcher.infer_from_volume_failure_policy =
                policy.map(InferFromVolumeFailurePolicy::from);
        }
        let inferred = Inferred {
            instancetype: Some(outcome),
            preference: None,
        };
        settle(&mut vm, &inferred).map(|()| vm.spec)
    };
    let silent = || Outcome::Silent("says nothing".to_owned());
    let broken = || Outcome::Broken("is not there".to_owned());
    assert!(
        settled(None, silent())
            .expect_err("refused")
            .contains("says nothing")
    );
    assert!(settled(Some("Reject"), silent()).is_err());
    assert_eq!(
        settled(Some("Ignore"), silent())
            .expect("goes without")
            .instancetype,
        None
    );
    assert!(
        settled(Some("Ignore"), broken())
            .expect_err("refused")
            .contains("is not there")
    );
    let has_memory = |policy| {
        let spec = settled(policy, found("small")).expect("found");
        let matcher = spec.instancetype.expect("a matcher");
        assert_eq!(matcher.name.as_deref(), Some("small"));
        assert_eq!(matcher.infer_from_volume, None);
        spec.template.spec.expect("a spec").domain.memory.is_some()
    };
    assert!(has_memory(None));
    assert!(!has_memory(Some("Ignore")));
}
