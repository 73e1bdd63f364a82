//! Opening the console and the screen of a guest.

use axum::{
    extract::{Path, Query, State, WebSocketUpgrade},
    http::StatusCode,
    response::Response,
};
use reconcile::Key;
use serde::Deserialize;

use super::{
    copy::{self, Stream},
    response::{device_error, error_response, guest_not_found},
    router::StreamsState,
};
use crate::metrics;

/// The websocket sub-protocol of all streams.
const PROTOCOL: &str = "plain.kubevirt.io";
/// Limit on a frame from the user, in bytes; clients send at most 64 KiB.
const MAX_FRAME: usize = 1 << 20;

/// A device of a guest with its socket in the pod.
#[derive(Debug, Clone, Copy)]
struct Device {
    name: &'static str,
    socket: &'static str,
}

const CONSOLE: Device = Device {
    name: "console",
    socket: "virt-serial0",
};
const VNC: Device = Device {
    name: "vnc",
    socket: "virt-vnc",
};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VncOptions {
    #[serde(default)]
    preserve_session: bool,
}

pub(super) async fn console(
    State(state): State<StreamsState>,
    Path((namespace, name)): Path<(String, String)>,
    upgrade: WebSocketUpgrade,
) -> Response {
    open(state, Key::new(namespace, name), CONSOLE, upgrade).await
}

pub(super) async fn vnc(
    State(state): State<StreamsState>,
    Path((namespace, name)): Path<(String, String)>,
    Query(options): Query<VncOptions>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let key = Key::new(namespace, name);
    if options.preserve_session && state.streams.is_active(&key, VNC.name) {
        let message = "another VNC session is open and preserveSession is set";
        return error_response(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            message,
        );
    }
    open(state, key, VNC, upgrade).await
}

async fn open(
    state: StreamsState,
    key: Key,
    device: Device,
    upgrade: WebSocketUpgrade,
) -> Response {
    let Some((pod, vmi)) = state.guest(&key) else {
        return guest_not_found(&key);
    };
    let uid = vmi.metadata.uid.clone().unwrap_or_default();
    let connected = match state.guests.pods_dir().open(&pod, "private") {
        Ok(volume) => volume.connect(&format!("{uid}/{}", device.socket)).await,
        Err(error) => Err(error),
    };
    let stream = match connected {
        Ok(stream) => stream,
        Err(error) => return device_error(device.name, &error),
    };
    accept(upgrade).on_upgrade(async move |socket| {
        let slot = state.streams.acquire(key, device.name);
        let _counted = metrics::STREAMS.hold([device.name]);
        copy::join(socket, Stream::split(stream), &slot.closed).await;
    })
}

/// A websocket of our protocol, with limits on what a user may send in one piece.
pub(super) fn accept(upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    upgrade
        .protocols([PROTOCOL])
        .max_frame_size(MAX_FRAME)
        .max_message_size(MAX_FRAME)
}
