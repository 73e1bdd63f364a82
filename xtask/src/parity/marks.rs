//! Marks of a field's schema: null, lists, defaults, bounds, rules.
//!
//! Bounds and patterns beyond those of the table are not a difference: a definition may refuse early
//! what would be refused later anyway.

use serde_json::{Value, json};

use super::node::Node;

/// Marks of a row that the schema lacks.
pub(super) fn lacking(marks: &[String], node: &Node) -> Vec<String> {
    let mut gaps: Vec<String> = marks
        .iter()
        .filter_map(|mark| missing(mark, node))
        .collect();
    gaps.extend(list_keys(marks, node));
    let rules = marks.iter().filter(|mark| mark.starts_with("rule: "));
    let (wanted, found) = (rules.count(), validations(node));
    if found < wanted {
        gaps.push(format!("has {found} rules, the table {wanted}"));
    }
    gaps
}

/// Markers of the schema that neither the row of the field nor that of its type has.
pub(super) fn surplus(marks: &[&String], node: &Node) -> Vec<String> {
    let has = |start: &str| marks.iter().any(|mark| mark.starts_with(start));
    [
        ("nullable", "nullable"),
        ("x-kubernetes-preserve-unknown-fields", "keeps unknown"),
        ("x-kubernetes-list-type", "listType="),
        ("x-kubernetes-list-map-keys", "listMapKey="),
        ("default", "default="),
    ]
    .into_iter()
    .filter(|(key, start)| !node.get(key).is_null() && !has(start))
    .map(|(key, _)| format!("has {key} {}, the table has none", node.get(key)))
    .collect()
}

fn missing(mark: &str, node: &Node) -> Option<String> {
    let is_there = match mark.split_once('=') {
        None => match mark {
            "nullable" => node.is_marked("nullable"),
            "keeps unknown fields" => node.is_marked("x-kubernetes-preserve-unknown-fields"),
            "has a CEL rule" => validations(node) > 0,
            _ => true,
        },
        Some(("listType", kind)) => *node.get("x-kubernetes-list-type") == kind,
        Some(("default", value)) => {
            let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
            *node.get("default") == value
        }
        Some(("Pattern", pattern)) => *node.get("pattern") == pattern.trim_matches('`'),
        Some(("Format", format)) => node.format() == format,
        Some((bound, value)) => match bound_key(bound) {
            Some(key) => value
                .parse()
                .is_ok_and(|bound: f64| node.get(key).as_f64() == Some(bound)),
            None => true,
        },
    };
    (!is_there).then(|| format!("lacks {mark}"))
}

fn bound_key(mark: &str) -> Option<&'static str> {
    Some(match mark {
        "Minimum" => "minimum",
        "Maximum" => "maximum",
        "MinLength" => "minLength",
        "MaxLength" => "maxLength",
        "MinItems" => "minItems",
        "MaxItems" => "maxItems",
        _ => return None,
    })
}

fn list_keys(marks: &[String], node: &Node) -> Option<String> {
    let wanted: Vec<Value> = marks
        .iter()
        .filter_map(|mark| mark.strip_prefix("listMapKey="))
        .map(|key| json!(key))
        .collect();
    let found = node.get("x-kubernetes-list-map-keys");
    let differ = !wanted.is_empty() && *found != Value::Array(wanted.clone());
    differ.then(|| format!("list keys are {found}, not {}", Value::Array(wanted)))
}

fn validations(node: &Node) -> usize {
    let rules = node.get("x-kubernetes-validations").as_array();
    rules.map_or(0, Vec::len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parity::node::Definitions;

    #[test]
    fn marks_are_compared_both_ways() {
        let check = |marks: &[&str], schema: Value| {
            let marks: Vec<String> = marks.iter().map(|mark| (*mark).to_owned()).collect();
            let node = Node::open(&schema, &Definitions::new());
            let all: Vec<&String> = marks.iter().collect();
            lacking(&marks, &node).len() + surplus(&all, &node).len()
        };
        assert_eq!(check(&["nullable"], json!({ "nullable": true })), 0);
        assert_eq!(check(&["nullable"], json!({})), 1);
        assert_eq!(check(&[], json!({ "nullable": true })), 1);
        let keyed = json!({ "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"] });
        assert_eq!(check(&["listType=map", "listMapKey=a"], keyed.clone()), 0);
        assert_eq!(check(&["listType=map", "listMapKey=b"], keyed.clone()), 1);
        assert_eq!(check(&["listType=atomic"], keyed), 2);
        assert_eq!(check(&["Minimum=1; Maximum=5"], json!({})), 1);
        assert_eq!(check(&["Minimum=1"], json!({ "minimum": 1 })), 0);
        assert_eq!(check(&["default=true"], json!({ "default": true })), 0);
        assert_eq!(
            check(&["default=Stopped"], json!({ "default": "Stopped" })),
            0
        );
        assert_eq!(check(&["Pattern=`^a$`"], json!({ "pattern": "^a$" })), 0);
        let rule = json!({ "x-kubernetes-validations": [{ "rule": "true" }] });
        assert_eq!(check(&["rule: x"], rule.clone()), 0);
        assert_eq!(check(&["rule: x", "rule: y"], rule), 1);
    }
}
