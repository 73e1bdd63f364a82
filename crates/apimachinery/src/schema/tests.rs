//! Table tests over one schema that has a bit of everything.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn schema() -> Arc<Schema> {
    let raw = json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
                    "running": {"type": "boolean", "default": false},
                    "strategy": {"type": "string", "enum": ["Always", "Halted"]},
                    "count": {"type": "integer", "minimum": 1, "maximum": 10},
                    "ratio": {"type": "number", "exclusiveMaximum": true, "maximum": 1},
                    "memory": {"anyOf": [{"type": "integer"}, {"type": "string"}],
                        "x-kubernetes-int-or-string": true, "pattern": "^[0-9]+[KM]?i?$"},
                    "since": {"type": "string", "format": "date-time"},
                    "note": {"type": "string", "nullable": true, "default": "x"},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                        "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}}},
                    "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                        "properties": {"spec": {"type": "object"}}},
                    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "ports": {"type": "array", "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["port", "protocol"], "minItems": 1, "maxItems": 2,
                        "items": {"type": "object", "required": ["port"], "properties": {
                            "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}}}},
                    "either": {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
                        "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
                },
            },
        },
    });
    Schema::parse(&raw, "schema").expect("is structural")
}

#[track_caller]
fn wrong(spec: &Value, expected: &[&str]) {
    let found = schema().validate(&json!({"spec": spec}));
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected, "{spec}");
}

