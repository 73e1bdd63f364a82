//! Update: the client sends the whole object.

use apimachinery::{Status, Violation, meta};
use axum::response::Response;

use super::{Call, Live, prepare, read, write};
use crate::{api::Api, error::ApiError, request::Payload, verbs::write::Ownership};

/// Attempts of a write without a version after conflicts.
pub(crate) const ATTEMPTS: usize = 5;

pub(crate) async fn update(
    api: &Api,
    call: &Call,
    payload: &Payload,
) -> Result<Response, ApiError> {
    if call.kind.is_custom() {
        payload.refuse_protobuf()?;
    }
    let mut object = payload.value()?;
    prepare::identify(call, &mut object)?;
    let duplicates = prepare::check_fields(api, call, payload, &object)?;
    let versioned = !meta::resource_version(&object).is_empty();
    if !versioned && call.kind.is_custom() {
        let wrong = Violation::invalid(
            "metadata.resourceVersion",
            0,
            "must be specified for an update",
        );
        let mut kind = call.kind.group_kind();
        // kube-apiserver names the resource here, not the kind.
        kind.kind = &call.kind.plural;
        return Err(Status::invalid(kind, call.name(), &[wrong]).into());
    }
    let mut attempt = 1;
    loop {
        let live = Live::shown(api, &read::load(api, call, call.name()).await?, &call.kind).await?;
        prepare::check_version(call, &live, &object)?;
        match Box::pin(write::update(
            api,
            call,
            &live,
            object.clone(),
            Ownership::Compute,
        ))
        .await
        {
            Err(error) if error.is_conflict() && !versioned && attempt < ATTEMPTS => attempt += 1,
            done => {
                let mut written = done?;
                written.warnings.splice(0..0, duplicates);
                return Ok(read::respond_written(api, call, written));
            }
        }
    }
}
