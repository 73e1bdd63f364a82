//! `port-forward` over a websocket, in the two protocols of clients.
//!
//! `SPDY/3.1+portforward.k8s.io` is the protocol of `kubectl` 1.31 and later: SPDY frames in the
//! messages of a websocket. For each connection a client opens two streams with the same request
//! ID, one for data and one for errors. `v4.channel.k8s.io` names its ports in the request: the
//! first byte of each message is the channel, data or error of one port; each port has one
//! connection.
//!
//! **Invariants**: the number of connections per client is bounded; all end with the client.

mod dial;
mod inflate;
mod spdy;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::{
    extract::{
        Path, Query, State, WebSocketUpgrade,
        ws::{CloseFrame, Message, Utf8Bytes, WebSocket, close_code},
    },
    response::Response,
};
use bytes::Bytes;
use futures::{
    SinkExt as _, StreamExt as _,
    future::join_all,
    stream::{SplitSink, SplitStream},
};
use http::StatusCode;
use pod_supervisor::status as disk;
use reconcile::Key;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::mpsc,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::dial::PodNetwork;
use self::spdy::Frame;
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
const CHUNK_SIZE: usize = 32 << 10;
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
            stop: stop.clone(),
        };
        let (sink, source) = socket.split();
        let read = async move {
            let read = if is_tunnel {
                client.tunnel(source).await
            } else {
                client.channels(source, &ports).await
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
    })
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

/// How data from the pod is framed for the client.
#[derive(Debug, Clone, Copy)]
enum Framing {
    /// SPDY streams for data and for errors.
    Streams { data: u32, error: u32 },
    /// Channels for data and for errors.
    Channels { data: u8, error: u8 },
}

impl Framing {
    fn data(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Streams { data, .. } => spdy::data(data, bytes),
            Self::Channels { data, .. } => channel(data, bytes),
        }
    }

    fn error(self, text: &str) -> Vec<u8> {
        match self {
            Self::Streams { error, .. } => spdy::data(error, text.as_bytes()),
            Self::Channels { error, .. } => channel(error, text.as_bytes()),
        }
    }

    /// The frames that end the streams; channels have none.
    fn end(self) -> Vec<Vec<u8>> {
        match self {
            Self::Streams { data, error } => vec![spdy::end(data), spdy::end(error)],
            Self::Channels { .. } => Vec::new(),
        }
    }
}

fn channel(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut framed = vec![number];
    framed.extend_from_slice(bytes);
    framed
}

/// One client and the network of its pod.
#[derive(Debug)]
struct Client {
    network: PodNetwork,
    tasks: TaskTracker,
    out: mpsc::Sender<Vec<u8>>,
    stop: CancellationToken,
}

type Input = mpsc::Sender<Bytes>;

impl Client {
    /// Serves SPDY frames until the client is gone or violates the protocol.
    async fn tunnel(&self, mut source: SplitStream<WebSocket>) -> Result<(), Malformed> {
        let (mut reader, mut writer) = (spdy::Reader::new(), spdy::Writer::default());
        let mut open = Open::default();
        while let Some(bytes) = next(&mut source).await {
            reader.feed(&bytes);
            while let Some(frame) = reader.next()? {
                match frame {
                    Frame::Open { id, headers } => match open.stream(id, &headers)? {
                        Opened::Refused => self.send(spdy::refuse(id)).await,
                        Opened::Error => self.send(writer.reply(id)).await,
                        Opened::Data { error, port } => {
                            self.send(writer.reply(id)).await;
                            let framing = Framing::Streams { data: id, error };
                            open.inputs.insert(id, self.connect(port, framing));
                        }
                    },
                    Frame::Data { id, bytes } => {
                        if let Some(input) = open.inputs.get(&id)
                            && input.send(bytes).await.is_err()
                        {
                            // The pod has closed its side of the connection.
                            open.inputs.remove(&id);
                        }
                    }
                    Frame::End { id } | Frame::Reset { id } => {
                        open.inputs.remove(&id);
                    }
                    Frame::Ping { id } => self.send(spdy::pong(id)).await,
                    Frame::GoAway => return Ok(()),
                }
            }
        }
        Ok(())
    }

    async fn channels(
        &self,
        mut source: SplitStream<WebSocket>,
        ports: &[u16],
    ) -> Result<(), Malformed> {
        let mut inputs: HashMap<u8, Input> = HashMap::new();
        for (index, port) in ports.iter().enumerate() {
            let index = u8::try_from(index).unwrap_or(u8::MAX);
            let data = index.saturating_mul(2);
            let error = data.saturating_add(1);
            // The first message of each channel is its port.
            for number in [data, error] {
                self.send(channel(number, &port.to_le_bytes())).await;
            }
            inputs.insert(data, self.connect(*port, Framing::Channels { data, error }));
        }
        let mut ended = std::pin::pin!(join_all(inputs.values().map(Input::closed)));
        loop {
            let received = tokio::select! {
                received = next(&mut source) => received,
                _ = &mut ended => return Ok(()),
            };
            let Some(mut bytes) = received else {
                return Ok(());
            };
            if bytes.is_empty() {
                continue;
            }
            let first = bytes.split_to(1);
            let number = first.first().copied().unwrap_or_default();
            let input = inputs.get(&number);
            let input = input.ok_or(Malformed("unknown channel"))?;
            if !bytes.is_empty() && input.send(bytes).await.is_err() {
                tracing::debug!(number, "pod closed the connection");
            }
        }
    }

