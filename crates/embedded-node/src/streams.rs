//! `exec` and `attach` over websockets, as `kubectl` uses them: the first byte of each message is
//! its channel.
//!
//! Supports `v5.channel.k8s.io`, where a client can close a stream, and `v4.channel.k8s.io`.
//! Clients with plain SPDY only (`kubectl` before 1.31) are refused.

use std::{io, sync::Arc, time::Duration};

use axum::{
    extract::{
        Path, Query, State, WebSocketUpgrade,
        ws::{
            CloseFrame, Message, Utf8Bytes, WebSocket, close_code,
            rejection::WebSocketUpgradeRejection,
        },
    },
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use futures::{SinkExt as _, Stream, StreamExt as _, stream};
use http::StatusCode;
use pod_supervisor::{
    exec::{Outcome, Terminal},
    status::{self as disk, State as Run},
};
use reconcile::Key;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, sync::mpsc};
use tokio_util::io::ReaderStream;

use crate::{
    endpoint,
    exec::{self, Exec, Flow, Wanted},
    node::Shared,
};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// The newest first.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
/// Clients send shorter messages.
const MAX_MESSAGE: usize = 1 << 20;
/// For remaining output after the program ended while its children keep its streams open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// For the client's pong; most respond in a millisecond.
const PONG_TIMEOUT: Duration = Duration::from_millis(200);
/// From the pong until the client has made its streams.
const STREAM_SETUP: Duration = Duration::from_millis(10);
/// Messages buffered before the pong.
const MAX_EARLY: usize = 16;

type Pairs = Query<Vec<(String, String)>>;
pub(crate) type Upgrade = Result<WebSocketUpgrade, WebSocketUpgradeRejection>;

/// `/exec/…?command=…&input=1&output=1&error=1&tty=1`
pub(crate) async fn exec(
    State(shared): State<Arc<Shared>>,
    Path(path): Path<(String, String, String)>,
    Query(pairs): Pairs,
    upgrade: Upgrade,
) -> Response {
    let found = match find_running(&shared, path) {
        Ok(found) => found,
        Err(refusal) => return *refusal,
    };
    let wanted = wanted(found.name, &pairs);
    if wanted.args.is_empty() {
        return refuse(
            StatusCode::BAD_REQUEST,
            "you must specify at least 1 command",
        );
    }
    let upgrade = match accept(upgrade) {
        Ok(upgrade) => upgrade,
        Err(refusal) => return *refusal,
    };
    let (program, dir) = (
        shared.settings.supervisor.clone(),
        shared.pod_dir(&found.pod_uid),
    );
    let first = first_channel(&wanted);
    match exec::start(&program, &dir, wanted).await {
        Ok(exec) => upgrade.on_upgrade(move |socket| session(socket, exec, first)),
        Err(error) => {
            let message = format!("error executing command in container: {error}");
            refuse(StatusCode::INTERNAL_SERVER_ERROR, &message)
        }
    }
}

