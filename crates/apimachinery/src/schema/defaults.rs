//! Fills in defaults.

use serde_json::Value;

use super::{Marks, Schema};

/// Drops nulls from fields that are neither nullable nor have a default.
pub(super) fn drop_nulls(schema: &Schema, at: &mut Value) {
    match at {
        Value::Object(fields) => {
            fields.retain(|name, value| {
                !value.is_null()
                    || schema.child(name).is_none_or(|child| {
                        child.default.is_some()
                            || child.kind.is_none()
                            || child.marks.has(Marks::NULLABLE)
                    })
            });
            for (name, value) in fields {
                if let Some(child) = schema.child(name) {
                    drop_nulls(child, value);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = schema.items() {
                for item in list {
                    drop_nulls(items, item);
                }
            }
        }
        _ => {}
    }
}

pub(super) fn fill(schema: &Schema, at: &mut Value) {
    match at {
        Value::Object(fields) => {
            for (name, child) in &schema.properties {
                let Some(default) = &child.default else {
                    continue;
                };
                let set = match fields.get(&**name) {
                    None => true,
                    Some(value) => value.is_null() && !child.marks.has(Marks::NULLABLE),
                };
                if set {
                    fields.insert(name.to_string(), (**default).clone());
                }
            }
            for (name, value) in fields {
                if let Some(child) = schema.child(name) {
                    if value.is_null()
                        && !child.marks.has(Marks::NULLABLE)
                        && let Some(default) = &child.default
                    {
                        value.clone_from(default);
                    }
                    fill(child, value);
                }
            }
        }
        Value::Array(list) => {
            let Some(items) = schema.items() else { return };
            for item in list {
                if item.is_null()
                    && !items.marks.has(Marks::NULLABLE)
                    && let Some(default) = &items.default
                {
                    item.clone_from(default);
                }
                fill(items, item);
            }
        }
        _ => {}
    }
}
