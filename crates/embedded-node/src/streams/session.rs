//! Serves a websocket of `exec` or `attach` until the program ends or the client is gone.

use std::{io, sync::Arc, time::Duration};

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, close_code};
use bytes::Bytes;
use futures::{SinkExt as _, Stream, StreamExt as _, stream};
use pod_supervisor::terminal::size_frame;
use serde::Deserialize;
use serde_json::Value;
use tokio::{io::AsyncWriteExt as _, net::UnixStream, sync::mpsc};
use tokio_util::io::ReaderStream;

use super::{
    ERROR, STDERR, STDOUT,
    exit_status::{exit_status, success},
    protocol::Protocol,
    terminal,
};
use crate::exec::{self, Exec, Flow};

const STDIN: u8 = 0;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// For remaining output after the program ended while its children keep its streams open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// For the client's pong; most respond in a millisecond.
const PONG_TIMEOUT: Duration = Duration::from_millis(200);
/// From the pong until the client has made its streams.
const STREAM_SETUP: Duration = Duration::from_millis(10);
/// Messages buffered before the pong.
const MAX_EARLY: usize = 16;

/// Waits until the client can receive output. `kubectl` starts to read before it has made its
/// streams and discards messages for streams it does not have yet, so early output would be lost.
/// Returns the messages received meanwhile.
async fn wait_for_streams<Si, So>(sink: &mut Si, source: &mut So) -> Vec<So::Item>
where
    Si: futures::Sink<Message, Error = axum::Error> + Unpin,
    So: Stream<Item = Result<Message, axum::Error>> + Unpin,
{
    let mut early = Vec::new();
    if sink.send(Message::Ping(Bytes::new())).await.is_err() {
        return early;
    }
    let reads = async {
        while let Some(message) = source.next().await {
            if matches!(message, Ok(Message::Pong(_))) {
                return;
            }
            early.push(message);
            if early.len() == MAX_EARLY {
                return;
            }
        }
    };
    if tokio::time::timeout(PONG_TIMEOUT, reads).await.is_err() {
        tracing::debug!("client did not respond to a ping");
    }
    tokio::time::sleep(STREAM_SETUP).await;
    early
}

/// Copies the streams until the program ends or the client is gone.
/// `first` is the channel of the first message.
pub(super) async fn run(socket: WebSocket, mut exec: Exec, (protocol, first): (Protocol, u8)) {
    let (mut sink, mut source) = socket.split();
    let early = wait_for_streams(&mut sink, &mut source).await;
    let source = stream::iter(early).chain(source);
    if sink.send(protocol.message(first, &[])).await.is_err() {
        return;
    }
    let outputs = [(STDOUT, exec.output.take()), (STDERR, exec.error.take())];
    let mut output = stream::select_all(outputs.into_iter().filter_map(|(channel, read)| {
        let stream = ReaderStream::new(read?);
        Some(stream.map(move |chunk| (channel, chunk)).boxed())
    }));
    let (input, console) = (exec.input.take(), exec.console.clone());
    let mut inbound = std::pin::pin!(receive_input(protocol.parsed(source), input, console));
    let mut ended = std::pin::pin!(exec.wait());
    let mut all_read = false;
    let outcome = loop {
        tokio::select! {
            chunk = output.next(), if !all_read => match chunk {
                Some((channel, Ok(chunk))) => {
                    if sink.send(protocol.message(channel, &chunk)).await.is_err() {
                        return;
                    }
                }
                Some((_, Err(error))) => tracing::debug!(%error, "output of the program cannot be read"),
                None => all_read = true,
            },
            // The client is gone; dropping `exec` ends the program.
            () = &mut inbound => return,
            outcome = &mut ended => break outcome,
        }
    };
    if !all_read {
        let rest = async {
            while let Some((channel, chunk)) = output.next().await {
                if let Ok(chunk) = chunk
                    && sink.send(protocol.message(channel, &chunk)).await.is_err()
                {
                    return;
                }
            }
        };
        if tokio::time::timeout(DRAIN_TIMEOUT, rest).await.is_err() {
            tracing::debug!("a child of the ended program keeps its output open");
        }
    }
    finish(&mut sink, protocol, &exit_status(outcome)).await;
}

/// Connects the client to an attached container until its output ends.
pub(super) async fn attach(
    socket: WebSocket,
    (input, mut output): (Option<exec::Input>, mpsc::Receiver<Bytes>),
    protocol: Protocol,
) {
    let (mut sink, mut source) = socket.split();
    let early = wait_for_streams(&mut sink, &mut source).await;
    let source = stream::iter(early).chain(source);
    if sink.send(protocol.message(STDOUT, &[])).await.is_err() {
        return;
    }
    let mut inbound = std::pin::pin!(receive_input(protocol.parsed(source), input, None));
    loop {
        tokio::select! {
            chunk = output.recv() => match chunk {
                Some(chunk) => {
                    if sink.send(protocol.message(STDOUT, &chunk)).await.is_err() {
                        return;
                    }
                }
                None => break,
            },
            () = &mut inbound => return,
        }
    }
    finish(&mut sink, protocol, &success()).await;
}

