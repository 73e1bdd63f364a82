//! `exec` and `attach` over websockets, as `kubectl` speaks them: a byte in front of each message
//! says which stream it belongs to.
//!
//! Spoken are `v5.channel.k8s.io` and `v4.channel.k8s.io`; in the former a client can also say that
//! a stream has ended. Clients that know SPDY alone (`kubectl` before 1.31) are refused.

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
/// No client writes longer messages.
const LONGEST_MESSAGE: usize = 1 << 20;
/// For output of a program that has ended, if something it started holds its streams.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// For a client to show that it reads; most do so in a millisecond.
const READS_WITHIN: Duration = Duration::from_millis(200);
/// From then on until its streams are there.
const MAKES_STREAMS_WITHIN: Duration = Duration::from_millis(10);
/// Messages that are kept meanwhile.
const EARLY: usize = 16;

type Pairs = Query<Vec<(String, String)>>;
pub(crate) type Upgrade = Result<WebSocketUpgrade, WebSocketUpgradeRejection>;

/// `/exec/…?command=…&input=1&output=1&error=1&tty=1`
pub(crate) async fn exec(
    State(shared): State<Arc<Shared>>,
    Path(path): Path<(String, String, String)>,
    Query(pairs): Pairs,
    upgrade: Upgrade,
) -> Response {
    let (uid, container) = match running(&shared, path) {
        Ok(found) => found,
        Err(refusal) => return *refusal,
    };
    let wanted = wanted(container, &pairs);
    if wanted.args.is_empty() {
        return refuse(
            StatusCode::BAD_REQUEST,
            "you must specify at least 1 command",
        );
    }
    let upgrade = match accepted(upgrade) {
        Ok(upgrade) => upgrade,
        Err(refusal) => return *refusal,
    };
    let (program, dir) = (shared.settings.supervisor.clone(), shared.pod_dir(&uid));
    let first = first_channel(&wanted);
    match exec::start(&program, &dir, wanted).await {
        Ok(exec) => upgrade.on_upgrade(move |socket| session(socket, exec, first)),
        Err(error) => {
            let why = format!("error executing command in container: {error}");
            refuse(StatusCode::INTERNAL_SERVER_ERROR, &why)
        }
    }
}

/// `/attach/…?output=1&error=1`: what the container prints from now on. Containers have no input
/// that anybody could write to.
pub(crate) async fn attach(
    State(shared): State<Arc<Shared>>,
    Path(path): Path<(String, String, String)>,
    Query(pairs): Pairs,
    upgrade: Upgrade,
) -> Response {
    let (uid, container) = match running(&shared, path) {
        Ok(found) => found,
        Err(refusal) => return *refusal,
    };
    if is_on(&pairs, "input") {
        let why = "containers on this node have no standard input to attach to: use exec";
        return refuse(StatusCode::BAD_REQUEST, why);
    }
    let upgrade = match accepted(upgrade) {
        Ok(upgrade) => upgrade,
        Err(refusal) => return *refusal,
    };
    match endpoint::printed_from_now_on(&shared, &uid, container).await {
        Ok(printed) => upgrade.on_upgrade(move |socket| show(socket, printed)),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

pub(crate) fn refuse(code: StatusCode, why: &str) -> Response {
    (code, why.to_owned()).into_response()
}

/// The pod's uid and the container, which runs.
fn running(
    shared: &Shared,
    (namespace, name, container): (String, String, String),
) -> Result<(String, String), Box<Response>> {
    let not_found = |why: String| Box::new(refuse(StatusCode::NOT_FOUND, &why));
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
        Ok((uid, container))
    } else {
        Err(not_found(format!("container not found ({container:?})")))
    }
}

fn accepted(upgrade: Upgrade) -> Result<WebSocketUpgrade, Box<Response>> {
    let refused = || {
        let why = "this server speaks websockets (v5.channel.k8s.io, v4.channel.k8s.io) and not \
                   SPDY: use kubectl 1.31 or later";
        Box::new(refuse(StatusCode::BAD_REQUEST, why))
    };
    let upgrade = upgrade.map_err(|_| refused())?;
    let upgrade = upgrade
        .max_message_size(LONGEST_MESSAGE)
        .protocols(PROTOCOLS);
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

/// The channel of the empty message that says: we are there.
fn first_channel(wanted: &Wanted) -> u8 {
    match (wanted.output, wanted.error, wanted.terminal) {
        (Flow::Open, _, _) => STDOUT,
        (Flow::Closed, Flow::Open, Terminal::None) => STDERR,
        _ => ERROR,
    }
}

/// `kubectl` begins to read a moment before it has made its streams, and throws away what comes for
/// one that it does not have: the first words of a quick program. So it is seen to read first.
/// Answers what it said meanwhile.
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
            if early.len() == EARLY {
                return;
            }
        }
    };
    if tokio::time::timeout(READS_WITHIN, reads).await.is_err() {
        tracing::debug!("client does not answer a ping");
    }
    tokio::time::sleep(MAKES_STREAMS_WITHIN).await;
    early
}

