//! Validation of the object that would be stored, and of its namespace and version.

use apimachinery::{GroupResource, Reason, Status, Violation, meta, names, status::Cause};
use serde_json::Value;

use super::decode::{drop_nulls, drops_nulls};
use crate::{
    api::Api,
    error::ApiError,
    registry::Origin,
    store::Collection,
    verbs::{Call, Live},
};

/// All violations of an object that would be stored, as one 422.
pub(crate) fn validate(
    api: &Api,
    call: &Call,
    live: Option<&Live>,
    object: &Value,
) -> Result<(), ApiError> {
    let kind = &call.kind;
    let check_name = kind.strategy().map_or(
        names::dns_subdomain as fn(&str) -> Vec<String>,
        |strategy| strategy.check_name,
    );
    let mut wrong = meta::validate(object, check_name);
    if !kind.group.is_empty() {
        // Only core kinds require finalizers with a domain.
        wrong.retain(|violation| !violation.field.starts_with("metadata.finalizers["));
    }
    let old = live.map(|live| &live.object);
    if kind.is_custom() {
        api.registry.with_schema(kind, |schema| {
            wrong.extend(schema.validate_change(object, old));
            wrong.extend(schema.validate_rules(object, old, &wrong));
        });
    } else {
        // Some unset fields are visible as null.
        let mut bare = object.clone();
        if drops_nulls(kind) {
            drop_nulls(&mut bare);
        }
        let found = api
            .registry
            .with_schema(kind, |schema| schema.validate(&bare));
        wrong.extend(found.unwrap_or_default());
    }
    if let Origin::Custom(custom) = &kind.origin
        && let Some(scale) = &custom.scale
    {
        wrong.extend(scale.check(object));
    }
    if let Some(strategy) = kind.strategy() {
        wrong.extend((strategy.validate)(old, object));
    }
    if let Some(live) = live {
        wrong.extend(added_finalizers(&live.object, object));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(kind.group_kind(), meta::name(object), &wrong).into())
}

/// Finalizers cannot be added to an object that is being deleted.
fn added_finalizers(live: &Value, object: &Value) -> Vec<Violation> {
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

/// Warnings about finalizers without a domain.
pub(crate) fn finalizer_warnings(call: &Call, live: Option<&Value>, object: &Value) -> Vec<String> {
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

/// Objects can be created only in an existing namespace that is not terminating.
pub(crate) async fn check_namespace(api: &Api, call: &Call, name: &str) -> Result<(), ApiError> {
    if !call.kind.namespaced {
        return Ok(());
    }
    let namespaces = Collection::new("", "namespaces");
    let Some(stored) = api.store.get(&namespaces.key("", &call.namespace)).await? else {
        let resource = GroupResource {
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
        let cause = Cause {
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

/// A write that names uid or version must name the current ones.
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