/// Connects the client to the terminal of a container until either is gone.
pub(super) async fn attach_to_terminal(
    socket: WebSocket,
    (connection, input): (UnixStream, Flow),
    protocol: Protocol,
) {
    let (mut sink, mut source) = socket.split();
    let early = wait_for_streams(&mut sink, &mut source).await;
    let source = stream::iter(early).chain(source);
    if sink.send(protocol.message(STDOUT, &[])).await.is_err() {
        return;
    }
    let (read, mut write) = connection.into_split();
    let mut output = ReaderStream::new(read);
    let mut messages = std::pin::pin!(protocol.parsed(source));
    let receiving = async {
        while let Some(Ok(chunk)) = output.next().await {
            if sink.send(protocol.message(STDOUT, &chunk)).await.is_err() {
                return false;
            }
        }
        true
    };
    // Beside it: a program that reads no input may have much output.
    let sending = async {
        while let Some(message) = messages.next().await {
            let sent = match message {
                (STDIN, bytes) if input == Flow::Open => {
                    terminal::send_input(&mut write, &bytes).await
                }
                (RESIZE, text) => match serde_json::from_slice::<Size>(&text) {
                    Ok(size) => write.write_all(&size_frame(size.width, size.height)).await,
                    Err(_) => Ok(()),
                },
                _ => Ok(()),
            };
            // What the program has written is still to be read.
            if let Err(error) = sent {
                tracing::debug!(%error, "the terminal takes no input");
            }
        }
    };
    let has_ended = tokio::select! {
        has_ended = receiving => has_ended,
        () = sending => false,
    };
    if has_ended {
        finish(&mut sink, protocol, &success()).await;
    }
}

/// Sends the exit status and closes the connection.
async fn finish<S>(sink: &mut S, protocol: Protocol, status: &Value)
where
    S: futures::Sink<Message, Error = axum::Error> + Unpin,
{
    let sent = match protocol.end(status) {
        Some(end) => sink.send(protocol.message(ERROR, end.as_bytes())).await,
        None => Ok(()),
    };
    let closed = match sent {
        // Clients treat a close frame without a code as an error.
        Ok(()) => {
            let normal = CloseFrame {
                code: close_code::NORMAL,
                reason: Utf8Bytes::default(),
            };
            sink.send(Message::Close(Some(normal))).await
        }
        Err(error) => Err(error),
    };
    if let Err(error) = closed {
        tracing::debug!(%error, "client disconnected before the close frame");
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Size {
    width: u16,
    height: u16,
}

impl Protocol {
    /// The messages of a client with their channels, until the client is gone.
    fn parsed(
        self,
        source: impl Stream<Item = Result<Message, axum::Error>> + Unpin,
    ) -> impl Stream<Item = (u8, Bytes)> {
        let messages = source.scan((), |(), message| {
            std::future::ready(match message {
                Ok(Message::Binary(bytes)) => Some(Some(bytes)),
                Ok(Message::Text(text)) => Some(Some(Bytes::from(text))),
                Ok(Message::Ping(_) | Message::Pong(_)) => Some(None),
                Ok(Message::Close(_)) | Err(_) => None,
            })
        });
        messages
            .filter_map(move |bytes| std::future::ready(bytes.and_then(|bytes| self.parse(&bytes))))
    }
}

/// Receives standard input and terminal sizes until the client is gone.
async fn receive_input(
    source: impl Stream<Item = (u8, Bytes)>,
    mut input: Option<exec::Input>,
    console: Option<Arc<exec::Console>>,
) {
    let mut source = std::pin::pin!(source);
    while let Some((channel, bytes)) = source.next().await {
        match (channel, bytes.as_ref()) {
            (STDIN, []) => {}
            (STDIN, bytes) => {
                if let Some(to) = &mut input
                    && write_all(to, bytes).await.is_err()
                {
                    // The program has closed its standard input.
                    input = None;
                }
            }
            (RESIZE, text) => resize(console.as_deref(), text),
            (CLOSE, [STDIN]) => input = None,
            _ => {}
        }
    }
}

async fn write_all(to: &mut exec::Input, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

fn resize(console: Option<&exec::Console>, text: &[u8]) {
    let Some(console) = console else { return };
    let Ok(size) = serde_json::from_slice::<Size>(text) else {
        return;
    };
    if let Err(error) = console.resize(size.width, size.height) {
        tracing::debug!(%error, "terminal cannot be resized");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn early_messages_are_kept_until_the_pong() {
        let text_message = |text: &'static str| Ok(Message::Text(text.into()));
        let pong = Ok(Message::Pong(Bytes::new()));
        let quick =
            stream::iter([text_message("a"), pong, text_message("b")]).chain(stream::pending());
        let silent = stream::iter([text_message("a"), text_message("b")]).chain(stream::pending());
        let flood = stream::iter((0..100).map(|_| text_message("a"))).chain(stream::pending());
        for (mut source, kept) in [
            (quick.boxed(), 1),
            (silent.boxed(), 2),
            (flood.boxed(), MAX_EARLY),
        ] {
            let mut sink = futures::sink::drain().sink_map_err(|never| match never {});
            let early = wait_for_streams(&mut sink, &mut source).await;
            assert_eq!(early.len(), kept);
        }
    }
}
