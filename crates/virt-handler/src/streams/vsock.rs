//! Connecting to a port of a guest over the vsock.
//!
//! **Invariant**: the address is that of the VMI and of its QEMU, so that no user reaches another guest, or another
//! program of the node.

use std::io;

use axum::{
    extract::{Path, Query, State, WebSocketUpgrade},
    http::StatusCode,
    response::Response,
};
use host_net::connect_vsock;
use reconcile::Key;
use rustix::io::Errno;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::{
    copy::{self, Stream},
    open::accept,
    response::{error_response, guest_not_found},
    router::StreamsState,
};
use crate::{launcher::Peer, metrics};

const DEVICE: &str = "vsock";

#[derive(Debug, Deserialize)]
pub(super) struct VsockOptions {
    port: u32,
}

pub(super) async fn vsock(
    State(state): State<StreamsState>,
    Path((namespace, name)): Path<(String, String)>,
    Query(options): Query<VsockOptions>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let key = Key::new(namespace, name);
    let found = state.guest(&key).zip(state.guests.session(&key));
    let Some(((_, vmi), (_, session))) = found else {
        return guest_not_found(&key);
    };
    let slot = match state.forwards.acquire(&key) {
        Ok(slot) => slot,
        Err(full) => {
            let code = StatusCode::TOO_MANY_REQUESTS;
            return error_response(code, "TooManyRequests", &full.to_string());
        }
    };
    let address = vmi.status.as_ref().and_then(|status| status.vsock_cid);
    let address = match of_guest(address, session.link().peer.as_deref()) {
        Ok(address) => address,
        Err(message) => return error_response(StatusCode::BAD_REQUEST, "BadRequest", &message),
    };
    let stream = match connect_vsock(address, options.port).await {
        Ok(stream) => stream,
        Err(error) => {
            let message = failure(options.port, &error);
            let code = StatusCode::INTERNAL_SERVER_ERROR;
            return error_response(code, "InternalError", &message);
        }
    };
    accept(upgrade).on_upgrade(async move |socket| {
        let _slot = slot;
        let _counted = metrics::STREAMS.hold([DEVICE]);
        copy::join(socket, Stream::split(stream), &CancellationToken::new()).await;
    })
}

/// The address, if the guest's QEMU has it.
fn of_guest(address: Option<u32>, peer: Option<&Peer>) -> Result<u32, String> {
    let address = address.ok_or("the guest has no address on the vsock")?;
    let peer = peer.ok_or("the pod's launcher is not connected")?;
    match peer.has_vsock(address) {
        Ok(true) => Ok(address),
        Ok(false) => Err(format!(
            "the guest does not run with the vsock address {address} of its VMI: restart it"
        )),
        Err(error) => Err(format!("find the vsock of the guest: {error}")),
    }
}

/// Why a port is not reached, and what to do.
fn failure(port: u32, error: &io::Error) -> String {
    let why = match Errno::from_io_error(error) {
        Some(Errno::NODEV | Errno::AFNOSUPPORT) => {
            "the node has no /dev/vhost-vsock: load its module vhost_vsock"
        }
        Some(Errno::CONNRESET | Errno::CONNREFUSED) => "nothing in the guest listens there",
        _ if error.kind() == io::ErrorKind::TimedOut => {
            "the guest does not answer: it may have no driver for the vsock"
        }
        _ => "",
    };
    let separator = if why.is_empty() { "" } else { ": " };
    format!("dial vsock port {port} of the guest: {error}{separator}{why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_says_what_to_do() {
        let message = |errno: Errno| failure(1024, &errno.into());
        for (errno, remedy) in [
            (Errno::NODEV, "load its module vhost_vsock"),
            (Errno::AFNOSUPPORT, "load its module vhost_vsock"),
            (Errno::CONNRESET, "nothing in the guest listens there"),
            (Errno::TIMEDOUT, "may have no driver for the vsock"),
        ] {
            let message = message(errno);
            assert!(message.starts_with("dial vsock port 1024 of the guest: "));
            assert!(message.ends_with(remedy), "{message}");
        }
        assert!(message(Errno::PERM).ends_with("(os error 1)"));
    }

    #[test]
    fn guest_without_address_or_launcher_is_refused() {
        let refused = |address, peer| of_guest(address, peer).unwrap_err();
        assert_eq!(refused(None, None), "the guest has no address on the vsock");
        assert_eq!(
            refused(Some(3), None),
            "the pod's launcher is not connected"
        );
    }
}
