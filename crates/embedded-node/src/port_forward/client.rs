//! Serves one client: reads its frames and connects them to the pod.

use std::collections::HashMap;
use std::io;

use axum::extract::ws::{Message, WebSocket};
use bytes::Bytes;
use futures::{StreamExt as _, future::join_all, stream::SplitStream};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::mpsc,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::dial::PodNetwork;
use super::framing::{Framing, channel};
use super::open_streams::{Input, OpenStreams, Opened};
use super::spdy::{self, Frame};
use super::{CHUNKS, Malformed};

const CHUNK_SIZE: usize = 32 << 10;

/// One client and the network of its pod.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) network: PodNetwork,
    pub(super) tasks: TaskTracker,
    pub(super) out: mpsc::Sender<Vec<u8>>,
    pub(super) stop: CancellationToken,
}

impl Client {
    /// Serves SPDY frames until the client is gone or violates the protocol.
    pub(super) async fn tunnel(&self, mut source: SplitStream<WebSocket>) -> Result<(), Malformed> {
        let (mut reader, mut writer) = (spdy::Reader::new(), spdy::Writer::default());
        let mut open = OpenStreams::default();
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

    pub(super) async fn channels(
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
                // A panic is in the log; the connection ends.
                _ended = panics::confined(connection) => {}
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
