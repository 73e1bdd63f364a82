//! Patch: the client sends a change, in one of four formats.

use apimachinery::{
    GroupKind, Status, Violation,
    apply::{self, Conflicts},
    meta, patch,
};
use axum::response::Response;
use serde_json::Value;

use super::{Call, Live, Written, prepare, read, update::ATTEMPTS, write};
use crate::{
    access::{self, Attributes, ResourceTarget, Target},
    api::Api,
    error::ApiError,
    request::{
        Format, Payload,
        query::{self, FieldValidation},
    },
    verbs::write::Ownership,
};

pub(crate) async fn patch(api: &Api, call: &Call, payload: &Payload) -> Result<Response, ApiError> {
    if call.kind.is_custom() && payload.format == Format::StrategicMergePatch {
        let accepted = [
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ];
        return Err(Status::unsupported_media_type(&accepted).into());
    }
    let change = payload.value()?;
    let mut attempt = 1;
    loop {
        let done = match payload.format {
            Format::Apply => Box::pin(apply(api, call, &change, payload)).await,
            _ => Box::pin(merge(api, call, &change, payload)).await,
        };
        match done {
            // A concurrent write. The change may still apply to the current object; a change that
            // names a version fails in the next attempt.
            Err(Failed {
                error,
                can_retry: true,
            }) if error.is_conflict() && attempt < ATTEMPTS => {
                attempt += 1;
            }
            Err(failed) => return Err(failed.error),
            Ok(written) => return Ok(read::respond_written(api, call, written)),
        }
    }
}

/// A failed patch, and whether it may be tried on a newer object.
struct Failed {
    error: ApiError,
    can_retry: bool,
}

impl<E: Into<ApiError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self {
            error: error.into(),
            can_retry: false,
        }
    }
}

fn retryable(error: ApiError) -> Failed {
    Failed {
        error,
        can_retry: true,
    }
}

async fn merge(
    api: &Api,
    call: &Call,
    change: &Value,
    payload: &Payload,
) -> Result<Written, Failed> {
    let live = Live::shown(api, &read::load(api, call, call.name()).await?, &call.kind).await?;
    let mut object = match payload.format {
        Format::JsonPatch => patch::json::apply(&live.object, change)?,
        Format::MergePatch if !change.is_object() => {
            let found = meta::type_name(change);
            let why = format!(
                "error decoding patch: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
            );
            return Err(Status::bad_request(why).into());
        }
        Format::MergePatch => patch::merge::apply(&live.object, change),
        Format::StrategicMergePatch => {
            patch::strategic::apply(&live.object, change, call.kind.shape())?
        }
        _ => return Err(Status::unsupported_patch().into()),
    };
    prepare::check_version(call, &live, &object)?;
    prepare::identify(call, &mut object)?;
    if let Some(why) = prepare::decoding_error(api, &call.kind, &object)
        .or_else(|| prepare::strict_error(api, call, payload, &object))
    {
        let wrong = Violation::invalid("patch", object.to_string(), why);
        return Err(Status::invalid(
            GroupKind {
                group: "",
                kind: "",
            },
            "",
            &[wrong],
        )
        .into());
    }
    let mut written = write::update(api, call, &live, object, Ownership::Compute)
        .await
        .map_err(retryable)?;
    if call.query.field_validation == FieldValidation::Warn {
        written.warnings.splice(0..0, payload.duplicate_warnings());
    }
    Ok(written)
}

async fn apply(
    api: &Api,
    call: &Call,
    config: &Value,
    payload: &Payload,
) -> Result<Written, Failed> {
    if call.query.field_manager.is_none() {
        let wrong = Violation::required("fieldManager", "is required for apply patch");
        return Err(query::invalid("PatchOptions", wrong).into());
    }
    let duplicates = match call.query.field_validation {
        FieldValidation::Ignore => Vec::new(),
        FieldValidation::Warn => payload.duplicate_warnings(),
        FieldValidation::Strict => payload.duplicates(),
    };
    if call.query.field_validation == FieldValidation::Strict
        && let Some(first) = duplicates.first()
    {
        let why = format!("error strict decoding YAML: error converting YAML to JSON: {first}");
        return Err(Status::bad_request(why).into());
    }
    let mut config = config.clone();
    if !config["metadata"]["managedFields"].is_null() {
        return Err(Status::bad_request("metadata.managedFields must be nil").into());
    }
    check_type(&config)?;
    prepare::identify(call, &mut config)?;
    // Unknown fields must not become owned.
    let sent = config.clone();
    let unknown = api
        .registry
        .with_schema(&call.kind, |schema| schema.prune(&mut config))
        .unwrap_or_default();
    if let Some(first) = unknown.first() {
        let why = format!(".{first}: field not declared in schema");
        return Err(apply::untyped(&sent, &call.kind.api_version(), &why).into());
    }
    // Nulls and empty values stay: they are owned, and may be refused.
    prepare::check_decodable(api, &call.kind, &config)?;
    let conflicts = if call.query.force {
        Conflicts::TakeOver
    } else {
        Conflicts::Refuse
    };
    let api_version = call.kind.api_version();
    let writer = write::writer(api, call, &api_version);
    let stored = api.store.get(&call.key(call.name())).await?;
    let mut written = match stored {
        Some(stored) => {
            let live = Live::shown(api, &stored, &call.kind).await?;
            prepare::check_version(call, &live, &config)?;
            let mut merged = apply::apply(&writer, Some(&live.object), &config, conflicts)?;
            meta::set(&mut merged, "uid", meta::uid(&live.object));
            write::update(api, call, &live, merged, Ownership::Known)
                .await
                .map_err(retryable)?
        }
        None if call.subresource.is_some() => {
            return Err(Status::not_found(call.kind.resource(), call.name()).into());
        }
        None if !meta::resource_version(&config).is_empty() || !meta::uid(&config).is_empty() => {
            // Intended for an existing object: recreating it would be wrong.
            let (resource, uid) = (call.kind.resource(), meta::uid(&config));
            if uid.is_empty() {
                return Err(Status::conflict(resource, call.name()).into());
            }
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(Status::conflict_because(resource, call.name(), &why).into());
        }
        None => {
            access::authorize(api, &call.identity, &creation(call)).await?;
            let object = apply::apply(&writer, None, &config, conflicts)?;
            write::create(api, call, object, Ownership::Known).await?
        }
    };
    written.warnings.splice(0..0, duplicates);
    Ok(written)
}

/// Applying a missing object creates it, which requires the permission to create.
fn creation(call: &Call) -> Attributes {
    Attributes {
        verb: "create".to_owned(),
        target: Target::Resource(Box::new(ResourceTarget {
            group: call.kind.group.clone(),
            resource: call.kind.plural.clone(),
            subresource: String::new(),
            namespace: call.namespace.clone(),
            name: call.name().to_owned(),
        })),
    }
}

/// An applied configuration must contain its type.
fn check_type(config: &Value) -> Result<(), ApiError> {
    let (version, kind) = (meta::api_version(config), meta::kind(config));
    if version.is_empty() || kind.is_empty() {
        let (group, name) = version.split_once('/').unwrap_or(("", version));
        let why = format!("invalid object type: {group}/{name}, Kind={kind}");
        return Err(Status::bad_request(why).into());
    }
    Ok(())
}
