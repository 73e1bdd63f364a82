//! The parameters of a write, and the parts of an object that no manager owns.

use jiff::Timestamp;
use serde_json::Value;

use super::field_set::FieldSet;
use super::path::PathElement;
use crate::meta;
use crate::shape::Type;

/// The writing manager, the endpoint and the time.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    pub manager: &'a str,
    /// Of the request, e.g. `kubevirt.io/v1`.
    pub api_version: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    pub ty: Type<'a>,
    /// Fields that this endpoint does not write, dropped from the applied configuration and from
    /// the ownership: `&["status"]` on the object of a kind with a status subresource, `&["spec",
    /// "metadata"]` on its status.
    pub reset: &'a [&'a str],
    pub now: Timestamp,
}

/// The state before creation: an object with only its type.
pub(super) fn empty_object(object: &Value) -> Value {
    let mut out = serde_json::Map::new();
    for key in ["apiVersion", "kind"] {
        if let Some(value) = object.get(key) {
            out.insert(key.to_owned(), value.clone());
        }
    }
    Value::Object(out)
}

/// The object without its managed fields.
pub(super) fn stripped(object: &Value) -> Value {
    let mut out = object.clone();
    if out.get("metadata").is_some_and(Value::is_object) {
        meta::set(&mut out, "managedFields", Value::Null);
    }
    out
}

pub(super) fn reset_set(fields: &[&str]) -> FieldSet {
    let mut out = FieldSet::default();
    for field in fields {
        out.insert(&[PathElement::Field((*field).to_owned())]);
    }
    out
}
