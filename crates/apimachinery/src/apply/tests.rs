//! Behaviour of server-side apply, on a CRD's schema and on pods.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::schema::Schema;

fn schema() -> Arc<Schema> {
    let raw = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "a": {"type": "string"}, "b": {"type": "string"}, "c": {"type": "string"},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {
            "x": {"type": "string"}, "y": {"type": "string"}}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "list": {"type": "array", "items": {"type": "string"}},
        "ports": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"},
                "p": {"type": "integer"}, "q": {"type": "integer"}}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}, "status": {"type": "object", "properties": {"phase": {"type": "string"}}}}});
    Schema::parse(&raw, "").expect("is structural")
}

fn writer<'a>(manager: &'a str, ty: Type<'a>) -> Writer<'a> {
    let now = "2026-01-02T03:04:05Z".parse().expect("is a time");
    Writer {
        manager,
        api_version: "x.io/v1",
        subresource: "",
        ty,
        reset: &[],
        now,
    }
}

fn object(spec: &Value) -> Value {
    json!({"apiVersion": "x.io/v1", "kind": "X", "metadata": {"name": "n"}, "spec": spec})
}

/// Applies each (manager, spec) in turn with `force`, and returns the last spec.
#[track_caller]
fn run(steps: &[(&str, Value)]) -> Value {
    let schema = schema();
    let mut live: Option<Value> = None;
    for (manager, spec) in steps {
        let writer = writer(manager, Type::Custom(&schema));
        let next = apply(&writer, live.as_ref(), &object(spec), Conflicts::TakeOver);
        live = Some(next.expect("applies"));
    }
    live.expect("has steps")["spec"].clone()
}

#[test]
fn omitted_fields_are_removed() {
    let cases = [
        (
            json!({"a": "1", "b": "2"}),
            json!({"a": "1"}),
            json!({"a": "1"}),
        ),
        (
            json!({"map": {"x": "1", "y": "2"}}),
            json!({"map": {"x": "1"}}),
            json!({"map": {"x": "1"}}),
        ),
        (
            json!({"a": "1", "map": {"x": "1"}}),
            json!({"a": "1"}),
            json!({"a": "1"}),
        ),
        (
            json!({"set": ["a", "b"]}),
            json!({"set": ["b"]}),
            json!({"set": ["b"]}),
        ),
        (
            json!({"ports": [{"name": "a", "p": 1}, {"name": "b", "p": 2}]}),
            json!({"ports": [{"name": "b"}]}),
            json!({"ports": [{"name": "b"}]}),
        ),
        // An owned map that loses all of its members is null, as in kube-apiserver.
        (
            json!({"a": "1", "map": {"x": "1"}}),
            json!({"a": "1", "map": {}}),
            json!({"a": "1", "map": null}),
        ),
        (
            json!({"a": "1", "map": {"x": "1"}}),
            json!({"a": "1", "map": null}),
            json!({"a": "1", "map": null}),
        ),
        (
            json!({"a": "1", "set": ["a"]}),
            json!({"a": "1", "set": []}),
            json!({"a": "1"}),
        ),
        (
            json!({"list": ["a", "b"]}),
            json!({"list": ["c"]}),
            json!({"list": ["c"]}),
        ),
        (
            json!({"whole": {"x": "1"}}),
            json!({"whole": {"y": "2"}}),
            json!({"whole": {"y": "2"}}),
        ),
        (
            json!({"free": {"x": {"y": 1}, "z": 1}}),
            json!({"free": {"z": 1}}),
            json!({"free": {"z": 1}}),
        ),
    ];
    for (first, second, expected) in cases {
        let found = run(&[("m", first.clone()), ("m", second.clone())]);
        assert_eq!(found, expected, "{first} then {second}");
    }
}

#[test]
fn fields_of_other_managers_stay() {
    let shared = run(&[
        ("m", json!({"a": "1"})),
        ("o", json!({"a": "1", "b": "2"})),
        ("m", json!({})),
    ]);
    assert_eq!(shared, json!({"a": "1", "b": "2"}));
    let items = run(&[
        ("m", json!({"ports": [{"name": "a", "p": 1}]})),
        (
            "o",
            json!({"ports": [{"name": "b", "q": 1}, {"name": "a", "q": 2}]}),
        ),
        ("m", json!({"a": "1"})),
    ]);
    assert_eq!(
        items,
        json!({"ports": [{"name": "b", "q": 1}, {"name": "a", "q": 2}], "a": "1"})
    );
    let taken = run(&[
        ("m", json!({"a": "1"})),
        ("o", json!({"a": "2"})),
        ("m", json!({"b": "1"})),
    ]);
    assert_eq!(taken, json!({"a": "2", "b": "1"}));
}