/// Carries the streams until the program or the client is gone.
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
    let mut inbound = std::pin::pin!(take_in(source, input, console));
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
                Some((_, Err(error))) => tracing::debug!(%error, "output of a program is lost"),
                None => all_read = true,
            },
            // The client has gone, and with it, by our being dropped, the program.
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
        if tokio::time::timeout(LAST_WORDS, rest).await.is_err() {
            tracing::debug!("something holds the output of a program that has ended");
        }
    }
    finish(&mut sink, &verdict(outcome)).await;
}

async fn show(socket: WebSocket, mut printed: mpsc::Receiver<Bytes>) {
    let (mut sink, mut source) = socket.split();
    let early = wait_for_streams(&mut sink, &mut source).await;
    let source = stream::iter(early).chain(source);
    if sink.send(message(STDOUT, &[])).await.is_err() {
        return;
    }
    let mut inbound = std::pin::pin!(take_in(source, None, None));
    loop {
        tokio::select! {
            chunk = printed.recv() => match chunk {
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

/// Says how it ended, and ends.
async fn finish<S>(sink: &mut S, verdict: &Value)
where
    S: futures::Sink<Message, Error = axum::Error> + Unpin,
{
    let told = sink
        .send(message(ERROR, verdict.to_string().as_bytes()))
        .await;
    let closed = match told {
        // Without a code clients take it for an accident.
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
        tracing::debug!(%error, "client left before the end");
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

/// Input and sizes of the terminal, until the client has gone.
async fn take_in(
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
                    && give(to, bytes).await.is_err()
                {
                    // The program does not listen any more, which is its right.
                    input = None;
                }
            }
            Some((&RESIZE, text)) => resize(console.as_deref(), text),
            Some((&CLOSE, [STDIN])) => input = None,
            Some(_) => {}
        }
    }
}

async fn give(to: &mut exec::Input, bytes: &[u8]) -> io::Result<()> {
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

/// In the form that clients look for exit codes in.
fn verdict(outcome: io::Result<Outcome>) -> Value {
    match outcome {
        Ok(Outcome::Exited { code: 0 }) => success(),
        Ok(Outcome::Exited { code }) => json!({
            "metadata": {},
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Ok(Outcome::Failed { message }) => internal(&message),
        Err(error) => internal(&error.to_string()),
    }
}

fn internal(why: &str) -> Value {
    let message = format!("error executing command in container: {why}");
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
    fn queries_are_understood() {
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
    async fn a_client_is_seen_to_read_and_nothing_it_said_is_lost() {
        let said = |text: &'static str| Ok(Message::Text(text.into()));
        let pong = Ok(Message::Pong(Bytes::new()));
        let quick = stream::iter([said("a"), pong, said("b")]).chain(stream::pending());
        let silent = stream::iter([said("a"), said("b")]).chain(stream::pending());
        let flood = stream::iter((0..100).map(|_| said("a"))).chain(stream::pending());
        for (mut source, kept) in [
            (quick.boxed(), 1),
            (silent.boxed(), 2),
            (flood.boxed(), EARLY),
        ] {
            let mut sink = futures::sink::drain().sink_map_err(|never| match never {});
            let early = wait_for_streams(&mut sink, &mut source).await;
            assert_eq!(early.len(), kept);
        }
    }

    #[test]
    fn exit_codes_are_where_clients_look_for_them() {
        let code = |code| verdict(Ok(Outcome::Exited { code }));
        assert_eq!(code(0)["status"], "Success");
        let failed = code(7);
        assert_eq!(failed["reason"], "NonZeroExitCode");
        assert_eq!(
            failed["details"]["causes"][0],
            json!({"reason": "ExitCode", "message": "7"})
        );
        let message = "no such program".to_owned();
        let never = verdict(Ok(Outcome::Failed { message }));
        assert_eq!(never["reason"], "InternalError");
    }
}
