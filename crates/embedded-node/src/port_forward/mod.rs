//! `port-forward` over a websocket, in the two ways that clients speak.
//!
//! `SPDY/3.1+portforward.k8s.io` is what `kubectl` from 1.31 on speaks: SPDY, its bytes in the
//! messages of a websocket. For each connection a client opens two streams with the same number, one
//! for data and one for what goes wrong. `v4.channel.k8s.io` names its ports when it connects: a
//! byte in front of each message says which port it is for, and whether it is data or an error; each
//! port has one connection.
//!
//! **Invariants**: what a client may have open is bounded; all connections end with the client.

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
/// No client writes longer messages.
const LONGEST_MESSAGE: usize = 1 << 20;
/// Connections of one client at a time; browsers open a handful.
const MOST_CONNECTIONS: usize = 128;
/// Pieces on their way to a side that is slow; more wait at the other.
const PIECES: usize = 16;
const PIECE: usize = 32 << 10;
/// For what is left to say to a client once all connections have ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a client must not send.
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
        let why = format!("pod {name:?} is not running: it has no network to connect to");
        return refuse(StatusCode::BAD_REQUEST, &why);
    };
    let upgrade = match accepted(upgrade) {
        Ok(upgrade) => upgrade,
        Err(refusal) => return *refusal,
    };
    let is_tunnel = upgrade
        .selected_protocol()
        .is_some_and(|protocol| protocol == TUNNEL);
    let ports = match asked_ports(&pairs) {
        Ok(ports) if is_tunnel || !ports.is_empty() => ports,
        Ok(_) => return refuse(StatusCode::BAD_REQUEST, "you must name at least 1 port"),
        Err(why) => return refuse(StatusCode::BAD_REQUEST, &why),
    };
    upgrade.on_upgrade(async move |socket| {
        let stop = CancellationToken::new();
        let _ends_all = stop.clone().drop_guard();
        let (out, frames) = mpsc::channel(PIECES);
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
                tracing::debug!(%error, "port forwarding ends: the client makes no sense");
            }
        };
        let mut write = std::pin::pin!(write(sink, frames));
        tokio::select! {
            () = &mut write => return,
            () = read => {}
        }
        stop.cancel();
        if tokio::time::timeout(LAST_WORDS, write).await.is_err() {
            tracing::debug!("the client does not take what is left");
        }
    })
}

/// Until nobody has anything to say, or the client has gone.
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
        tracing::debug!(%error, "client left before the end");
    }
}

fn accepted(upgrade: Upgrade) -> Result<WebSocketUpgrade, Box<Response>> {
    let refused = || {
        let why = "this server speaks websockets (SPDY/3.1+portforward.k8s.io, v4.channel.k8s.io) \
                   and not SPDY alone: use kubectl 1.31 or later";
        Box::new(refuse(StatusCode::BAD_REQUEST, why))
    };
    let upgrade = upgrade.map_err(|_| refused())?;
    let upgrade = upgrade
        .max_message_size(LONGEST_MESSAGE)
        .protocols([TUNNEL, CHANNELS]);
    match upgrade.selected_protocol() {
        Some(_) => Ok(upgrade),
        None => Err(refused()),
    }
}

fn asked_ports(pairs: &[(String, String)]) -> Result<Vec<u16>, String> {
    let asked = pairs.iter().filter(|(key, _)| key == "port");
    let words = asked.flat_map(|(_, value)| value.split(','));
    let ports: Result<Vec<u16>, String> = words.map(port).collect();
    let ports = ports?;
    if ports.len() > MOST_CONNECTIONS {
        return Err(format!("no more than {MOST_CONNECTIONS} ports at once"));
    }
    Ok(ports)
}

fn port(text: &str) -> Result<u16, String> {
    let port = text.parse::<u16>().ok().filter(|port| *port != 0);
    port.ok_or_else(|| format!("{text:?} is not a port"))
}

/// How what comes from the pod is put for the client.
#[derive(Debug, Clone, Copy)]
enum Line {
    /// Streams for data and for errors.
    Streams { data: u32, error: u32 },
    /// Channels for the same.
    Channels { data: u8, error: u8 },
}

impl Line {
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

