//! Verbs of a guest: requests to its launcher and queries of its QEMU guest agent.

use axum::{
    Json,
    extract::{Path, Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use error_chain::error_chain;
use launcher_channel::{AgentQuestion, AgentReport, Request};
use reasons::Reason;
use reconcile::Key;
use serde::{Deserialize, Serialize};

use super::{
    response::{call_error, error_response, guest_not_found},
    router::StreamsState,
};
use crate::launcher::CallError;

pub(super) async fn call(
    State(state): State<StreamsState>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Response {
    let key = Key::new(namespace, name);
    let Some((_, session)) = state.guests.session(&key) else {
        return guest_not_found(&key);
    };
    match session.call(request).await {
        Ok(_state) => StatusCode::OK.into_response(),
        Err(error) => call_error(&error),
    }
}

pub(super) const PNG: &str = "image/png";

/// Requests binary content of this type.
pub(super) async fn fetch(
    State(state): State<StreamsState>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
    media_type: &'static str,
) -> Response {
    let key = Key::new(namespace, name);
    let Some((_, session)) = state.guests.session(&key) else {
        return guest_not_found(&key);
    };
    match session.fetch(request, media_type).await {
        Ok(data) => ([(header::CONTENT_TYPE, media_type)], data).into_response(),
        Err(error) => call_error(&error),
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FreezeOptions {
    /// `None`: frozen until an unfreeze request.
    pub(super) thaw_after_seconds: Option<u64>,
}

/// A failure is also published as an event: the backup tool that copies the disks may not be the
/// caller.
pub(super) async fn freeze(
    State(state): State<StreamsState>,
    Path((namespace, name)): Path<(String, String)>,
    Query(options): Query<FreezeOptions>,
) -> Response {
    let key = Key::new(namespace, name);
    let Some((_, session)) = state.guests.session(&key) else {
        return guest_not_found(&key);
    };
    let thaw_after_seconds = options.thaw_after_seconds;
    let freeze = AgentQuestion::Freeze { thaw_after_seconds };
    match session.ask_agent(freeze).await {
        Ok(_report) => StatusCode::OK.into_response(),
        Err(error) => {
            let guests = &state.guests;
            guests.warn(&key, Reason::FreezeError, error_chain(&error));
            call_error(&error)
        }
    }
}

pub(super) async fn thaw(
    State(state): State<StreamsState>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    let key = Key::new(namespace, name);
    let Some((_, session)) = state.guests.session(&key) else {
        return guest_not_found(&key);
    };
    match session.ask_agent(AgentQuestion::Thaw).await {
        Ok(_report) => StatusCode::OK.into_response(),
        Err(error) => call_error(&error),
    }
}

/// Queries the guest agent and converts its report to an API type.
pub(super) async fn query_agent<T: Serialize>(
    State(state): State<StreamsState>,
    Path((namespace, name)): Path<(String, String)>,
    question: AgentQuestion,
    convert: fn(AgentReport) -> T,
) -> Response {
    let key = Key::new(namespace, name);
    let Some((_, session)) = state.guests.session(&key) else {
        return guest_not_found(&key);
    };
    match session.ask_agent(question).await {
        Ok(report) => Json(convert(report)).into_response(),
        Err(error) => call_error(&error),
    }
}

/// What the guest uses of this node.
pub(super) async fn usage(
    State(state): State<StreamsState>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    let key = Key::new(namespace, name);
    let Some((_, session)) = state.guests.session(&key) else {
        return guest_not_found(&key);
    };
    let Some(peer) = session.link().peer else {
        return call_error(&CallError::NotConnected);
    };
    match peer.usage() {
        Ok(Some(usage)) => Json(usage).into_response(),
        Ok(None) => guest_not_found(&key),
        Err(error) => {
            let message = format!("read the usage of guest {key}: {error}");
            error_response(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &message)
        }
    }
}