    async fn send(&self, bytes: Vec<u8>) {
        if self.out.send(bytes).await.is_err() {
            tracing::debug!("client is gone");
        }
    }

    /// Starts a connection to the pod. Data sent to the returned channel goes to the pod; dropping
    /// the channel ends that direction.
    fn connect(&self, port: u16, framing: Framing) -> Input {
        let (input, mut to_pod) = mpsc::channel(CHUNKS);
        let (network, out) = (self.network.clone(), self.out.clone());
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let connection = async {
                let copied = match network.dial(port).await {
                    Ok(stream) => copy_both(stream, &mut to_pod, &out, framing).await,
                    Err(error) => Err(error),
                };
                let mut final_frames = Vec::new();
                if let Err(error) = copied {
                    let text = format!("error forwarding port {port} to pod: {error}");
                    final_frames.push(framing.error(&text));
                }
                final_frames.extend(framing.end());
                for bytes in final_frames {
                    if out.send(bytes).await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = connection => {}
            }
            // Closes the channel only now: `closed()` means that the connection has ended.
            drop(to_pod);
        });
        input
    }
}

/// Copies in both directions until the pod closes its side.
async fn copy_both(
    stream: TcpStream,
    input: &mut mpsc::Receiver<Bytes>,
    out: &mpsc::Sender<Vec<u8>>,
    framing: Framing,
) -> io::Result<()> {
    let (mut from, mut to) = stream.into_split();
    let upstream = async {
        while let Some(bytes) = input.recv().await {
            if let Err(error) = to.write_all(&bytes).await {
                tracing::debug!(%error, "pod closed the connection");
                return;
            }
        }
        if let Err(error) = to.shutdown().await {
            tracing::debug!(%error, "connection to the pod has already ended");
        }
    };
    let downstream = async {
        let mut buffer = vec![0; CHUNK_SIZE];
        loop {
            let count = from.read(&mut buffer).await?;
            let read = buffer.get(..count).unwrap_or_default();
            if read.is_empty() || out.send(framing.data(read)).await.is_err() {
                return Ok(());
            }
        }
    };
    let (mut upstream, mut downstream) = (std::pin::pin!(upstream), std::pin::pin!(downstream));
    tokio::select! {
        () = &mut upstream => downstream.await,
        done = &mut downstream => done,
    }
}

/// The next message of the client.
async fn next(source: &mut SplitStream<WebSocket>) -> Option<Bytes> {
    loop {
        match source.next().await?.ok()? {
            Message::Binary(bytes) => return Some(bytes),
            Message::Text(text) => return Some(Bytes::from(text)),
            Message::Close(_) => return None,
            Message::Ping(_) | Message::Pong(_) => {}
        }
    }
}

/// The SPDY streams of a client.
#[derive(Debug, Default)]
struct Open {
    /// Error streams whose data stream is not open yet, by request ID.
    errors: HashMap<String, u32>,
    inputs: HashMap<u32, Input>,
}

#[derive(Debug, PartialEq, Eq)]
enum Opened {
    Error,
    Data { error: u32, port: u16 },
    Refused,
}

impl Open {
    fn stream(&mut self, id: u32, headers: &[(String, String)]) -> Result<Opened, Malformed> {
        let header = |name: &str| {
            let mut all = headers.iter();
            let found = all.find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.as_str())
        };
        self.inputs.retain(|_, input| !input.is_closed());
        let number = header("requestid").unwrap_or_default();
        match header("streamtype") {
            Some("error") if self.errors.len() < MAX_CONNECTIONS => {
                self.errors.insert(number.to_owned(), id);
                Ok(Opened::Error)
            }
            Some("data") if self.inputs.len() < MAX_CONNECTIONS => {
                let error = self.errors.remove(number);
                let error = error.ok_or(Malformed("data stream without error stream"))?;
                match port(header("port").unwrap_or_default()) {
                    Ok(port) => Ok(Opened::Data { error, port }),
                    Err(_) => Ok(Opened::Refused),
                }
            }
            Some("error" | "data") => Ok(Opened::Refused),
            _ => Err(Malformed("unknown stream type")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(open: &mut Open, id: u32, kind: &str, port: &str) -> Result<Opened, Malformed> {
        let pairs = [("streamType", kind), ("port", port), ("requestID", "7")];
        let headers = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        open.stream(id, &headers)
    }

    #[test]
    fn error_and_data_streams_are_paired() {
        let mut open = Open::default();
        assert_eq!(stream(&mut open, 1, "error", "80"), Ok(Opened::Error));
        let data = Opened::Data { error: 1, port: 80 };
        assert_eq!(stream(&mut open, 3, "data", "80"), Ok(data));
        stream(&mut open, 5, "data", "80").expect_err("without one for errors");
        stream(&mut open, 7, "neither", "80").expect_err("neither");
        assert_eq!(stream(&mut open, 9, "error", "80"), Ok(Opened::Error));
        assert_eq!(stream(&mut open, 11, "data", "0"), Ok(Opened::Refused));
    }

    #[test]
    fn streams_per_client_are_bounded() {
        let mut open = Open::default();
        for number in 0..MAX_CONNECTIONS {
            open.errors.insert(format!("x{number}"), 1);
        }
        assert_eq!(stream(&mut open, 1, "error", "80"), Ok(Opened::Refused));
    }

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
