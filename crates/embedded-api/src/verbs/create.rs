//! Create, with generated names.

use apimachinery::{Status, meta};
use axum::response::Response;
use serde_json::Value;

use super::{Call, prepare, read, write};
use crate::{api::Api, error::ApiError, request::Payload, verbs::write::Ownership};

/// Attempts with another name when a generated one is taken.
const NAME_ATTEMPTS: usize = 8;

pub(crate) async fn create(
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
    let mut written = create_named(api, call, object).await?;
    written.warnings.splice(0..0, duplicates);
    Ok(read::respond_written(api, call, written))
}

pub(crate) async fn create_named(
    api: &Api,
    call: &Call,
    object: Value,
) -> Result<super::Written, ApiError> {
    let generates = meta::name(&object).is_empty() && !meta::generate_name(&object).is_empty();
    if !generates {
        return Box::pin(write::create(api, call, object, Ownership::Compute)).await;
    }
    for _ in 0..NAME_ATTEMPTS {
        match Box::pin(write::create(api, call, object.clone(), Ownership::Compute)).await {
            Err(error) if error.is_taken() => {}
            done => return done,
        }
    }
    let base = meta::generate_name(&object);
    Err(Status::generate_name_conflict(call.kind.resource(), base).into())
}
