//! `port-forward` over a websocket, in the two protocols of clients.
//!
//! `SPDY/3.1+portforward.k8s.io` is the protocol of `kubectl` 1.31 and later: SPDY frames in the
//! messages of a websocket. For each connection a client opens two streams with the same request
//! ID, one for data and one for errors. `v4.channel.k8s.io` names its ports in the request: the
//! first byte of each message is the channel, data or error of one port; each port has one
//! connection.
//!
//! [`client`] serves one client, [`dial`] connects to the pod, [`open_streams`] pairs the streams of
//! [`spdy`].
//!
//! **Invariants**: the number of connections per client is bounded; all end with the client.

mod client;
mod dial;
mod framing;
mod inflate;
mod open_streams;
mod spdy;

use std::sync::Arc;
use std::time::Duration;

use axum::{
    extract::{
        Path, Query, State, WebSocketUpgrade,
        ws::{CloseFrame, Message, Utf8Bytes, WebSocket, close_code},
    },
    response::Response,
};
use futures::{SinkExt as _, StreamExt as _, stream::SplitSink};
use http::StatusCode;
use pod_supervisor::status as disk;
use reconcile::Key;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::client::Client;
use self::dial::PodNetwork;
use crate::{
    node::Shared,
    streams::{Upgrade, refuse},
};

const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
const CHANNELS: &str = "v4.channel.k8s.io";
/// Clients send shorter messages.
const MAX_MESSAGE: usize = 1 << 20;
/// Per client; browsers open a handful.
const MAX_CONNECTIONS: usize = 128;
/// Chunks buffered for a slow side; then the other side blocks.
const CHUNKS: usize = 16;
/// To send the remaining frames to a client after all connections have ended.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// A protocol violation of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct Malformed(&'static str);

/// `/portForward/…?port=80`
pub(crate) async fn port_forward(
    State(shared): State<Arc<Shared>>,
    Path((namespace, name)): Path<(String, String)>,
    Query(pairs): Query<Vec<(String, String)>>,
    upgrade: Upgrade,
) -> Response {
    let Some(pod) = shared.pods.get(&Key::new(namespace, name.as_str())) else {
        return refuse(StatusCode::NOT_FOUND, &format!("pod {name:?} not found"));
    };
    let dir = shared.pod_dir(pod.metadata.uid.as_deref().unwrap_or_default());
    let status = disk::read(&dir).ok().flatten();
    let network = status.and_then(|status| PodNetwork::of(&status).ok());
    let Some(network) = network else {
        let message = format!("pod {name:?} is not running: it has no network to connect to");
        return refuse(StatusCode::BAD_REQUEST, &message);
    };
    let upgrade = match accept(upgrade) {
        Ok(upgrade) => upgrade,
        Err(refusal) => return *refusal,
    };
    let is_tunnel = upgrade
        .selected_protocol()
        .is_some_and(|protocol| protocol == TUNNEL);
    let ports = match requested_ports(&pairs) {
        Ok(ports) if is_tunnel || !ports.is_empty() => ports,
        Ok(_) => return refuse(StatusCode::BAD_REQUEST, "you must name at least 1 port"),
        Err(message) => return refuse(StatusCode::BAD_REQUEST, &message),
    };
    upgrade.on_upgrade(async move |socket| {
        let stop = CancellationToken::new();
        let _stop_connections = stop.clone().drop_guard();
        let (out, frames) = mpsc::channel(CHUNKS);
        let client = Client {
            network,
            tasks: shared.children.clone(),
            out,
            stop,
        };
        let ports = (!is_tunnel).then_some(ports);
        // The node's log has a panic; the client sees that its stream ends.
        panics::confined(serve(socket, client, frames, ports))
            .await
            .ok();
    })
}

/// Forwards these ports; those that the client names if it tunnels.
async fn serve(
    socket: WebSocket,
    client: Client,
    frames: mpsc::Receiver<Vec<u8>>,
    ports: Option<Vec<u16>>,
) {
    let stop = client.stop.clone();
    let (sink, source) = socket.split();
    let read = async move {
        let read = match ports {
            Some(ports) => client.channels(source, &ports).await,
            None => client.tunnel(source).await,
        };
        if let Err(error) = read {
            tracing::debug!(%error, "port forwarding ended: the client violated the protocol");
        }
    };
    let mut write = std::pin::pin!(write(sink, frames));
    tokio::select! {
        () = &mut write => return,
        () = read => {}
    }
    stop.cancel();
    if tokio::time::timeout(FLUSH_TIMEOUT, write).await.is_err() {
        tracing::debug!("client did not read the remaining frames");
    }
}

/// Sends frames until all senders are dropped or the client is gone.
async fn write(mut sink: SplitSink<WebSocket, Message>, mut frames: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = frames.recv().await {
        if sink.send(Message::Binary(bytes.into())).await.is_err() {
            return;
        }
    }
    let normal = CloseFrame {
        code: close_code::NORMAL,
        reason: Utf8Bytes::default(),
    };
    if let Err(error) = sink.send(Message::Close(Some(normal))).await {
        tracing::debug!(%error, "client disconnected before the close frame");
    }
}

fn accept(upgrade: Upgrade) -> Result<WebSocketUpgrade, Box<Response>> {
    let refused = || {
        let message = "this server supports websockets (SPDY/3.1+portforward.k8s.io, \
                       v4.channel.k8s.io), not plain SPDY: use kubectl 1.31 or later";
        Box::new(refuse(StatusCode::BAD_REQUEST, message))
    };
    let upgrade = upgrade.map_err(|_| refused())?;
    let upgrade = upgrade
        .max_message_size(MAX_MESSAGE)
        .protocols([TUNNEL, CHANNELS]);
    match upgrade.selected_protocol() {
        Some(_) => Ok(upgrade),
        None => Err(refused()),
    }
}

fn requested_ports(pairs: &[(String, String)]) -> Result<Vec<u16>, String> {
    let values = pairs.iter().filter(|(key, _)| key == "port");
    let texts = values.flat_map(|(_, value)| value.split(','));
    let ports: Result<Vec<u16>, String> = texts.map(port).collect();
    let ports = ports?;
    if ports.len() > MAX_CONNECTIONS {
        return Err(format!("at most {MAX_CONNECTIONS} ports are allowed"));
    }
    Ok(ports)
}

fn port(text: &str) -> Result<u16, String> {
    let port = text.parse::<u16>().ok().filter(|port| *port != 0);
    port.ok_or_else(|| format!("{text:?} is not a port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_single_or_comma_separated() {
        let pairs = |all: &[&str]| -> Vec<(String, String)> {
            let all = all.iter();
            all.map(|value| ("port".to_owned(), (*value).to_owned()))
                .collect()
        };
        assert_eq!(
            requested_ports(&pairs(&["80", "81,82"])),
            Ok(vec![80, 81, 82])
        );
        for wrong in ["0", "-1", "65536", "http", ""] {
            requested_ports(&pairs(&[wrong])).expect_err(wrong);
        }
    }
}
