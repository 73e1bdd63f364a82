//! Opening the console, the screen and the USB ports of a guest.

use axum::{
    extract::{Path, Query, State, WebSocketUpgrade},
    http::{HeaderValue, StatusCode},
    response::Response,
};
use model::paths;
use reconcile::Key;
use serde::Deserialize;
use tokio::net::UnixStream;

use super::{
    copy::{self, Stream},
    response::{device_error, error_response, guest_not_found},
    router::StreamsState,
};
use crate::metrics;

/// The websocket sub-protocol of all streams.
const PROTOCOL: &str = "plain.kubevirt.io";
/// Names the device whose other session was closed. Clients of `KubeVirt` ignore it.
const REPLACED: &str = "x-ferrovirt-replaced-session";
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

const USB: &str = "usbredir";
/// The sockets of the ports for devices of clients.
const USB_SOCKETS: [&str; paths::USB_SLOTS] = [
    "virt-usbredir-0",
    "virt-usbredir-1",
    "virt-usbredir-2",
    "virt-usbredir-3",
];

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

pub(super) async fn usb(
    State(state): State<StreamsState>,
    Path((namespace, name)): Path<(String, String)>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let key = Key::new(namespace, name);
    // Taken before the connection, since QEMU lets further ones wait.
    let Some(slot) = state.streams.acquire_free(&key, &USB_SOCKETS) else {
        return error_response(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            "all USB ports of the guest are in use; end another redirection",
        );
    };
    let device = Device {
        name: USB,
        socket: slot.device(),
    };
    let stream = match connect(&state, &key, device).await {
        Ok(stream) => stream,
        Err(response) => return *response,
    };
    accept(upgrade).on_upgrade(async move |socket| {
        let _counted = metrics::STREAMS.hold([USB]);
        copy::join(socket, Stream::split(stream), &slot.closed).await;
    })
}

async fn open(
    state: StreamsState,
    key: Key,
    device: Device,
    upgrade: WebSocketUpgrade,
) -> Response {
    let stream = match connect(&state, &key, device).await {
        Ok(stream) => stream,
        Err(response) => return *response,
    };
    let slot = state.streams.acquire(key, device.name);
    let has_replaced = slot.has_replaced;
    let mut response = accept(upgrade).on_upgrade(async move |socket| {
        let _counted = metrics::STREAMS.hold([device.name]);
        copy::join(socket, Stream::split(stream), &slot.closed).await;
    });
    if has_replaced {
        let device = HeaderValue::from_static(device.name);
        response.headers_mut().insert(REPLACED, device);
    }
    response
}

async fn connect(
    state: &StreamsState,
    key: &Key,
    device: Device,
) -> Result<UnixStream, Box<Response>> {
    let Some((pod, vmi)) = state.guest(key) else {
        return Err(Box::new(guest_not_found(key)));
    };
    let uid = vmi.metadata.uid.clone().unwrap_or_default();
    let connected = match state.guests.pods_dir().open(&pod, "private") {
        Ok(volume) => volume.connect(&format!("{uid}/{}", device.socket)).await,
        Err(error) => Err(error),
    };
    connected.map_err(|error| Box::new(device_error(device.name, &error)))
}

/// A websocket of our protocol, with limits on what a user may send in one piece.
pub(super) fn accept(upgrade: WebSocketUpgrade) -> WebSocketUpgrade {
    upgrade
        .protocols([PROTOCOL])
        .max_frame_size(MAX_FRAME)
        .max_message_size(MAX_FRAME)
}
