//! Fields set by the server: identity, generation, defaults, and fields kept from the live object.

use apimachinery::{Reason, Status, meta, names};
use serde_json::{Value, json};

use crate::{
    api::Api,
    error::ApiError,
    kinds::{InitialStatus, StatusMetadata},
    registry::Origin,
    verbs::Call,
};

/// Sets name, identity and creation time of a new object.
pub(crate) fn initialize(api: &Api, call: &Call, object: &mut Value) -> Result<(), ApiError> {
    if !meta::resource_version(object).is_empty() {
        let why = "resourceVersion should not be set on objects to be created";
        return Err(Status::new(Reason::Unknown, why).into());
    }
    for field in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ] {
        meta::set(object, field, Value::Null);
    }
    let base = meta::generate_name(object).to_owned();
    if meta::name(object).is_empty() && !base.is_empty() {
        meta::set(object, "name", generate_name(&base));
    }
    meta::set(object, "uid", uuid::Uuid::new_v4().to_string());
    meta::set(
        object,
        "creationTimestamp",
        meta::format_time(api.clock.now()),
    );
    if call.kind.has_generation() {
        meta::set(object, "generation", 1);
    }
    let strategy = call.kind.strategy();
    let drops_status =
        strategy.is_none_or(|strategy| strategy.initial_status == InitialStatus::Dropped);
    if drops_status && call.kind.has_subresource("status") {
        put_part(object, "status", Value::Null);
    }
    if let Some(strategy) = strategy.filter(|strategy| !strategy.finalizers.is_empty()) {
        meta::set(object, "finalizers", json!(strategy.finalizers));
    }
    Ok(())
}

/// A random name with this prefix.
pub(crate) fn generate_name(base: &str) -> String {
    names::generate(base, random_bytes())
}

fn random_bytes() -> [u8; 5] {
    let mut out = [0; 5];
    for (to, from) in out.iter_mut().zip(uuid::Uuid::new_v4().as_bytes()) {
        *to = *from;
    }
    out
}

/// Drops nulls from the decoded body of a custom kind where they mean that a field is not set. An
/// applied null stays, and is refused.
pub(crate) fn drop_nulls(call: &Call, object: &mut Value) {
    if let Origin::Custom(custom) = &call.kind.origin {
        custom.schema.drop_nulls(object);
    }
}

/// Fills in absent fields from the schema or the strategy of the kind.
pub(crate) fn default(call: &Call, object: &mut Value) {
    match &call.kind.origin {
        Origin::Custom(custom) => custom.schema.fill_defaults(object),
        Origin::BuiltIn(kind) => (kind.strategy.default)(object),
    }
}

/// Sets fields of a new object after field ownership was recorded.
pub(crate) fn populate(api: &Api, call: &Call, object: &mut Value) {
    if let Some(strategy) = call.kind.strategy() {
        (strategy.populate)(object, &meta::format_time(api.clock.now()));
    }
}

/// Sets the server's fields of an object that is about to be validated and stored.
pub(crate) fn accept(api: &Api, call: &Call, object: &mut Value) {
    let Some(strategy) = call.kind.strategy() else {
        return;
    };
    for field in strategy.null_fields {
        show_null(object, field);
    }
    if call.subresource.is_none() {
        (strategy.accept)(object, &meta::format_time(api.clock.now()));
    }
}

/// Makes an absent field visible as null.
fn show_null(object: &mut Value, field: &str) {
    if let Value::Object(fields) = object {
        fields.entry(field).or_insert(Value::Null);
    }
}

/// Carries over the fields that an update must not change.
pub(crate) fn carry_over(call: &Call, live: &Value, object: &mut Value) {
    let kept = [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
    ];
    match call.subresource.as_deref() {
        None if call.kind.has_subresource("status") => {
            put_part(
                object,
                "status",
                live.get("status").cloned().unwrap_or(Value::Null),
            );
        }
        Some("status") => {
            let status = object.get("status").cloned().unwrap_or(Value::Null);
            let mut metadata = object["metadata"].take();
            let managed = metadata["managedFields"].take();
            object.clone_from(live);
            put_part(object, "status", status);
            if writes_metadata(call) && metadata.is_object() {
                // As in Kubernetes, a write of the status does not change the owners.
                let owners = live["metadata"]["ownerReferences"].clone();
                object["metadata"] = metadata;
                meta::set(object, "ownerReferences", owners);
            }
            meta::set(object, "managedFields", managed);
        }
        Some("finalize") => {
            let held = object["spec"]["finalizers"].clone();
            let others = object["metadata"]["finalizers"].clone();
            object.clone_from(live);
            meta::set(object, "finalizers", others);
            let is_empty = held.as_array().is_none_or(Vec::is_empty);
            put_part(
                &mut object["spec"],
                "finalizers",
                if is_empty { Value::Null } else { held },
            );
        }
        _ => {}
    }
    for field in kept {
        meta::set(object, field, live["metadata"][field].clone());
    }
    if call.kind.has_generation() && matches!(call.subresource.as_deref(), None | Some("scale")) {
        let ignored: &[&str] = if call.kind.has_subresource("status") {
            &["status"]
        } else {
            &[]
        };
        if meta::spec_differs(live, object, ignored) {
            meta::set(object, "generation", meta::generation(live) + 1);
        }
    }
}

/// Whether labels, annotations and finalizers can be written with the status.
pub(crate) fn writes_metadata(call: &Call) -> bool {
    let strategy = call.kind.strategy();
    strategy.is_some_and(|strategy| strategy.status_metadata == StatusMetadata::Written)
}

fn put_part(object: &mut Value, part: &str, value: Value) {
    let Value::Object(fields) = object else {
        return;
    };
    if value.is_null() {
        fields.shift_remove(part);
    } else {
        fields.insert(part.to_owned(), value);
    }
}
