//! Routes and the authentication of the caller.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Extension, Path, Query, Request as HttpRequest, State},
    http::StatusCode,
    middleware::{self, Next},
    response::Response,
    routing::{get, put},
};
use kubevirt_api::{VirtualMachineInstance, subresource_bodies::ScreenshotOptions};
use launcher_channel::{AgentQuestion, Request};
use reconcile::Key;
use serving::Peer;
use tokio::sync::watch;

use super::{
    active_streams::ActiveStreams,
    forward::{OpenForwards, forward},
    open::{console, usb, vnc},
    response::error_response,
    upload,
    verbs::{PNG, call, fetch, freeze, query_agent, thaw, usage},
    vsock::vsock,
};
use crate::{
    guest::{self, Guests},
    pods_dir::PodUid,
    vsock::GuestCredentials,
};

/// The common name of the only permitted caller's certificate.
const CALLER: &str = "virt-api";

#[derive(Debug, Clone)]
pub(crate) struct StreamsState {
    pub(super) guests: Arc<Guests>,
    pub(super) streams: Arc<ActiveStreams>,
    pub(super) forwards: Arc<OpenForwards>,
    /// For servers in guests.
    pub(super) credentials: watch::Receiver<Option<GuestCredentials>>,
}

impl StreamsState {
    pub(crate) fn new(
        guests: Arc<Guests>,
        credentials: watch::Receiver<Option<GuestCredentials>>,
    ) -> Self {
        Self {
            guests,
            streams: Arc::default(),
            forwards: Arc::default(),
            credentials,
        }
    }

    /// The pod and the VMI of a guest on this node.
    pub(super) fn guest(&self, key: &Key) -> Option<(PodUid, Arc<VirtualMachineInstance>)> {
        let (pod, _) = self.guests.session(key)?;
        Some((pod, self.guests.vmi(key)?))
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
        .route(&format!("{guest}/usbredir"), get(usb))
        .route(&format!("{guest}/vsock"), get(vsock))
        .route(
            &format!("{guest}/portforward/{{port}}/{{protocol}}"),
            get(forward),
        )
        .route(
            &format!("{guest}/vnc/screenshot"),
            get(|state, path, Query(options): Query<ScreenshotOptions>| {
                let move_cursor = options.move_cursor;
                fetch(state, path, Request::Screenshot { move_cursor }, PNG)
            }),
        )
        .route(&format!("{guest}/pause"), verb(|| Request::Pause))
        .route(&format!("{guest}/unpause"), verb(|| Request::Unpause))
        .route(&format!("{guest}/softreboot"), verb(|| Request::SoftReboot))
        .route(&format!("{guest}/reset"), verb(|| Request::Reset))
        .route(&format!("{guest}/freeze"), put(freeze))
        .route(&format!("{guest}/unfreeze"), put(thaw))
        .route(
            &format!("{guest}/guestosinfo"),
            get(|state, path| query_agent(state, path, AgentQuestion::Everything, guest::info)),
        )
        .route(
            &format!("{guest}/userlist"),
            get(|state, path| query_agent(state, path, AgentQuestion::Users, guest::users)),
        )
        .route(
            &format!("{guest}/filesystemlist"),
            get(|state, path| {
                query_agent(state, path, AgentQuestion::FileSystems, guest::file_systems)
            }),
        )
        .route(&format!("{guest}/usage"), get(usage))
        .route("/v1/pods/{uid}/upload", put(upload::receive))
        .layer(middleware::from_fn(require_virt_api))
        .with_state(state)
        .route("/healthz", get(|| async { "ok" }))
}

async fn require_virt_api(
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
        let message = "virt-handler accepts requests from virt-api only";
        error_response(StatusCode::FORBIDDEN, "Forbidden", message)
    }
}