#[test]
fn conflicts_name_managers_and_fields() {
    let schema = schema();
    let ty = Type::Custom(&schema);
    let live = apply(
        &writer("m", ty),
        None,
        &object(&json!({"a": "1"})),
        Conflicts::Refuse,
    );
    let live = live.expect("is created");
    let refused = apply(
        &writer("o", ty),
        Some(&live),
        &object(&json!({"a": "2"})),
        Conflicts::Refuse,
    );
    let refused = refused.expect_err("conflicts");
    assert_eq!(refused.code(), 409);
    assert_eq!(
        refused.message(),
        r#"Apply failed with 1 conflict: conflict with "m": .spec.a"#
    );
    assert_eq!(
        refused.to_value()["details"]["causes"],
        json!([{"reason": "FieldManagerConflict", "message": "conflict with \"m\"", "field": ".spec.a"}])
    );

    let mut updated = live.clone();
    updated["spec"] = json!({"a": "1", "b": "1", "ports": [{"name": "x", "p": 1}]});
    managed::update(&writer("u", ty), Some(&live), &mut updated);
    let config = object(&json!({"a": "2", "b": "2", "ports": [{"name": "x", "p": 2}]}));
    let refused = apply(&writer("o", ty), Some(&updated), &config, Conflicts::Refuse);
    assert_eq!(
        refused.expect_err("conflicts").message(),
        "Apply failed with 3 conflicts: conflicts with \"m\":\n- .spec.a\nconflicts with \"u\" using x.io/v1:\n- .spec.b\n- .spec.ports[name=\"x\"].p"
    );
    // An equal value is not a conflict: both managers own it.
    apply(
        &writer("o", ty),
        Some(&live),
        &object(&json!({"a": "1"})),
        Conflicts::Refuse,
    )
    .expect("agrees");
}

#[test]
fn managed_fields_match_kube_apiserver() {
    let schema = schema();
    let ty = Type::Custom(&schema);
    let config = json!({"apiVersion": "x.io/v1", "kind": "X",
        "metadata": {"name": "n", "labels": {"l": "1"}, "creationTimestamp": null},
        "spec": {"map": {"x": "1"}, "set": ["v"], "list": ["a"], "ports": [{"name": "a", "p": 1}]}});
    let live = apply(&writer("m", ty), None, &config, Conflicts::Refuse).expect("applies");
    assert_eq!(
        live["metadata"]["managedFields"],
        json!([{
            "manager": "m", "operation": "Apply", "apiVersion": "x.io/v1",
            "time": "2026-01-02T03:04:05Z", "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {"f:l": {}}},
                "f:spec": {
                    "f:list": {}, "f:map": {"f:x": {}},
                    "f:ports": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:p": {}}},
                    "f:set": {"v:\"v\"": {}},
                },
            },
        }])
    );
    let mut created = json!({"apiVersion": "x.io/v1", "kind": "X", "metadata": {"name": "n", "labels": {"l": "1"}},
        "spec": {"a": "1"}});
    managed::update(&writer("u", ty), None, &mut created);
    assert_eq!(
        created["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:metadata": {"f:labels": {".": {}, "f:l": {}}}, "f:spec": {".": {}, "f:a": {}}})
    );
    let mut status = created.clone();
    status["status"] = json!({"phase": "Running"});
    let by = Writer {
        subresource: "status",
        reset: &["spec", "metadata"],
        ..writer("u", ty)
    };
    managed::update(&by, Some(&created), &mut status);
    let entry = &status["metadata"]["managedFields"][1];
    assert_eq!(entry["subresource"], "status");
    assert_eq!(
        entry["fieldsV1"],
        json!({"f:status": {".": {}, "f:phase": {}}})
    );
}

