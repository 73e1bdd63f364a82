//! CEL rules, `x-kubernetes-validations`: compiled on first use, evaluated on values converted by
//! their schema.
//!
//! - [`Rule`] is one rule with its message; `program` compiles it, once, for the first object that
//!   reaches it;
//! - `value` converts JSON to CEL values;
//! - [`root`] walks an object and evaluates the rules it meets; transition rules need the old
//!   value.
//!
//! Invariants: a rule never sees a field that its schema does not declare; nested loops are limited
//! by the size of the object so that a rule takes at most [`MAX_STEPS`] steps; an object is
//! rejected if one of its rules cannot be evaluated.

mod program;
mod rule;
mod value;

#[cfg(test)]
mod tests;

use serde_json::Value;

pub(super) use self::rule::Rule;
use super::{Marks, Schema, join};
use crate::{Fault, Violation};

/// Steps of the innermost loop of a rule.
const MAX_STEPS: usize = 1_000_000;

/// A value, its path, and its old value.
struct Node<'a> {
    schema: &'a Schema,
    value: &'a Value,
    old: Option<&'a Value>,
    path: &'a str,
    /// The size of the largest list or map of the object: the upper bound of a loop.
    largest: usize,
    whole: Whole,
}

/// In whole objects, rules see the type and the name, even if the schema does not declare them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whole {
    Object,
    Part,
}

pub(super) fn root(
    schema: &Schema,
    object: &Value,
    old: Option<&Value>,
    found: &[Violation],
) -> Vec<Violation> {
    if !schema.marks.has(Marks::RULES) {
        return Vec::new();
    }
    if found.iter().any(blocks) {
        let why = "some validation rules were not checked because the object was invalid; \
                   correct the existing errors to complete validation";
        return vec![Violation::invalid("<nil>", Value::Null, why)];
    }
    let mut out = Vec::new();
    let node = Node {
        schema,
        value: object,
        old,
        path: "",
        largest: largest(object).max(old.map_or(0, largest)),
        whole: Whole::Object,
    };
    walk(&node, &mut out);
    out
}

/// Rules rely on valid types, sizes and enum values.
fn blocks(violation: &Violation) -> bool {
    matches!(
        violation.fault,
        Fault::NotSupported
            | Fault::Required
            | Fault::TooLong
            | Fault::TooMany
            | Fault::TypeInvalid
    )
}

/// Rules that do not compile.
pub(super) fn check(schema: &Schema, at: &str) -> Vec<Violation> {
    let mut out = Vec::new();
    if !schema.marks.has(Marks::RULES) {
        return out;
    }
    for (index, rule) in schema.rules.iter().enumerate() {
        if let Some(fault) = rule.compile_error() {
            let field = format!("{at}.x-kubernetes-validations[{index}].{}", fault.field);
            let why = format!("compilation failed: {}", fault.error);
            out.push(Violation::invalid(field, fault.source, why));
        }
    }
    for (name, child) in &schema.properties {
        out.extend(check(child, &format!("{at}.properties[{name}]")));
    }
    if let Some(child) = schema.additional.as_deref() {
        out.extend(check(child, &format!("{at}.additionalProperties")));
    }
    if let Some(child) = schema.items() {
        out.extend(check(child, &format!("{at}.items")));
    }
    out
}

fn largest(value: &Value) -> usize {
    match value {
        Value::Array(items) => items
            .iter()
            .map(largest)
            .max()
            .unwrap_or(0)
            .max(items.len()),
        Value::Object(fields) => {
            let inner = fields.values().map(largest).max();
            inner.unwrap_or(0).max(fields.len())
        }
        // Some functions split a string into a list.
        Value::String(text) => text.len(),
        _ => 0,
    }
}

fn walk(at: &Node<'_>, out: &mut Vec<Violation>) {
    // Unchanged values are not validated again.
    if at.old == Some(at.value) || at.value.is_null() || !at.schema.marks.has(Marks::RULES) {
        return;
    }
    out.extend(at.schema.rules.iter().filter_map(|rule| rule.violated(at)));
    let below = |schema, value, old, path: &str, out: &mut Vec<Violation>| {
        let node = Node {
            schema,
            value,
            old,
            path,
            whole: Whole::Part,
            ..*at
        };
        walk(&node, out);
    };
    match at.value {
        Value::Object(fields) => {
            for (name, member) in fields {
                if let Some(child) = at.schema.child(name) {
                    let old = at.old.and_then(|old| old.get(name));
                    below(child, member, old, &join(at.path, name), out);
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = at.schema.items() else {
                return;
            };
            for (index, item) in items.iter().enumerate() {
                let old = at.schema.counterpart(item, at.old);
                below(schema, item, old, &format!("{}[{index}]", at.path), out);
            }
        }
        _ => {}
    }
}
