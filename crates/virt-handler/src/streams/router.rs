//! Paths, refusals and what they lead to.

use std::{io, sync::Arc};

use axum::{
    Json, Router,
    extract::{Extension, Path, Query, Request as HttpRequest, State, WebSocketUpgrade},
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, put},
};
use kubevirt_api::VirtualMachineInstance;
use launcher_channel::Request;
use reconcile::Key;
use serde::Deserialize;
use serde_json::json;
use serving::Peer;

use super::{device, one_at_a_time::OneAtATime};
use crate::{guest::Guests, launcher::CallError};

/// The websocket sub-protocol of all streams.
const PROTOCOL: &str = "plain.kubevirt.io";
/// The only caller, by the common name of its certificate.
const CALLER: &str = "virt-api";

#[derive(Debug, Clone)]
pub(crate) struct StreamsState {
    guests: Arc<Guests>,
    streams: Arc<OneAtATime>,
}

impl StreamsState {
    pub(crate) fn new(guests: Arc<Guests>) -> Self {
        Self {
            guests,
            streams: Arc::default(),
        }
    }
}

pub(crate) fn router(state: StreamsState) -> Router {
    let guest = "/v1/namespaces/{namespace}/virtualmachineinstances/{name}";
    let verb = |request: fn() -> Request| {
        put(
            move |state: State<StreamsState>, path: Path<(String, String)>| {
                call(state, path, request())
            },
        )
    };
    Router::new()
        .route(&format!("{guest}/console"), get(console))
        .route(&format!("{guest}/vnc"), get(vnc))
        .route(&format!("{guest}/pause"), verb(|| Request::Pause))
        .route(&format!("{guest}/unpause"), verb(|| Request::Unpause))
        .layer(middleware::from_fn(only_virt_api))
        .with_state(state)
        .route("/healthz", get(|| async { "ok" }))
}

async fn only_virt_api(
    peer: Option<Extension<Peer>>,
    request: HttpRequest,
    next: Next,
) -> Response {
    let name = peer
        .as_ref()
        .and_then(|Extension(peer)| peer.certificate.as_ref())
        .and_then(|certificate| certificate.common_name.as_deref());
    if name == Some(CALLER) {
        next.run(request).await
    } else {
        refusal(
            StatusCode::FORBIDDEN,
            "Forbidden",
            "this node answers virt-api only",
        )
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VncOptions {
    #[serde(default)]
    preserve_session: bool,
}

async fn console(
    State(state): State<StreamsState>,
    Path((namespace, name)): Path<(String, String)>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let key = Key::new(namespace, name);
    open(state, key, ("console", "virt-serial0"), upgrade).await
}

async fn vnc(
    State(state): State<StreamsState>,
    Path((namespace, name)): Path<(String, String)>,
    Query(options): Query<VncOptions>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let key = Key::new(namespace, name);
    if options.preserve_session && state.streams.is_taken(&key, "vnc") {
        let message = "another session is open and was asked to be preserved";
        return refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            message,
        );
    }
    open(state, key, ("vnc", "virt-vnc"), upgrade).await
}

async fn open(
    state: StreamsState,
    key: Key,
    (device, file): (&'static str, &'static str),
    upgrade: WebSocketUpgrade,
) -> Response {
    let Some((pod, vmi)) = here(&state.guests, &key) else {
        return not_here(&key);
    };
    let uid = vmi.metadata.uid.clone().unwrap_or_default();
    let connected = match state.guests.pods_dir().open(&pod, "private") {
        Ok(volume) => volume.connect(&format!("{uid}/{file}")).await,
        Err(err) => Err(err),
    };
    let stream = match connected {
        Ok(stream) => stream,
        Err(err) => return no_device(device, &err),
    };
    upgrade
        .protocols([PROTOCOL])
        .on_upgrade(async move |socket| {
            let place = state.streams.take(key, device);
            device::join(socket, stream, &place.ended).await;
        })
}

async fn call(
    State(state): State<StreamsState>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Response {
    let key = Key::new(namespace, name);
    let Some((_, session)) = state.guests.session(&key) else {
        return not_here(&key);
    };
    match session.call(request).await {
        Ok(_state) => StatusCode::OK.into_response(),
        Err(CallError::Refused { message, .. }) => {
            refusal(StatusCode::CONFLICT, "Conflict", &message)
        }
        Err(err @ CallError::NotConnected) => refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            &err.to_string(),
        ),
        Err(err @ CallError::TimedOut) => {
            refusal(StatusCode::GATEWAY_TIMEOUT, "Timeout", &err.to_string())
        }
    }
}

fn here(
    guests: &Guests,
    key: &Key,
) -> Option<(crate::pods_dir::PodUid, Arc<VirtualMachineInstance>)> {
    let (pod, _) = guests.session(key)?;
    Some((pod, guests.vmi(key)?))
}

fn not_here(key: &Key) -> Response {
    refusal(
        StatusCode::NOT_FOUND,
        "NotFound",
        &format!("no guest {key} runs on this node"),
    )
}

/// QEMU makes a guest's sockets when it starts and takes them away when it ends, so that a missing
/// one says that the guest is not there yet or any more. Clients wait and ask again on that.
fn no_device(device: &str, err: &io::Error) -> Response {
    let message = format!("the guest's {device} is not there: {err}");
    match err.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            refusal(StatusCode::BAD_REQUEST, "BadRequest", &message)
        }
        _ => refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &message),
    }
}

/// A Kubernetes `Status`, so that `virt-api` may hand it on as it is.
fn refusal(code: StatusCode, reason: &str, message: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    (code, Json(status)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_is_going_or_coming_has_no_device_and_is_worth_waiting_for() {
        for (kind, code) in [
            (io::ErrorKind::NotFound, StatusCode::BAD_REQUEST),
            (io::ErrorKind::ConnectionRefused, StatusCode::BAD_REQUEST),
            (
                io::ErrorKind::InvalidData,
                StatusCode::INTERNAL_SERVER_ERROR,
            ),
        ] {
            assert_eq!(no_device("console", &kind.into()).status(), code, "{kind}");
        }
    }
}
