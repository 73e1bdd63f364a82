//! Rules on values, transitions and messages.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Rule;
use crate::{Violation, schema::Schema};

fn schema(raw: &Value) -> Arc<Schema> {
    Schema::parse(raw, "").unwrap_or_else(|wrong| panic!("{wrong:?}"))
}

fn violations(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<String> {
    schema
        .validate_rules(object, old, &[])
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn with_rule(spec: &Value, rule: &Value) -> Arc<Schema> {
    let mut spec = spec.clone();
    spec["x-kubernetes-validations"] = json!([rule]);
    schema(&json!({"type": "object", "properties": {"x": spec}}))
}

#[test]
fn rules_see_values_converted_by_schema() {
    let check = |spec: Value, rule: &str, good: Value, bad: Value| {
        let schema = with_rule(&spec, &json!({"rule": rule, "message": "no"}));
        assert!(
            violations(&schema, &json!({"x": good}), None).is_empty(),
            "{rule}: {:?}",
            violations(&schema, &json!({"x": good}), None)
        );
        let found = violations(&schema, &json!({"x": bad}), None);
        assert_eq!(found.len(), 1, "{rule}: {bad}: {found:?}");
        assert!(found[0].ends_with(": no"), "{rule}: {found:?}");
    };
    let text = || json!({"type": "string"});
    check(text(), "self.startsWith('/')", json!("/a"), json!("a"));
    check(text(), "self.matches('^[a-z]+$')", json!("a"), json!("A"));
    check(text(), "self.size() < 3", json!("ä"), json!("abc"));
    check(json!({"type": "number"}), "self < 1.5", json!(1), json!(2));
    check(
        json!({"type": "string", "format": "duration"}),
        "self <= duration('1h')",
        json!("60m"),
        json!("2h"),
    );
    check(
        json!({"type": "string", "format": "date-time"}),
        "self.getFullYear() == 2026",
        json!("2026-01-02T03:04:05Z"),
        json!("2025-01-02T03:04:05Z"),
    );
    check(
        json!({"x-kubernetes-int-or-string": true}),
        "type(self) == int ? self > 0 : self.endsWith('%')",
        json!("5%"),
        json!(0),
    );
    check(
        json!({"type": "array", "items": {"type": "string"}}),
        "self.all(a, self.exists_one(b, a == b))",
        json!(["a", "b"]),
        json!(["a", "a"]),
    );
    check(
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        "self.all(key, key == 'a-b' && self[key] == 'c')",
        json!({"a-b": "c"}),
        json!({"a-b": "d"}),
    );
    check(
        json!({"type": "object", "properties": {"a-b": {"type": "string"},
            "namespace": {"type": "string"}, "c": {"type": "string"}}}),
        "has(self.a__dash__b) && has(self.__namespace__) && !has(self.c)",
        json!({"a-b": "", "namespace": ""}),
        json!({"a-b": "", "namespace": "", "c": ""}),
    );
    check(
        json!({"type": "object", "properties": {"namespace": {"type": "string"}}}),
        "has(self.namespace) && size(self.namespace) > 0 && self.namespace == self.__namespace__",
        json!({"namespace": "a"}),
        json!({"namespace": ""}),
    );
    check(
        text(),
        "quantity(self).isGreaterThan(quantity('1Gi'))",
        json!("2Gi"),
        json!("1Mi"),
    );
}

#[test]
fn transition_rules_need_an_old_value() {
    let spec = json!({"type": "string"});
    let schema = with_rule(&spec, &json!({"rule": "self == oldSelf"}));
    let (new, old) = (json!({"x": "b"}), json!({"x": "a"}));
    assert!(violations(&schema, &new, None).is_empty());
    assert!(violations(&schema, &new, Some(&json!({}))).is_empty());
    assert_eq!(
        violations(&schema, &new, Some(&old)),
        ["x: Invalid value: \"b\": failed rule: self == oldSelf"]
    );
    let schema = with_rule(
        &spec,
        &json!({"rule": "oldSelf.hasValue() && oldSelf.value() == 'a'",
                "optionalOldSelf": true}),
    );
    assert_eq!(violations(&schema, &new, None).len(), 1);
    assert!(violations(&schema, &new, Some(&old)).is_empty());
}

#[test]
fn violations_have_the_reason_and_field_of_the_rule() {
    let schema = schema(
        &json!({"type": "object", "properties": {"a": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.a > 1", "fieldPath": ".a",
            "reason": "FieldValueForbidden",
            "messageExpression": "'not ' + string(self.a)"}]}),
    );
    assert_eq!(
        violations(&schema, &json!({"a": 1}), None),
        ["a: Forbidden: not 1"]
    );
}

#[test]
fn structural_errors_prevent_rules() {
    let schema = with_rule(&json!({"type": "string"}), &json!({"rule": "false"}));
    let object = json!({"x": "a"});
    let hidden = |found: Violation| schema.validate_rules(&object, None, &[found])[0].to_string();
    let text = "<nil>: Invalid value: null: some validation rules were not checked";
    assert!(hidden(Violation::required("y", "")).starts_with(text));
    assert!(!hidden(Violation::invalid("y", 1, "")).starts_with(text));
}

#[test]
fn nested_loops_over_large_lists_are_rejected_unevaluated() {
    let spec = json!({"type": "array", "items": {"type": "integer"}});
    let schema = with_rule(
        &spec,
        &json!({"rule": "self.all(a, self.all(b, self.all(c, a + b + c > 0)))"}),
    );
    let items: Vec<u32> = (1..2_000).collect();
    let found = violations(&schema, &json!({"x": items}), None);
    assert_eq!(
        found,
        ["x: Invalid value: rule evaluation error: call cost exceeds limit for rule"]
    );
}

#[test]
fn invalid_rules_have_compile_errors() {
    for bad in ["1 +", "Thing{a: 1}"] {
        assert!(
            Rule::read(&json!({"rule": bad})).compile_error().is_some(),
            "{bad}"
        );
    }
    assert!(
        Rule::read(&json!({"rule": "self == 1"}))
            .compile_error()
            .is_none()
    );
}
