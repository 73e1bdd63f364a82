//! Decoding by schema: unknown, duplicate and wrongly typed fields.

use apimachinery::{Fault, Status, Violation, meta, schema};
use serde_json::{Map, Value};

use crate::{
    api::Api,
    error::ApiError,
    kinds::Nulls,
    registry::Served,
    request::{Payload, query::FieldValidation},
    verbs::Call,
};

/// Drops fields that the schema does not declare; returns warnings, or a 400 in strict mode.
pub(crate) fn prune(api: &Api, call: &Call, object: &mut Value) -> Result<Vec<String>, ApiError> {
    let kind = &call.kind;
    clean(kind, object);
    let unknown = api
        .registry
        .with_schema(kind, |schema| schema.prune(object))
        .unwrap_or_default();
    check_decodable(api, kind, object)?;
    if drops_nulls(kind) {
        api.registry
            .with_schema(kind, |schema| schema.drop_empty(object));
    }
    match call.query.field_validation {
        _ if unknown.is_empty() => Ok(Vec::new()),
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(schema::unknown_field_warnings(&unknown)),
        FieldValidation::Strict => {
            let why = schema::strict_error(&unknown);
            Err(Status::undecodable(&kind.kind, &kind.version, &why).into())
        }
    }
}

/// Reports duplicate and unknown fields of a body: warnings about duplicates, as [`prune`] has those
/// about unknown fields, or a 400 in strict mode.
pub(crate) fn check_fields(
    api: &Api,
    call: &Call,
    payload: &Payload,
    object: &Value,
) -> Result<Vec<String>, ApiError> {
    match call.query.field_validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(payload.duplicate_warnings()),
        FieldValidation::Strict => match strict_error(api, call, payload, object) {
            Some(why) => Err(Status::undecodable(&call.kind.kind, &call.kind.version, &why).into()),
            None => Ok(Vec::new()),
        },
    }
}

/// The decoder's error for an object of a built-in kind with a wrongly typed field.
pub(crate) fn decoding_error(api: &Api, kind: &Served, object: &Value) -> Option<String> {
    if kind.is_custom() {
        return None;
    }
    let mut bare = object.clone();
    if drops_nulls(kind) {
        drop_nulls(&mut bare);
    }
    let found = api
        .registry
        .with_schema(kind, |schema| schema.validate(&bare))?;
    let wrong = found.iter().find(|one| one.fault == Fault::TypeInvalid)?;
    let Violation {
        field,
        value,
        detail,
        ..
    } = wrong;
    if detail.contains("must be of type byte") {
        let text = value.as_str().unwrap_or_default();
        let is_letter = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
        let at = text.find(|c| !is_letter(c)).unwrap_or(text.len());
        return Some(format!("illegal base64 data at input byte {at}"));
    }
    let found = match value.as_str().unwrap_or_default() {
        "boolean" => "bool",
        "integer" => "number",
        other => other,
    };
    let wanted = detail.split("must be of type ").nth(1).unwrap_or_default();
    let wanted = wanted.split(':').next().unwrap_or_default();
    Some(format!(
        "json: cannot unmarshal {found} into field {field} of type {wanted}"
    ))
}

/// The error for duplicate and unknown fields in strict mode.
pub(crate) fn strict_error(
    api: &Api,
    call: &Call,
    payload: &Payload,
    object: &Value,
) -> Option<String> {
    if call.query.field_validation != FieldValidation::Strict {
        return None;
    }
    let unknown = api
        .registry
        .with_schema(&call.kind, |schema| schema.unknown_fields(object));
    let mut wrong = payload.duplicates();
    wrong.extend(schema::unknown_field_warnings(&unknown.unwrap_or_default()));
    (!wrong.is_empty()).then(|| format!("strict decoding error: {}", wrong.join(", ")))
}

pub(crate) fn check_decodable(api: &Api, kind: &Served, object: &Value) -> Result<(), ApiError> {
    match decoding_error(api, kind, object) {
        Some(why) => Err(Status::undecodable(&kind.kind, &kind.version, &why).into()),
        None => Ok(()),
    }
}

/// Drops nulls and empty lists where they mean that the field is not set.
fn clean(kind: &Served, object: &mut Value) {
    if kind.is_custom() {
        object
            .as_object_mut()
            .into_iter()
            .filter_map(|o| o.get_mut("metadata"))
            .for_each(drop_nulls);
    } else if drops_nulls(kind) {
        drop_nulls(object);
    }
    meta::set(object, "selfLink", Value::Null);
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let found = &object["metadata"][field];
        let is_empty = found.as_array().is_some_and(Vec::is_empty)
            || found.as_object().is_some_and(Map::is_empty);
        if is_empty {
            meta::set(object, field, Value::Null);
        }
    }
}

/// Whether a null in an object of the kind means that the field is not set.
pub(super) fn drops_nulls(kind: &Served) -> bool {
    kind.strategy()
        .is_some_and(|strategy| strategy.nulls == Nulls::Unset)
}

pub(super) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