/// The times are those of a kube-apiserver 1.33 after the same requests.
#[test]
fn time_of_an_applier_is_that_of_its_last_change() {
    let schema = schema();
    let at = |manager, minute: u8| Writer {
        now: format!("2026-01-02T03:{minute:02}:00Z")
            .parse()
            .expect("is a time"),
        ..writer(manager, Type::Custom(&schema))
    };
    let mut live = object(&json!({"a": "1", "b": "2"}));
    managed::update(&at("creator", 0), None, &mut live);
    let times = |live: &Value| -> Vec<(String, Option<String>)> {
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let entries = live["metadata"]["managedFields"].as_array();
        let entry = |one: &Value| {
            let minute = text(&one["time"]).map(|time| time[14..16].to_owned());
            (text(&one["manager"]).expect("has a name"), minute)
        };
        entries.expect("is a list").iter().map(entry).collect()
    };
    // (manager, minute, spec, minute of its entry)
    let steps = [
        ("one", 1, json!({"a": "1"}), None),
        ("one", 2, json!({"a": "1"}), None),
        ("one", 3, json!({"a": "1", "b": "2"}), None),
        ("one", 4, json!({"a": "9", "b": "2"}), Some("04")),
        ("one", 5, json!({"a": "9"}), Some("04")),
        ("two", 6, json!({"a": "9"}), None),
        ("one", 7, json!({}), Some("04")),
        ("three", 8, json!({"c": "1"}), Some("08")),
    ];
    for (manager, minute, spec, expected) in steps {
        let writer = at(manager, minute);
        let next = apply(&writer, Some(&live), &object(&spec), Conflicts::TakeOver);
        live = next.expect("applies");
        let times = times(&live);
        let own = times.iter().find(|(name, _)| name == manager);
        let own = own.and_then(|(_, minute)| minute.as_deref());
        assert_eq!(own, expected, "{manager} at {minute}: {times:?}");
        // Entries without a time come first.
        let appliers = times.iter().filter(|(name, _)| name != "creator");
        assert!(appliers.map(|(_, minute)| minute).is_sorted(), "{times:?}");
        let creator = ("creator".to_owned(), Some("00".to_owned()));
        assert_eq!(times.last(), Some(&creator));
    }
}

