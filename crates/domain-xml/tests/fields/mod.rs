//! Every field that changes a domain is in a golden file.
//!
//! The fields are those of the table of API facts. The test removes one field after the other from the rows
//! with a domain, and compares. The fields that change no domain are listed in `unseen.yaml`, each with the
//! reason, so that a new field is either in a golden file or in that list.

#[path = "../../../admission/tests/integration/coverage/facts.rs"]
#[expect(dead_code, reason = "shared with the test that counts members")]
mod facts;

use std::collections::BTreeSet;
use std::fs;

use serde::Deserialize;
use serde_json::Value;

use crate::{directory, domain, object, rows};

/// What a domain is made from.
const PARTS: [&str; 3] = ["spec.domain", "spec.volumes", "spec.networks"];

/// Fields that change no domain.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unseen {
    /// Paths, with `[*]` for the elements of a list.
    fields: Vec<String>,
    why: String,
}

/// The path and the JSON pointer of every member below a value.
fn occurrences(value: &Value, field: &str, pointer: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let field = format!("{field}.{name}");
                let pointer = format!("{pointer}/{name}");
                found.push((field.clone(), pointer.clone()));
                occurrences(value, &field, &pointer, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let pointer = format!("{pointer}/{index}");
                occurrences(item, &format!("{field}[*]"), &pointer, found);
            }
        }
        _ => {}
    }
}

/// The fields whose removal changes the domain of a row.
fn seen(fields: &BTreeSet<String>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    for row in rows().iter().filter(|row| row.error.is_none()) {
        let object = object(row);
        let before = domain(&object, &row.facts).unwrap();
        let mut present = Vec::new();
        occurrences(&object["spec"], "spec", "/spec", &mut present);
        for (field, pointer) in present {
            if seen.contains(&field) || !fields.contains(&field) {
                continue;
            }
            let mut changed = object.clone();
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            let parent = changed.pointer_mut(parent).unwrap();
            parent.as_object_mut().unwrap().remove(name);
            if domain(&changed, &row.facts).as_ref() != Ok(&before) {
                seen.insert(field);
            }
        }
    }
    seen
}

#[test]
fn every_field_that_changes_a_domain_is_in_a_golden_file() {
    let is_part = |field: &String| {
        let mut parts = PARTS.iter();
        parts.any(|part| {
            field
                .strip_prefix(part)
                .is_some_and(|rest| rest.starts_with(['.', '[']))
        })
    };
    let fields: BTreeSet<String> = facts::fields().into_iter().filter(is_part).collect();
    assert!(fields.len() > 300, "{} fields", fields.len());
    let list = fs::read_to_string(directory("fields/unseen.yaml")).unwrap();
    let list: Vec<Unseen> = serde_saphyr::from_str(&list).unwrap();
    let without_reason: Vec<_> = list.iter().filter(|row| row.why.is_empty()).collect();
    assert!(without_reason.is_empty(), "{without_reason:?}");
    let listed = list.iter().flat_map(|row| &row.fields);
    let unique: BTreeSet<&String> = listed.clone().collect();
    assert_eq!(unique.len(), listed.count(), "a field is listed twice");
    let seen = seen(&fields);
    let unseen: BTreeSet<&String> = fields.difference(&seen).collect();
    let missing: Vec<_> = unseen.difference(&unique).collect();
    assert_eq!(
        missing, [&&""; 0],
        "add a row to cases/, or list them in fields/unseen.yaml"
    );
    let obsolete: Vec<_> = unique.difference(&unseen).collect();
    assert_eq!(
        obsolete, [&&""; 0],
        "they change a domain, or are no fields"
    );
}