/// `/attach/…?output=1&error=1`: the future output of the container. Containers have no standard
/// input.
pub(crate) async fn attach(
    State(shared): State<Arc<Shared>>,
    Path(path): Path<(String, String, String)>,
    Query(pairs): Pairs,
    upgrade: Upgrade,
) -> Response {
    let found = match find_running(&shared, path) {
        Ok(found) => found,
        Err(refusal) => return *refusal,
    };
    if is_on(&pairs, "input") {
        let message = "containers on this node have no standard input to attach to: use exec";
        return refuse(StatusCode::BAD_REQUEST, message);
    }
    let upgrade = match accept(upgrade) {
        Ok(upgrade) => upgrade,
        Err(refusal) => return *refusal,
    };
    match endpoint::follow_output(&shared, &found.pod_uid, found.name).await {
        Ok(output) => upgrade.on_upgrade(move |socket| send_output(socket, output)),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

pub(crate) fn refuse(code: StatusCode, message: &str) -> Response {
    (code, message.to_owned()).into_response()
}

/// A running container.
struct RunningContainer {
    pod_uid: String,
    name: String,
}

/// Finds the running container of a request path.
fn find_running(
    shared: &Shared,
    (namespace, name, container): (String, String, String),
) -> Result<RunningContainer, Box<Response>> {
    let not_found = |message: String| Box::new(refuse(StatusCode::NOT_FOUND, &message));
    let pod = shared
        .pods
        .get(&Key::new(namespace, name.as_str()))
        .ok_or_else(|| not_found(format!("pod {name:?} not found")))?;
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let status = disk::read(&shared.pod_dir(&uid)).ok().flatten();
    let containers = status.into_iter().flat_map(|status| status.containers);
    let runs = containers
        .into_iter()
        .any(|one| one.name == container && matches!(one.state, Run::Running { .. }));
    if runs {
        Ok(RunningContainer {
            pod_uid: uid,
            name: container,
        })
    } else {
        Err(not_found(format!("container not found ({container:?})")))
    }
}

fn accept(upgrade: Upgrade) -> Result<WebSocketUpgrade, Box<Response>> {
    let refused = || {
        let message = "this server supports websockets (v5.channel.k8s.io, v4.channel.k8s.io), not \
                       SPDY: use kubectl 1.31 or later";
        Box::new(refuse(StatusCode::BAD_REQUEST, message))
    };
    let upgrade = upgrade.map_err(|_| refused())?;
    let upgrade = upgrade.max_message_size(MAX_MESSAGE).protocols(PROTOCOLS);
    match upgrade.selected_protocol() {
        Some(_) => Ok(upgrade),
        None => Err(refused()),
    }
}

fn is_on(pairs: &[(String, String)], name: &str) -> bool {
    let on = |value: &str| matches!(value, "1" | "true");
    pairs.iter().any(|(key, value)| key == name && on(value))
}

fn wanted(container: String, pairs: &[(String, String)]) -> Wanted {
    let flow = |name| {
        if is_on(pairs, name) {
            Flow::Open
        } else {
            Flow::Closed
        }
    };
    let args = pairs.iter().filter(|(key, _)| key == "command");
    Wanted {
        container,
        args: args.map(|(_, value)| value.clone()).collect(),
        terminal: if is_on(pairs, "tty") {
            Terminal::Own
        } else {
            Terminal::None
        },
        input: flow("input"),
        output: flow("output"),
        error: flow("error"),
    }
}

/// The channel of the empty first message, which signals that the program runs.
fn first_channel(wanted: &Wanted) -> u8 {
    match (wanted.output, wanted.error, wanted.terminal) {
        (Flow::Open, _, _) => STDOUT,
        (Flow::Closed, Flow::Open, Terminal::None) => STDERR,
        _ => ERROR,
    }
}

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
async fn session(socket: WebSocket, mut exec: Exec, first: u8) {
    let (mut sink, mut source) = socket.split();
    let early = wait_for_streams(&mut sink, &mut source).await;
    let source = stream::iter(early).chain(source);
    if sink.send(message(first, &[])).await.is_err() {
        return;
    }
    let outputs = [(STDOUT, exec.output.take()), (STDERR, exec.error.take())];
    let mut output = stream::select_all(outputs.into_iter().filter_map(|(channel, read)| {
        let stream = ReaderStream::new(read?);
        Some(stream.map(move |chunk| (channel, chunk)).boxed())
    }));
    let (input, console) = (exec.input.take(), exec.console.clone());
    let mut inbound = std::pin::pin!(receive_input(source, input, console));
    let mut ended = std::pin::pin!(exec.wait());
    let mut all_read = false;
    let outcome = loop {
        tokio::select! {
            chunk = output.next(), if !all_read => match chunk {
                Some((channel, Ok(chunk))) => {
                    if sink.send(message(channel, &chunk)).await.is_err() {
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
                    && sink.send(message(channel, &chunk)).await.is_err()
                {
                    return;
                }
            }
        };
        if tokio::time::timeout(DRAIN_TIMEOUT, rest).await.is_err() {
            tracing::debug!("a child of the ended program keeps its output open");
        }
    }
    finish(&mut sink, &exit_status(outcome)).await;
}

async fn send_output(socket: WebSocket, mut output: mpsc::Receiver<Bytes>) {
    let (mut sink, mut source) = socket.split();
    let early = wait_for_streams(&mut sink, &mut source).await;
    let source = stream::iter(early).chain(source);
    if sink.send(message(STDOUT, &[])).await.is_err() {
        return;
    }
    let mut inbound = std::pin::pin!(receive_input(source, None, None));
    loop {
        tokio::select! {
            chunk = output.recv() => match chunk {
                Some(chunk) => {
                    if sink.send(message(STDOUT, &chunk)).await.is_err() {
                        return;
                    }
                }
                None => break,
            },
            () = &mut inbound => return,
        }
    }
    finish(&mut sink, &success()).await;
}

/// Sends the exit status and closes the connection.
async fn finish<S>(sink: &mut S, status: &Value)
where
    S: futures::Sink<Message, Error = axum::Error> + Unpin,
{
    let sent = sink
        .send(message(ERROR, status.to_string().as_bytes()))
        .await;
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

fn message(channel: u8, bytes: &[u8]) -> Message {
    let mut framed = Vec::with_capacity(bytes.len() + 1);
    framed.push(channel);
    framed.extend_from_slice(bytes);
    Message::Binary(framed.into())
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Size {
    width: u16,
    height: u16,
}

/// Receives standard input and terminal sizes until the client is gone.
async fn receive_input(
    mut source: impl Stream<Item = Result<Message, axum::Error>> + Unpin,
    mut input: Option<exec::Input>,
    console: Option<Arc<exec::Console>>,
) {
    while let Some(Ok(message)) = source.next().await {
        let bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Text(text) => Bytes::from(text),
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => continue,
        };
        match bytes.split_first() {
            Some((&STDIN, [])) | None => {}
            Some((&STDIN, bytes)) => {
                if let Some(to) = &mut input
                    && write_all(to, bytes).await.is_err()
                {
                    // The program has closed its standard input.
                    input = None;
                }
            }
            Some((&RESIZE, text)) => resize(console.as_deref(), text),
            Some((&CLOSE, [STDIN])) => input = None,
            Some(_) => {}
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

fn success() -> Value {
    json!({"metadata": {}, "status": "Success"})
}

/// The `Status` object where clients find the exit code.
fn exit_status(outcome: io::Result<Outcome>) -> Value {
    match outcome {
        Ok(Outcome::Exited { code: 0 }) => success(),
        Ok(Outcome::Exited { code }) => json!({
            "metadata": {},
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Ok(Outcome::Failed { message }) => internal_error(&message),
        Err(error) => internal_error(&error.to_string()),
    }
}

fn internal_error(error: &str) -> Value {
    let message = format!("error executing command in container: {error}");
    json!({
        "metadata": {},
        "status": "Failure",
        "reason": "InternalError",
        "message": format!("Internal error occurred: {message}"),
        "details": {"causes": [{"message": message}]},
        "code": 500,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exec_query_is_parsed() {
        let pairs = [
            ("command", "sh"),
            ("command", "-c"),
            ("input", "1"),
            ("output", "true"),
            ("error", "0"),
        ];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let found = wanted("c".into(), &pairs);
        assert_eq!(found.args, ["sh", "-c"]);
        assert_eq!(
            (found.input, found.output, found.error, found.terminal),
            (Flow::Open, Flow::Open, Flow::Closed, Terminal::None)
        );
        assert_eq!(first_channel(&found), STDOUT);
    }

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

    #[test]
    fn exit_codes_are_in_the_status() {
        let code = |code| exit_status(Ok(Outcome::Exited { code }));
        assert_eq!(code(0)["status"], "Success");
        let failed = code(7);
        assert_eq!(failed["reason"], "NonZeroExitCode");
        assert_eq!(
            failed["details"]["causes"][0],
            json!({"reason": "ExitCode", "message": "7"})
        );
        let message = "no such program".to_owned();
        let never = exit_status(Ok(Outcome::Failed { message }));
        assert_eq!(never["reason"], "InternalError");
    }
}
