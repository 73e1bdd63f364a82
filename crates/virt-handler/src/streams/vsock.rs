//! Connecting to a port of a guest over the vsock.
//!
//! With TLS, virt-handler shows the guest its certificate; that of the guest is not checked, as in `KubeVirt`: the
//! address says which guest it is.
//!
//! **Invariant**: the address is that of the VMI and of its QEMU, so that no user reaches another guest, or another
//! program of the node.

use std::{io, time::Duration};

use axum::{
    extract::{Path, Query, State, WebSocketUpgrade},
    http::StatusCode,
    response::Response,
};
use host_net::connect_vsock;
use reconcile::Key;
use rustix::io::Errno;
use serde::Deserialize;
use serving::{Identity, unverified::connect_as};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::{
    copy::{self, Stream},
    open::accept,
    response::{error_response, guest_not_found},
    router::StreamsState,
};
use crate::{launcher::Peer, metrics};

const DEVICE: &str = "vsock";
/// Time limit of a TLS handshake with a guest.
const HANDSHAKE: Duration = Duration::from_secs(10);

#[derive(Debug, Deserialize)]
pub(super) struct VsockOptions {
    port: u32,
    #[serde(default)]
    tls: bool,
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
    let credentials = state.credentials.borrow().clone();
    if options.tls && credentials.is_none() {
        let message = "virt-handler has no certificate for servers in guests yet: try again";
        return error_response(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            message,
        );
    }
    let stream = match connect_vsock(address, options.port).await {
        Ok(stream) => stream,
        Err(error) => return not_reached(&failure(options.port, &error)),
    };
    let Some(credentials) = credentials.filter(|_| options.tls) else {
        return accept(upgrade).on_upgrade(async move |socket| {
            let _slot = slot;
            let _counted = metrics::STREAMS.hold([DEVICE]);
            copy::join(socket, Stream::split(stream), &CancellationToken::new()).await;
        });
    };
    let stream = match handshake(stream, &credentials.identity).await {
        Ok(stream) => stream,
        Err(error) => return not_reached(&tls_failure(options.port, &error)),
    };
    accept(upgrade).on_upgrade(async move |socket| {
        let _slot = slot;
        let _counted = metrics::STREAMS.hold([DEVICE]);
        copy::join(socket, Stream::split(stream), &CancellationToken::new()).await;
    })
}

fn not_reached(message: &str) -> Response {
    error_response(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
}

/// TLS to the server in the guest.
async fn handshake<S>(
    stream: S,
    identity: &Identity,
) -> io::Result<impl AsyncRead + AsyncWrite + Send + use<S>>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let connected = connect_as(stream, identity);
    let connected = tokio::time::timeout(HANDSHAKE, connected).await;
    connected.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Why there is no TLS, and what to do.
fn tls_failure(port: u32, error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::TimedOut => "the server does not answer in time",
        io::ErrorKind::InvalidData => "the server speaks no TLS, or none that both know",
        _ => "the server closes the connection",
    };
    format!(
        "TLS to vsock port {port} of the guest: {error}: {why}: a server without TLS is reached with tls=false"
    )
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
    use jiff::{SignedDuration, Timestamp};
    use serving::{Authority, Leaf, Validity};
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::VSOCK_CLIENT;

    const DAY: SignedDuration = SignedDuration::from_hours(24);

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

    #[tokio::test(start_paused = true)]
    async fn server_without_tls_is_named() {
        let authority = Authority::create("a", Validity::starting(Timestamp::now(), DAY)).unwrap();
        let validity = Validity::starting(Timestamp::now(), DAY);
        let leaf = Leaf::user(VSOCK_CLIENT, &[], validity);
        let identity = authority.issue(&leaf).unwrap();
        // One that waits for the client to begin, one that speaks first, and one that goes.
        for (greeting, stays, expected) in [
            ("", true, ": the server does not answer in time: "),
            (
                "hello, this is not TLS",
                true,
                ": the server speaks no TLS, ",
            ),
            ("", false, ": the server closes the connection: "),
        ] {
            let (near, mut far) = tokio::io::duplex(1 << 10);
            far.write_all(greeting.as_bytes()).await.unwrap();
            let far = stays.then_some(far);
            let error = handshake(near, &identity).await.err().unwrap();
            let message = tls_failure(1024, &error);
            assert!(message.contains(expected), "{message}");
            drop(far);
        }
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
