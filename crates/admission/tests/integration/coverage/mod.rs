//! Every field of a VMI's spec does something that a test sees, or says why it does not.
//!
//! The fields are those of the table of API facts. The test takes guests with golden files, removes one
//! field after the other, and compares: a field has an effect if the domain, the pod, the network plan or
//! the defaults of another field change. Fields of the table of unsupported ones keep the guest from starting,
//! those of the table of fields without effect give a warning. The others are rows of `tests/fields.yaml`, which name the test of an effect elsewhere, or the
//! reason why there is none.

mod effects;
pub(crate) mod facts;
mod guests;

use std::collections::{BTreeMap, BTreeSet};
use std::{fs, path::Path};

use admission::rules;
use model::unsupported::{FIELDS, WITHOUT_EFFECT};
use serde::Deserialize;
use serde_json::Value;

use self::effects::{Effect, Outcome};

/// Fields whose effect the comparison cannot see.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Row {
    /// Paths, with `[*]` for the elements of a list.
    fields: Vec<String>,
    /// What the fields do, or why they do nothing.
    why: String,
    /// `FILE::FUNCTION` of a test that shows the effect.
    test: Option<String>,
    /// Id of the rule of admission that alone reads the fields.
    rule: Option<String>,
}

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn documented() -> Vec<Row> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fields.yaml");
    serde_saphyr::from_str(&fs::read_to_string(file).expect("a table")).expect("rows")
}

/// The effect of every field that has one in a guest.
fn effects(fields: &BTreeSet<String>) -> BTreeMap<String, Effect> {
    let mut found: BTreeMap<String, Effect> = BTreeMap::new();
    for (rows, effect) in [
        (FIELDS, Effect::Unsupported),
        (WITHOUT_EFFECT, Effect::Warning),
    ] {
        let is_in_table = |field: &&String| rows.iter().any(|row| is_at_or_below(field, row.path));
        found.extend(
            fields
                .iter()
                .filter(is_in_table)
                .map(|field| (field.clone(), effect)),
        );
    }
    for guest in guests::all() {
        let present = occurrences(&guest.object["spec"]);
        let mut before = None;
        for (field, pointer) in present {
            if found.contains_key(&field) || !fields.contains(&field) {
                continue;
            }
            let before = before.get_or_insert_with(|| Outcome::of(&guest, None));
            let mut changed = guest.clone();
            remove(&mut changed.object["spec"], &pointer);
            if let Some(effect) = before.effect_of(&pointer, &guest, &changed) {
                found.insert(field, effect);
            }
        }
    }
    found
}

/// Whether a field of the spec is that of a row of a table, or below it.
fn is_at_or_below(field: &str, row: &str) -> bool {
    let row = row.trim_end_matches("[*]");
    let rest = field
        .strip_prefix("spec.")
        .and_then(|field| field.strip_prefix(row));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The path and the JSON pointer of every member of a spec.
pub(crate) fn occurrences(spec: &Value) -> Vec<(String, String)> {
    fn walk(value: &Value, field: &str, pointer: &str, found: &mut Vec<(String, String)>) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    let field = format!("{field}.{name}");
                    let pointer = format!("{pointer}/{name}");
                    found.push((field.clone(), pointer.clone()));
                    walk(value, &field, &pointer, found);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    walk(
                        item,
                        &format!("{field}[*]"),
                        &format!("{pointer}/{index}"),
                        found,
                    );
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(spec, "spec", "", &mut found);
    found
}

fn remove(spec: &mut Value, pointer: &str) {
    let (parent, name) = pointer.rsplit_once('/').expect("a member");
    if let Some(Value::Object(members)) = spec.pointer_mut(parent) {
        members.remove(name);
    }
}

/// A row without a reason, or whose test or rule does not exist.
fn problems(row: &Row) -> Vec<String> {
    let mut problems = Vec::new();
    if row.why.is_empty() {
        problems.push(format!("{:?} has no reason", row.fields));
    }
    if let Some(rule) = &row.rule
        && rules::all().iter().all(|known| known.id != rule)
    {
        problems.push(format!("{rule} is not a rule"));
    }
    let Some(test) = &row.test else {
        return problems;
    };
    let (file, function) = test.split_once("::").expect("FILE::FUNCTION");
    let Ok(text) = fs::read_to_string(root().join(file)) else {
        return vec![format!("{file} does not exist")];
    };
    if !text.contains(&format!("fn {function}(")) {
        problems.push(format!("{file} has no {function}"));
    }
    problems
}

/// Rows about fields that do not exist, or whose effect a guest shows.
fn faults(
    table: &[Row],
    fields: &BTreeSet<String>,
    effects: &BTreeMap<String, Effect>,
) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut seen = BTreeSet::new();
    for row in table {
        all.extend(problems(row));
        for field in &row.fields {
            if !fields.contains(field) {
                all.push(format!("{field} is not a field"));
            }
            if let Some(effect) = effects.get(field) {
                all.push(format!("{field} has an effect: {effect:?}; remove its row"));
            }
            if !seen.insert(field.clone()) {
                all.push(format!("{field} has two rows"));
            }
        }
    }
    all
}

#[test]
fn every_field_of_the_spec_has_an_effect_or_a_reason() {
    let fields = facts::fields();
    assert!(fields.len() > 300, "{} fields", fields.len());
    let effects = effects(&fields);
    let table = documented();
    let documented: BTreeSet<&String> = table.iter().flat_map(|row| &row.fields).collect();
    let mut count: BTreeMap<Effect, usize> = BTreeMap::new();
    for effect in effects.values() {
        *count.entry(*effect).or_default() += 1;
    }
    let is_known = |field: &&String| effects.contains_key(*field) || documented.contains(field);
    let uncovered: Vec<&String> = fields.iter().filter(|field| !is_known(field)).collect();
    println!(
        "fields: {}, with an effect: {count:?}, documented: {}, not covered: {}",
        fields.len(),
        documented.len(),
        uncovered.len()
    );
    assert_eq!(uncovered, [""; 0], "add a guest, or a row to fields.yaml");
    assert_eq!(faults(&table, &fields, &effects), [""; 0]);
}
