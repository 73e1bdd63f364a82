//! From what a client sent to what may be stored: names, defaults, checks.
//!
//! Invariant: fields of `metadata` that belong to the server are never taken from a client.

use apimachinery::{Fault, Reason, Status, Violation, meta, names, schema};
use serde_json::{Map, Value, json};

use super::{Call, Live};
use crate::{
    api::Api,
    error::ApiError,
    kinds,
    registry::{Origin, Served, custom},
    request::{Payload, query::FieldValidation},
};

/// Checks type and place of what the body holds, and fills them in where the path tells them.
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
    let must_tell = kind.is_custom() && !found_kind.is_empty();
    if (must_tell || !found_version.is_empty()) && found_version != api_version {
        let why = format!(
            "the API version in the data ({found_version}) does not match the expected API version ({api_version})"
        );
        return Err(Status::bad_request(why).into());
    }
    if kind.is_custom() && !found_kind.is_empty() && found_kind != kind.kind {
        let why = format!("must be {}", kind.kind);
        let wrong = Violation::invalid("kind", found_kind, why);
        let found = apimachinery::GroupKind {
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
    place(call, object)
}

/// `kind` and `apiVersion` go first, as people expect to read them.
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

fn place(call: &Call, object: &mut Value) -> Result<(), ApiError> {
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

/// Drops fields that the schema does not know and says what to do about them: warnings, or a 400.
pub(crate) fn prune(api: &Api, call: &Call, object: &mut Value) -> Result<Vec<String>, ApiError> {
    let kind = &call.kind;
    clean(kind, object);
    let unknown = api
        .registry
        .with_schema(kind, |schema| schema.prune(object))
        .unwrap_or_default();
    check_decodable(api, kind, object)?;
    if let Origin::BuiltIn(_) = &kind.origin
        && !kind.is("apiextensions.k8s.io", "customresourcedefinitions")
    {
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

/// What to say about fields that a body has twice: warnings, or a 400.
pub(crate) fn doubled(call: &Call, payload: &Payload) -> Result<Vec<String>, ApiError> {
    if call.query.field_validation == FieldValidation::Ignore {
        return Ok(Vec::new());
    }
    let found: Vec<String> = payload
        .duplicates()
        .iter()
        .map(|path| format!("duplicate field {path:?}"))
        .collect();
    if call.query.field_validation == FieldValidation::Strict && !found.is_empty() {
        let why = format!("strict decoding error: {}", found.join(", "));
        return Err(Status::undecodable(&call.kind.kind, &call.kind.version, &why).into());
    }
    Ok(found)
}

/// Metadata is typed for every kind.
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

fn check_decodable(api: &Api, kind: &Served, object: &Value) -> Result<(), ApiError> {
    match undecodable(api, kind, object) {
        Some(why) => Err(Status::undecodable(&kind.kind, &kind.version, &why).into()),
        None => Ok(()),
    }
}

/// Objects of built-in kinds are typed all over: why this one cannot be read, if it cannot.
pub(crate) fn undecodable(api: &Api, kind: &Served, object: &Value) -> Option<String> {
    if kind.is_custom() {
        return None;
    }
    let mut bare = object.clone();
    if !kind.is("apiextensions.k8s.io", "customresourcedefinitions") {
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

/// Why an object with unknown fields is refused, if the client wants that.
pub(crate) fn strictly_wrong(api: &Api, call: &Call, object: &Value) -> Option<String> {
    if call.query.field_validation != FieldValidation::Strict {
        return None;
    }
    let unknown = api
        .registry
        .with_schema(&call.kind, |schema| schema.unknown_fields(object))?;
    (!unknown.is_empty()).then(|| schema::strict_error(&unknown))
}

/// A name that begins so and is nobody's yet.
pub(crate) fn generate(base: &str) -> String {
    names::generate(base, random_bytes())
}

/// What the server itself adds to a new object after its owners are known.
pub(crate) fn furnish(api: &Api, call: &Call, object: &mut Value) {
    kinds::furnish(&call.kind, object, &meta::format_time(api.clock.now()));
}

/// What a client should be told, though it is let through.
pub(crate) fn warnings(call: &Call, live: Option<&Value>, object: &Value) -> Vec<String> {
    if !call.kind.is_custom() {
        return Vec::new();
    }
    let before: Vec<&str> = live
        .map(|live| meta::finalizers(live).collect())
        .unwrap_or_default();
    let standard = ["kubernetes", "orphan", "foregroundDeletion"];
    meta::finalizers(object)
        .filter(|finalizer| {
            !finalizer.contains('/')
                && names::qualified(finalizer).is_empty()
                && !standard.contains(finalizer)
                && !before.contains(finalizer)
        })
        .map(|finalizer| {
            format!(
                "metadata.finalizers: {finalizer:?}: prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
            )
        })
        .collect()
}

/// A null in a built-in object means that the field is not set; so it does in all metadata.
fn clean(kind: &Served, object: &mut Value) {
    if kind.is_custom() {
        object
            .as_object_mut()
            .into_iter()
            .filter_map(|o| o.get_mut("metadata"))
            .for_each(drop_nulls);
    } else if !kind.is("apiextensions.k8s.io", "customresourcedefinitions") {
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

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Fills in what the kind's schema or rules say about absent fields.
pub(crate) fn default(call: &Call, object: &mut Value) {
    if let Origin::Custom(custom) = &call.kind.origin {
        custom.schema.fill_defaults(object);
        return;
    }
    kinds::default(&call.kind, object);
    if call
        .kind
        .is("apiextensions.k8s.io", "customresourcedefinitions")
    {
        custom::default(object);
    }
}

/// What the server itself gives to what it is about to store.
pub(crate) fn settle(api: &Api, call: &Call, object: &mut Value) {
    kinds::show(&call.kind, object);
    if call
        .kind
        .is("apiextensions.k8s.io", "customresourcedefinitions")
        && call.subresource.is_none()
    {
        custom::accept(object, &meta::format_time(api.clock.now()));
    }
}

/// Gives a new object its name, identity and time.
pub(crate) fn begin(api: &Api, call: &Call, object: &mut Value) -> Result<(), ApiError> {
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
        meta::set(object, "name", generate(&base));
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
    let resets_status = call.kind.is_custom()
        || [
            "pods",
            "namespaces",
            "persistentvolumeclaims",
            "persistentvolumes",
            "poddisruptionbudgets",
            "resourcequotas",
            "services",
        ]
        .contains(&call.kind.plural.as_str());
    if resets_status && call.kind.has_subresource("status") {
        put_part(object, "status", Value::Null);
    }
    if call
        .kind
        .is("apiextensions.k8s.io", "customresourcedefinitions")
    {
        // The kind goes when its objects are gone.
        meta::set(object, "finalizers", json!([custom::CLEANUP]));
    }
    Ok(())
}

fn random_bytes() -> [u8; 5] {
    let mut out = [0; 5];
    for (to, from) in out.iter_mut().zip(uuid::Uuid::new_v4().as_bytes()) {
        *to = *from;
    }
    out
}

/// Carries over what an update may not change.
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
            let managed = object["metadata"]["managedFields"].take();
            object.clone_from(live);
            put_part(object, "status", status);
            meta::set(object, "managedFields", managed);
        }
        Some("finalize") => {
            let held = object["spec"]["finalizers"].clone();
            let others = object["metadata"]["finalizers"].clone();
            object.clone_from(live);
            meta::set(object, "finalizers", others);
            let is_free = held.as_array().is_none_or(Vec::is_empty);
            put_part(
                &mut object["spec"],
                "finalizers",
                if is_free { Value::Null } else { held },
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

/// Everything wrong with an object that would be stored, as one 422.
pub(crate) fn validate(
    api: &Api,
    call: &Call,
    live: Option<&Live>,
    object: &Value,
) -> Result<(), ApiError> {
    let kind = &call.kind;
    let check_name = names::check_for(&kind.group, &kind.plural);
    let mut wrong = meta::validate(object, check_name);
    if !kind.group.is_empty() {
        // Only core kinds insist on finalizers with a domain.
        wrong.retain(|violation| !violation.field.starts_with("metadata.finalizers["));
    }
    let old = live.map(|live| &live.object);
    if kind.is_custom() {
        api.registry.with_schema(kind, |schema| {
            wrong.extend(schema.validate_change(object, old));
            wrong.extend(schema.validate_rules(object, old, &wrong));
        });
    } else {
        // Some fields show a null where nothing is set.
        let mut bare = object.clone();
        if !kind.is("apiextensions.k8s.io", "customresourcedefinitions") {
            drop_nulls(&mut bare);
        }
        let found = api
            .registry
            .with_schema(kind, |schema| schema.validate(&bare));
        wrong.extend(found.unwrap_or_default());
    }
    if kind.is("apiextensions.k8s.io", "customresourcedefinitions") {
        wrong.extend(custom::check(object));
        if live.is_none_or(|live| live.object["spec"]["versions"] != object["spec"]["versions"]) {
            wrong.extend(custom::check_rules(object));
        }
    }
    if let Origin::Custom(custom) = &kind.origin
        && let Some(scale) = &custom.scale
    {
        wrong.extend(scale.check(object));
    }
    wrong.extend(kinds::check(kind, live.map(|live| &live.object), object));
    if let Some(live) = live {
        wrong.extend(immutable(&live.object, object));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(kind.group_kind(), meta::name(object), &wrong).into())
}

fn immutable(live: &Value, object: &Value) -> Vec<Violation> {
    let mut wrong = Vec::new();
    if meta::is_deleting(live) {
        let before: Vec<&str> = meta::finalizers(live).collect();
        let added: Vec<String> = meta::finalizers(object)
            .filter(|finalizer| !before.contains(finalizer))
            .map(|finalizer| format!("{finalizer:?}"))
            .collect();
        let added = added.join(", ");
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{added}}}"
            );
            wrong.push(Violation::forbidden("metadata.finalizers", why));
        }
    }
    wrong
}

/// A namespace must be there, and not on its way out, before something is made in it.
pub(crate) async fn check_namespace(api: &Api, call: &Call, name: &str) -> Result<(), ApiError> {
    if !call.kind.namespaced {
        return Ok(());
    }
    let namespaces = crate::store::Collection::new("", "namespaces");
    let Some(stored) = api.store.get(&namespaces.key("", &call.namespace)).await? else {
        let resource = apimachinery::GroupResource {
            group: "",
            resource: "namespaces",
        };
        return Err(Status::not_found(resource, &call.namespace).into());
    };
    if meta::is_deleting(&stored.parse()?) {
        let why = format!(
            "unable to create new content in namespace {} because it is being terminated",
            call.namespace
        );
        let cause = apimachinery::status::Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {} is being terminated", call.namespace),
            field: "metadata.namespace".to_owned(),
        };
        return Err(Status::forbidden(call.kind.resource(), name, &why)
            .with_cause(cause)
            .into());
    }
    Ok(())
}

/// A write that says which version it saw must have seen the latest.
pub(crate) fn check_version(call: &Call, live: &Live, object: &Value) -> Result<(), ApiError> {
    let (resource, name) = (call.kind.resource(), call.name());
    let (uid, version) = (meta::uid(object), meta::resource_version(object));
    if !uid.is_empty() && uid != meta::uid(&live.object) {
        return Err(Status::uid_mismatch(resource, name, uid, meta::uid(&live.object)).into());
    }
    if !version.is_empty() && version != live.revision.to_string() {
        if version.parse::<u64>().is_err() {
            let why = format!("strconv.ParseUint: parsing {version:?}: invalid syntax");
            return Err(Status::new(Reason::Unknown, why).into());
        }
        return Err(Status::conflict(resource, name).into());
    }
    Ok(())
}
