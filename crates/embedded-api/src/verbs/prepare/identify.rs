//! The identity of an object: type, namespace and name.

use apimachinery::{GroupKind, Status, Violation, meta};
use serde_json::{Map, Value, json};

use crate::{error::ApiError, registry::Served, verbs::Call};

/// Checks type, namespace and name of the object against the path, and fills in absent ones.
pub(crate) fn identify(call: &Call, object: &mut Value) -> Result<(), ApiError> {
    let kind = &call.kind;
    if object.is_null() && !kind.is_custom() {
        *object = json!({});
    }
    if !object.is_object() {
        let why = format!(
            "the object provided is unrecognized (must be of type {})",
            kind.kind
        );
        return Err(Status::bad_request(why).into());
    }
    check_types(kind, object)?;
    let api_version = kind.api_version();
    let (found_version, found_kind) = (meta::api_version(object), meta::kind(object));
    let must_match = kind.is_custom() && !found_kind.is_empty();
    if (must_match || !found_version.is_empty()) && found_version != api_version {
        let why = format!(
            "the API version in the data ({found_version}) does not match the expected API version ({api_version})"
        );
        return Err(Status::bad_request(why).into());
    }
    if kind.is_custom() && !found_kind.is_empty() && found_kind != kind.kind {
        let why = format!("must be {}", kind.kind);
        let wrong = Violation::invalid("kind", found_kind, why);
        let found = GroupKind {
            group: &kind.group,
            kind: found_kind,
        };
        return Err(Status::invalid(found, meta::name(object), &[wrong]).into());
    }
    if !found_kind.is_empty() && found_kind != kind.kind {
        let why = format!(
            "{found_kind} in version \"{}\" cannot be handled as a {}",
            kind.version, kind.kind
        );
        return Err(Status::bad_request(why).into());
    }
    if kind.is_custom() && found_kind.is_empty() {
        let why = format!(
            "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{object}'",
            kind.kind
        );
        return Err(Status::bad_request(why).into());
    }
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.kind.clone().into();
    order_type_first(object);
    locate(call, object)
}

/// The types of metadata are the same for every kind.
fn check_types(kind: &Served, object: &Value) -> Result<(), ApiError> {
    let place = if kind.is_custom() { "" } else { "metadata." };
    match object
        .get("metadata")
        .and_then(|metadata| meta::mistyped(metadata, place))
    {
        Some(why) => Err(Status::undecodable(&kind.kind, &kind.version, &why).into()),
        None => Ok(()),
    }
}

/// Moves `apiVersion`, `kind` and `metadata` to the front, where readers expect them.
fn order_type_first(object: &mut Value) {
    let Value::Object(fields) = object else {
        return;
    };
    let mut ordered = Map::with_capacity(fields.len());
    for key in ["apiVersion", "kind", "metadata"] {
        if let Some(value) = fields.shift_remove(key) {
            ordered.insert(key.to_owned(), value);
        }
    }
    ordered.extend(std::mem::take(fields));
    *fields = ordered;
}

fn locate(call: &Call, object: &mut Value) -> Result<(), ApiError> {
    let namespace = meta::namespace(object);
    if call.kind.namespaced {
        if !namespace.is_empty() && namespace != call.namespace {
            let why = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Status::bad_request(why).into());
        }
        meta::set(object, "namespace", call.namespace.as_str());
    } else {
        meta::set(object, "namespace", Value::Null);
    }
    if let Some(name) = &call.name {
        let found = meta::name(object);
        if !found.is_empty() && found != name {
            let why = format!(
                "the name of the object ({found}) does not match the name on the URL ({name})"
            );
            return Err(Status::bad_request(why).into());
        }
        meta::set(object, "name", name.as_str());
    }
    Ok(())
}
