//! Patch: the client sends a change, in one of four languages.

use apimachinery::{
    Status,
    apply::{self, Conflicts},
    meta, patch,
};
use axum::response::Response;
use serde_json::Value;

use super::{Call, Live, Written, prepare, read, update::ATTEMPTS, write};
use crate::{
    api::Api,
    error::ApiError,
    registry::Origin,
    request::{Format, Payload},
    verbs::write::Owners,
};

pub(crate) async fn patch(api: &Api, call: &Call, payload: &Payload) -> Result<Response, ApiError> {
    let change = payload.value()?;
    let mut attempt = 1;
    loop {
        let done = match payload.format {
            Format::Apply => Box::pin(apply(api, call, &change)).await,
            format => Box::pin(merge(api, call, &change, format)).await,
        };
        match done {
            // Somebody else wrote in between. The change may still hold for what is there now; a
            // change that names the version it saw fails on the next round.
            Err(Failed { error, retry: true }) if error.is_conflict() && attempt < ATTEMPTS => {
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
    retry: bool,
}

impl<E: Into<ApiError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self {
            error: error.into(),
            retry: false,
        }
    }
}

fn raced(error: ApiError) -> Failed {
    Failed { error, retry: true }
}

async fn merge(api: &Api, call: &Call, change: &Value, format: Format) -> Result<Written, Failed> {
    let live = Live::of(&read::load(api, call, call.name()).await?, &call.kind)?;
    let mut object = match (format, &call.kind.origin) {
        (Format::JsonPatch, _) => patch::json::apply(&live.object, change)?,
        (Format::MergePatch, _) => patch::merge::apply(&live.object, change),
        (Format::StrategicMergePatch, Origin::BuiltIn(_)) => {
            patch::strategic::apply(&live.object, change, call.kind.shape())?
        }
        _ => {
            let accepted = [
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/apply-patch+yaml",
            ];
            return Err(Status::unsupported_media_type(&accepted).into());
        }
    };
    prepare::check_version(call, &live, &object)?;
    prepare::identify(call, &mut object)?;
    write::update(api, call, &live, object, Owners::Compute)
        .await
        .map_err(raced)
}

async fn apply(api: &Api, call: &Call, config: &Value) -> Result<Written, Failed> {
    if call.query.field_manager.is_none() {
        let why = "fieldManager is required for apply patch";
        return Err(Status::bad_request(format!(
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: {why}"
        ))
        .into());
    }
    let mut config = config.clone();
    if !config["metadata"]["managedFields"].is_null() {
        return Err(Status::bad_request("metadata.managedFields must be nil").into());
    }
    prepare::identify(call, &mut config)?;
    // Unknown fields may not come to be owned, and how to complain is decided on what was sent.
    let warnings = prepare::prune(api, call, &mut config)?;
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
            let live = Live::of(&stored, &call.kind)?;
            prepare::check_version(call, &live, &config)?;
            let mut merged = apply::apply(&writer, Some(&live.object), &config, conflicts)?;
            meta::set(&mut merged, "uid", meta::uid(&live.object));
            write::update(api, call, &live, merged, Owners::Known)
                .await
                .map_err(raced)?
        }
        None if call.subresource.is_some() => {
            return Err(Status::not_found(call.kind.resource(), call.name()).into());
        }
        None if !meta::resource_version(&config).is_empty() || !meta::uid(&config).is_empty() => {
            // Meant for an object that was there: bringing it back would be wrong.
            return Err(Status::conflict(call.kind.resource(), call.name()).into());
        }
        None => {
            let object = apply::apply(&writer, None, &config, conflicts)?;
            write::create(api, call, object, Owners::Known).await?
        }
    };
    written.warnings.splice(0..0, warnings);
    Ok(written)
}
