//! Drops fields that a schema does not declare.

use serde_json::{Map, Value};

use super::{Marks, Schema, join};

pub(super) fn root(schema: &Schema, object: &mut Value) -> Vec<String> {
    let mut removed = Vec::new();
    if let Value::Object(fields) = object {
        resource(schema, fields, "", &mut removed);
    }
    removed.sort();
    removed
}

/// Removes empty lists, and empty maps with free keys, from the properties of objects.
pub(super) fn empty(schema: &Schema, at: &mut Value) {
    match at {
        Value::Object(fields) => fields.retain(|name, member| {
            let Some(child) = schema.child(name) else {
                return true;
            };
            empty(child, member);
            match member {
                Value::Array(items) => !items.is_empty(),
                Value::Object(entries) => !entries.is_empty() || child.additional.is_none(),
                _ => true,
            }
        }),
        Value::Array(list) => {
            if let Some(items) = schema.items() {
                for item in list {
                    empty(items, item);
                }
            }
        }
        _ => {}
    }
}

/// A whole object: the type fields are always known, and `metadata` has a fixed shape.
fn resource(
    schema: &Schema,
    fields: &mut Map<String, Value>,
    path: &str,
    removed: &mut Vec<String>,
) {
    let metadata = fields.get_mut("metadata").map(Value::take);
    members(schema, fields, path, removed, |name| {
        matches!(name, "apiVersion" | "kind" | "metadata")
    });
    if let Some(mut metadata) = metadata {
        prune_metadata(&mut metadata, &join(path, "metadata"), removed);
        fields.insert("metadata".to_owned(), metadata);
    }
}

fn prune_metadata(metadata: &mut Value, path: &str, removed: &mut Vec<String>) {
    const KNOWN: [&str; 16] = [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "managedFields",
        "clusterName",
    ];
    if let Value::Object(fields) = metadata {
        fields.retain(|name, _| {
            let known = KNOWN.contains(&name.as_str());
            if !known {
                removed.push(join(path, name));
            }
            known
        });
    }
}

fn value(schema: &Schema, at: &mut Value, path: &str, removed: &mut Vec<String>) {
    match at {
        Value::Object(fields) if schema.is_embedded() => resource(schema, fields, path, removed),
        Value::Object(fields) => members(schema, fields, path, removed, |_| false),
        Value::Array(list) => {
            let Some(items) = schema.items() else { return };
            for (index, item) in list.iter_mut().enumerate() {
                value(items, item, &format!("{path}[{index}]"), removed);
            }
        }
        _ => {}
    }
}

fn members(
    schema: &Schema,
    fields: &mut Map<String, Value>,
    path: &str,
    removed: &mut Vec<String>,
    always: fn(&str) -> bool,
) {
    let keep_all = schema.marks.has(Marks::PRESERVE_UNKNOWN);
    fields.retain(|name, at| match schema.child(name) {
        Some(child) => {
            if !always(name) {
                value(child, at, &join(path, name), removed);
            }
            true
        }
        None if keep_all || always(name) => true,
        None => {
            removed.push(join(path, name));
            false
        }
    });
}