    /// Nothing more comes; channels cannot say so.
    fn ends(self) -> Vec<Vec<u8>> {
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

/// One client, and where its connections go.
#[derive(Debug)]
struct Client {
    network: PodNetwork,
    tasks: TaskTracker,
    out: mpsc::Sender<Vec<u8>>,
    stop: CancellationToken,
}

type Input = mpsc::Sender<Bytes>;

impl Client {
    /// Until the client has gone, or says what makes no sense.
    async fn tunnel(&self, mut source: SplitStream<WebSocket>) -> Result<(), Malformed> {
        let (mut reader, mut writer) = (spdy::Reader::new(), spdy::Writer::default());
        let mut open = Open::default();
        while let Some(bytes) = next(&mut source).await {
            reader.feed(&bytes);
            while let Some(frame) = reader.next()? {
                match frame {
                    Frame::Open { id, headers } => match open.stream(id, &headers)? {
                        Opened::Refused => self.say(spdy::refuse(id)).await,
                        Opened::Error => self.say(writer.reply(id)).await,
                        Opened::Data { error, port } => {
                            self.say(writer.reply(id)).await;
                            let line = Line::Streams { data: id, error };
                            open.inputs.insert(id, self.connect(port, line));
                        }
                    },
                    Frame::Data { id, bytes } => {
                        if let Some(input) = open.inputs.get(&id)
                            && input.send(bytes).await.is_err()
                        {
                            // The pod does not listen any more, which is its right.
                            open.inputs.remove(&id);
                        }
                    }
                    Frame::End { id } | Frame::Reset { id } => {
                        open.inputs.remove(&id);
                    }
                    Frame::Ping { id } => self.say(spdy::pong(id)).await,
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
            // Each channel begins with the port that it is for.
            for number in [data, error] {
                self.say(channel(number, &port.to_le_bytes())).await;
            }
            inputs.insert(data, self.connect(*port, Line::Channels { data, error }));
        }
        let mut ended = std::pin::pin!(join_all(inputs.values().map(Input::closed)));
        loop {
            let said = tokio::select! {
                said = next(&mut source) => said,
                _ = &mut ended => return Ok(()),
            };
            let Some(mut bytes) = said else {
                return Ok(());
            };
            if bytes.is_empty() {
                continue;
            }
            let first = bytes.split_to(1);
            let number = first.first().copied().unwrap_or_default();
            let input = inputs.get(&number);
            let input = input.ok_or(Malformed("there is no such channel"))?;
            if !bytes.is_empty() && input.send(bytes).await.is_err() {
                tracing::debug!(number, "the pod does not listen any more");
            }
        }
    }

    async fn say(&self, bytes: Vec<u8>) {
        if self.out.send(bytes).await.is_err() {
            tracing::debug!("the client has gone");
        }
    }

    /// Begins a connection; what is sent to the answer goes there, and its end is the end.
    fn connect(&self, port: u16, line: Line) -> Input {
        let (input, mut taken) = mpsc::channel(PIECES);
        let (network, out) = (self.network.clone(), self.out.clone());
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let carry = async {
                let carried = match network.dial(port).await {
                    Ok(stream) => carry(stream, &mut taken, &out, line).await,
                    Err(error) => Err(error),
                };
                let mut last = Vec::new();
                if let Err(error) = carried {
                    let text = format!("error forwarding port {port} to pod: {error}");
                    last.push(line.error(&text));
                }
                last.extend(line.ends());
                for bytes in last {
                    if out.send(bytes).await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = carry => {}
            }
            // Until now it takes, though perhaps it does not listen: its end says that all is said.
            drop(taken);
        });
        input
    }
}

/// Both ways, until the pod has said all.
async fn carry(
    stream: TcpStream,
    input: &mut mpsc::Receiver<Bytes>,
    out: &mpsc::Sender<Vec<u8>>,
    line: Line,
) -> io::Result<()> {
    let (mut from, mut to) = stream.into_split();
    let there = async {
        while let Some(bytes) = input.recv().await {
            if let Err(error) = to.write_all(&bytes).await {
                tracing::debug!(%error, "the pod does not listen any more");
                return;
            }
        }
        if let Err(error) = to.shutdown().await {
            tracing::debug!(%error, "connection to the pod had ended");
        }
    };
    let back = async {
        let mut buffer = vec![0; PIECE];
        loop {
            let count = from.read(&mut buffer).await?;
            let read = buffer.get(..count).unwrap_or_default();
            if read.is_empty() || out.send(line.data(read)).await.is_err() {
                return Ok(());
            }
        }
    };
    let (mut there, mut back) = (std::pin::pin!(there), std::pin::pin!(back));
    tokio::select! {
        () = &mut there => back.await,
        done = &mut back => done,
    }
}

/// What the client says next.
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

/// Streams that a client has opened.
#[derive(Debug, Default)]
struct Open {
    /// By the number that a connection's streams share, those that wait for their data's.
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
            Some("error") if self.errors.len() < MOST_CONNECTIONS => {
                self.errors.insert(number.to_owned(), id);
                Ok(Opened::Error)
            }
            Some("data") if self.inputs.len() < MOST_CONNECTIONS => {
                let error = self.errors.remove(number);
                let error = error.ok_or(Malformed("data comes without a stream for errors"))?;
                match port(header("port").unwrap_or_default()) {
                    Ok(port) => Ok(Opened::Data { error, port }),
                    Err(_) => Ok(Opened::Refused),
                }
            }
            Some("error" | "data") => Ok(Opened::Refused),
            _ => Err(Malformed("a stream is neither for data nor for errors")),
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
    fn streams_of_a_connection_find_each_other() {
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
    fn no_client_has_more_than_its_share() {
        let mut open = Open::default();
        for number in 0..MOST_CONNECTIONS {
            open.errors.insert(format!("x{number}"), 1);
        }
        assert_eq!(stream(&mut open, 1, "error", "80"), Ok(Opened::Refused));
    }

    #[test]
    fn ports_are_read_one_by_one_and_in_lists() {
        let pairs = |all: &[&str]| -> Vec<(String, String)> {
            let all = all.iter();
            all.map(|value| ("port".to_owned(), (*value).to_owned()))
                .collect()
        };
        assert_eq!(asked_ports(&pairs(&["80", "81,82"])), Ok(vec![80, 81, 82]));
        for wrong in ["0", "-1", "65536", "http", ""] {
            asked_ports(&pairs(&[wrong])).expect_err(wrong);
        }
    }
}