#[test]
fn pod_lists_have_the_keys_of_kube_apiserver() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p",
        "ownerReferences": [{"uid": "u", "name": "o", "kind": "K", "apiVersion": "v1"}], "finalizers": ["f"]},
        "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}], "env": [{"name": "E", "value": "v"}]}],
            "nodeSelector": {"a": "b"}}});
    let by = Writer {
        api_version: "v1",
        ..writer("m", Type::built_in("", "Pod"))
    };
    let mut created = pod.clone();
    managed::update(&by, None, &mut created);
    assert_eq!(
        created["metadata"]["managedFields"][0]["fieldsV1"],
        json!({
            "f:metadata": {"f:finalizers": {".": {}, "v:\"f\"": {}}, "f:ownerReferences": {".": {}, "k:{\"uid\":\"u\"}": {}}},
            "f:spec": {
                "f:containers": {"k:{\"name\":\"c\"}": {".": {},
                    "f:env": {".": {}, "k:{\"name\":\"E\"}": {".": {}, "f:name": {}, "f:value": {}}},
                    "f:name": {},
                    "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}},
                "f:nodeSelector": {},
            },
        })
    );
}

#[test]
fn applying_again_changes_nothing() {
    let schema = schema();
    let ty = Type::Custom(&schema);
    let config = object(&json!({"a": "1", "set": ["x"], "free": {"n": {}}}));
    let once = apply(&writer("m", ty), None, &config, Conflicts::Refuse).expect("applies");
    let later = Writer {
        now: "2030-01-01T00:00:00Z".parse().expect("is a time"),
        ..writer("m", ty)
    };
    assert_eq!(
        apply(&later, Some(&once), &config, Conflicts::Refuse).expect("applies"),
        once
    );
}

#[test]
fn system_and_reset_fields_of_clients_are_ignored() {
    let schema = schema();
    let ty = Type::Custom(&schema);
    let live = json!({"apiVersion": "x.io/v1", "kind": "X", "metadata": {"name": "n", "uid": "u",
        "resourceVersion": "5", "creationTimestamp": "t"}, "spec": {"a": "1"}, "status": {"phase": "x"}});
    let by = Writer {
        reset: &["status"],
        ..writer("m", ty)
    };
    let mut config = object(&json!({"b": "1"}));
    config["status"] = json!({"phase": "y"});
    config["metadata"]["resourceVersion"] = "5".into();
    config["metadata"]["uid"] = "other".into();
    let out = apply(&by, Some(&live), &config, Conflicts::Refuse).expect("applies");
    assert_eq!(out["status"], live["status"]);
    assert_eq!(out["metadata"]["uid"], "u");
    assert_eq!(
        out["metadata"]["managedFields"][1]["manager"],
        "before-first-apply"
    );

    let by = Writer {
        subresource: "status",
        reset: &["metadata", "spec"],
        ..writer("s", ty)
    };
    let mut config = object(&json!({"a": "9"}));
    config["status"] = json!({"phase": "z"});
    let status = apply(&by, Some(&out), &config, Conflicts::TakeOver).expect("applies");
    assert_eq!(
        (&status["spec"], &status["status"]),
        (&out["spec"], &json!({"phase": "z"}))
    );
}

#[test]
fn duplicate_list_items_are_rejected() {
    let schema = schema();
    let config = object(&json!({"ports": [{"name": "a"}, {"name": "a"}]}));
    let refused = apply(
        &writer("m", Type::Custom(&schema)),
        None,
        &config,
        Conflicts::Refuse,
    );
    let text = refused.expect_err("is rejected").message().to_owned();
    assert!(
        text.ends_with(r#".spec.ports: duplicate entries for key [name="a"]"#),
        "{text}"
    );
}

#[test]
fn old_updaters_are_folded_into_one() {
    let schema = schema();
    let ty = Type::Custom(&schema);
    let mut live = object(&json!({"map": {}}));
    managed::update(&writer("u0", ty), None, &mut live);
    for n in 1..15 {
        let mut next = live.clone();
        next["spec"]["map"][format!("k{n}")] = "v".into();
        managed::update(&writer(&format!("u{n}"), ty), Some(&live), &mut next);
        live = next;
    }
    let list = live["metadata"]["managedFields"]
        .as_array()
        .expect("is a list")
        .len();
    assert_eq!(list, 11, "ten and ancient-changes");
}

fn any_spec() -> impl Strategy<Value = Value> {
    let text = "[xyz]";
    let map = prop::collection::btree_map("[pq]", text, 0..3);
    let set = prop::collection::btree_set(text, 0..3);
    let ports = prop::collection::btree_map("[ab]", (0..3, prop::option::of(0..3)), 0..3);
    let optional = (prop::option::of(text), prop::option::of(text));
    let parts = (
        optional,
        prop::option::of(map),
        prop::option::of(set),
        prop::option::of(ports),
    );
    parts.prop_map(|((a, b), map, set, ports)| {
        let mut out = json!({});
        for (key, value) in [("a", a), ("b", b)] {
            if let Some(value) = value {
                out[key] = value.into();
            }
        }
        if let Some(map) = map {
            out["map"] = json!(map);
        }
        if let Some(set) = set {
            out["set"] = json!(set);
        }
        if let Some(ports) = ports {
            let item = |(name, (p, q)): (String, (i32, Option<i32>))| match q {
                Some(q) => json!({"name": name, "p": p, "q": q}),
                None => json!({"name": name, "p": p}),
            };
            out["ports"] = ports.into_iter().map(item).collect();
        }
        out
    })
}

fn without_empty(value: &Value) -> Value {
    let is_empty = |value: &Value| {
        value.as_object().is_some_and(serde_json::Map::is_empty)
            || value.as_array().is_some_and(Vec::is_empty)
    };
    let fields = value.as_object().into_iter().flatten();
    let kept = fields.filter(|(_, value)| !is_empty(value));
    Value::Object(
        kept.map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    )
}

proptest! {
    #[test]
    fn sole_manager_gets_its_configuration(first in any_spec(), second in any_spec()) {
        let found = run(&[("m", first), ("m", second.clone())]);
        let set = |value: &Value| FieldSet::of(value, Type::Unknown);
        // Empty lists and maps may stay or not; every leaf must be as applied.
        for path in set(&without_empty(&second)).difference(&set(&found)).paths() {
            prop_assert!(false, "lost {path} of {second} in {found}");
        }
    }

    #[test]
    fn applying_is_idempotent(first in any_spec(), second in any_spec()) {
        let once = run(&[("o", first.clone()), ("m", second.clone())]);
        let twice = run(&[("o", first), ("m", second.clone()), ("m", second)]);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn field_sets_survive_serialization(spec in any_spec()) {
        let schema = schema();
        let set = FieldSet::of(&object(&spec), Type::Custom(&schema));
        prop_assert_eq!(FieldSet::from_value(&set.to_value()), Some(set));
    }

    #[test]
    fn difference_and_intersection_partition_a_set(left in any_spec(), right in any_spec()) {
        let schema = schema();
        let of = |spec: &Value| FieldSet::of(&object(spec), Type::Custom(&schema));
        let (left, right) = (of(&left), of(&right));
        prop_assert_eq!(left.difference(&right).union(&left.intersection(&right)), left.clone());
        prop_assert!(left.difference(&right).intersection(&right).is_empty());
        prop_assert_eq!(left.union(&right), right.union(&left));
    }

    #[test]
    fn diff_of_two_values_patches_one_into_the_other(a in any_spec(), b in any_spec()) {
        let patch = crate::patch::merge::diff(&a, &b).unwrap_or_else(|| json!({}));
        prop_assert_eq!(crate::patch::merge::apply(&a, &patch), b);
    }
}