#[test]
fn violations_match_kube_apiserver() {
    wrong(&json!({"name": "abc"}), &[]);
    wrong(&json!({}), &["spec.name: Required value"]);
    wrong(
        &json!({"name": "abc", "running": "yes"}),
        &[
            r#"spec.running: Invalid value: "string": spec.running in body must be of type boolean: "string""#,
        ],
    );
    wrong(
        &json!({"name": "abc", "strategy": "x"}),
        &[r#"spec.strategy: Unsupported value: "x": supported values: "Always", "Halted""#],
    );
    wrong(
        &json!({"name": "a", "count": 11}),
        &[
            r#"spec.name: Invalid value: "a": spec.name in body should be at least 2 chars long"#,
            "spec.count: Invalid value: 11: spec.count in body should be less than or equal to 10",
        ],
    );
    wrong(
        &json!({"name": "ABCDE"}),
        &["spec.name: Too long: may not be more than 4 bytes"],
    );
    wrong(
        &json!({"name": "abc", "count": 1.5}),
        &[
            r#"<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.count"#,
            r#"spec.count: Invalid value: "number": spec.count in body must be of type integer: "number""#,
        ],
    );
    wrong(&json!({"name": "abc", "count": 2.0}), &[]);
    wrong(
        &json!({"name": "abc", "ratio": 1}),
        &["spec.ratio: Invalid value: 1: spec.ratio in body should be less than 1"],
    );
    wrong(&json!({"name": "abc", "memory": "64Mi", "note": null}), &[]);
    wrong(
        &json!({"name": null}),
        &[r#"spec.name: Invalid value: "null": spec.name in body must be of type string: "null""#],
    );
    wrong(
        &json!({"name": "abc", "since": "now"}),
        &[
            r#"spec.since: Invalid value: "now": spec.since in body must be of type date-time: "now""#,
        ],
    );
    wrong(
        &json!({"name": "abc", "labels": {"a": "b", "c": 1}}),
        &[
            "spec.labels: Too many: 2: must have at most 1 items",
            r#"spec.labels.c: Invalid value: "integer": spec.labels.c in body must be of type string: "integer""#,
        ],
    );
    wrong(
        &json!({"name": "abc", "ports": []}),
        &["spec.ports: Invalid value: 0: spec.ports in body should have at least 1 items"],
    );
    wrong(
        &json!({"name": "abc", "ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}, {}]}),
        &[
            "spec.ports: Too many: 3: must have at most 2 items",
            "spec.ports[2].port: Required value",
            r#"spec.ports[1]: Duplicate value: {"port":1,"protocol":"TCP"}"#,
        ],
    );
    wrong(
        &json!({"name": "abc", "set": ["a", "a"]}),
        &[r#"spec.set[1]: Duplicate value: "a""#],
    );
    wrong(
        &json!({"name": "abc", "either": {}}),
        &[
            r#"<nil>: Invalid value: "": "spec.either" must validate one and only one schema (oneOf). Found none valid"#,
            "spec.either.a: Required value",
        ],
    );
}

#[test]
fn unknown_fields_are_pruned_and_reported() {
    let mut object = json!({
        "apiVersion": "v1", "kind": "K", "status": {},
        "metadata": {"name": "x", "bogus": 1},
        "spec": {"foo": 1, "free": {"any": {"x": 1}, "known": {"a": "", "b": ""}},
            "template": {"apiVersion": "v1", "kind": "P", "metadata": {"name": "x"}, "spec": {"x": 1}, "y": 1},
            "ports": [{"port": 1, "x": 2}], "labels": {"k": "v"}},
    });
    let removed = schema().prune(&mut object);
    assert_eq!(
        removed,
        [
            "metadata.bogus",
            "spec.foo",
            "spec.free.known.b",
            "spec.ports[0].x",
            "spec.template.spec.x",
            "spec.template.y",
            "status",
        ]
    );
    assert_eq!(
        object["spec"]["free"],
        json!({"any": {"x": 1}, "known": {"a": ""}})
    );
    assert_eq!(object["spec"]["template"]["metadata"], json!({"name": "x"}));
    assert_eq!(object["metadata"], json!({"name": "x"}));
    assert_eq!(
        strict_error(&["spec.foo".to_owned()]),
        r#"strict decoding error: unknown field "spec.foo""#
    );
}

#[test]
fn defaults_fill_absent_fields() {
    let mut object = json!({"spec": {"running": null, "note": null, "ports": [{"port": 1}]}});
    schema().fill_defaults(&mut object);
    assert_eq!(
        object["spec"],
        json!({"running": false, "note": null, "ports": [{"port": 1, "protocol": "TCP"}]})
    );
}

#[test]
fn schemas_that_are_not_structural_are_rejected() {
    let cases = [
        (
            json!({}),
            "s.type: Required value: must not be empty at the root",
        ),
        (
            json!({"type": "object", "properties": {"a": {}}}),
            "s.properties[a].type: Required value: must not be empty for specified object fields",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array"}}}),
            "s.properties[a].items: Required value: must be specified",
        ),
        (
            json!({"type": "object", "$ref": "#"}),
            "s.$ref: Forbidden: $ref is not supported",
        ),
    ];
    for (raw, expected) in cases {
        let wrong = Schema::parse(&raw, "s").expect_err("is rejected");
        assert_eq!(
            wrong.first().map(ToString::to_string).as_deref(),
            Some(expected)
        );
    }
}

#[test]
fn references_are_inlined_and_recursion_is_cut_off() {
    let raw = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/A", "description": "d"}},
        "$defs": {"A": {"type": "object", "properties": {"next": {"$ref": "#/$defs/A"}}}}});
    let flat = inline(&raw);
    assert_eq!(flat["properties"]["a"]["description"], "d");
    assert_eq!(
        flat["properties"]["a"]["properties"]["next"],
        json!({"x-kubernetes-preserve-unknown-fields": true})
    );
    assert_eq!(
        Schema::lenient(&raw).unknown_fields(&json!({"a": {"z": 1}})),
        ["a.z"]
    );
    let any = json!({"type": "object", "properties": {"raw": {"type": "object"}}});
    assert!(
        Schema::lenient(&any)
            .unknown_fields(&json!({"raw": {"z": 1}}))
            .is_empty()
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(
                "name|running|ports|port|labels|free|template|known|spec|[a-c]",
                inner,
                0..5
            )
            .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn pruning_is_idempotent(spec in any_json()) {
        let mut once = json!({"spec": spec});
        schema().prune(&mut once);
        let mut twice = once.clone();
        prop_assert!(schema().prune(&mut twice).is_empty());
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn defaulting_is_idempotent(spec in any_json()) {
        let mut once = json!({"spec": spec});
        schema().fill_defaults(&mut once);
        let mut twice = once.clone();
        schema().fill_defaults(&mut twice);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn validation_never_panics(object in any_json()) {
        schema().validate(&object);
    }
}

#[test]
fn identical_parts_are_shared() {
    let part = |pattern: &str, default: &str| {
        json!({"type": "object", "description": default, "properties": {
            "size": {"type": "string", "pattern": pattern, "default": default},
            "list": {"type": "array", "items": {"type": "integer", "minimum": 1}}}})
    };
    let raw = |right: Value| json!({"type": "object", "properties": {"left": part("^a$", "a"), "right": right}});
    let mut shared = Interner::default();
    let mut parse = |raw: &Value| Schema::parse_shared(raw, "", &mut shared).expect("structural");
    let at = |schema: &Arc<Schema>, path: &[&str]| -> *const Schema {
        let mut at: &Schema = schema;
        for name in path {
            at = at.child(name).expect("is there");
        }
        at
    };
    let mut same_but_for_description = part("^a$", "a");
    same_but_for_description["description"] = "another description".into();
    let one = parse(&raw(same_but_for_description));
    assert_eq!(at(&one, &["left"]), at(&one, &["right"]));
    let two = parse(&raw(part("^b$", "a")));
    assert_eq!(at(&one, &["left"]), at(&two, &["left"]));
    assert_ne!(at(&two, &["left"]), at(&two, &["right"]));
    assert_ne!(at(&two, &["left", "size"]), at(&two, &["right", "size"]));
    assert_eq!(at(&two, &["left", "list"]), at(&two, &["right", "list"]));
    let three = parse(&raw(part("^a$", "b")));
    assert_ne!(
        at(&three, &["left", "size"]),
        at(&three, &["right", "size"])
    );
}

proptest! {
    /// Parsing with a shared interner gives the same schema as parsing alone.
    #[test]
    fn sharing_does_not_change_validation(seeds in proptest::collection::vec(0..6u8, 1..6)) {
        let bounds = |seed: u8| json!({"type": "object", "properties": {
            "a": {"type": "integer", "minimum": seed % 3},
            "b": {"type": "array", "items": {"type": "integer", "maximum": seed / 3}}}});
        let mut shared = Interner::default();
        for seed in seeds {
            let raw = bounds(seed);
            let crowded = Schema::parse_shared(&raw, "", &mut shared).expect("structural");
            let alone = Schema::parse(&raw, "").expect("structural");
            for value in 0..3 {
                let object = json!({"a": value, "b": [value]});
                prop_assert_eq!(crowded.validate(&object), alone.validate(&object));
            }
        }
    }
}
