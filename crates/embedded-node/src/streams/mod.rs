//! `exec` and `attach` over websockets, as `kubectl` uses them: the first byte of each message is
//! its channel.
//!
//! Clients with plain SPDY only (`kubectl` before 1.31) are refused.
//!
//! [`protocol`] frames messages, [`session`] serves an accepted connection, [`attached`] is the standard
//! input of a container, [`terminal`] its terminal, [`exit_status`] renders the end.

mod attached;
mod exit_status;
mod protocol;
mod session;
mod terminal;

use std::sync::Arc;

use axum::{
    extract::{Path, Query, State, WebSocketUpgrade, ws::rejection::WebSocketUpgradeRejection},
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, StatusCode, header};
use pod_supervisor::{
    exec::Terminal,
    status::{self as disk, State as Run},
};
use reconcile::Key;
use serde::Deserialize;

use protocol::Protocol;

use crate::{
    endpoint,
    exec::{self, Flow, Wanted},
    node::Shared,
};

const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;

/// Clients send shorter messages.
const MAX_MESSAGE: usize = 1 << 20;

type Pairs = Query<Vec<(String, String)>>;
pub(crate) type Upgrade = Result<WebSocketUpgrade, WebSocketUpgradeRejection>;

/// `/exec/…?command=…&input=1&output=1&error=1&tty=1`
pub(crate) async fn exec(
    State(shared): State<Arc<Shared>>,
    Path(path): Path<ContainerPath>,
    Query(pairs): Pairs,
    headers: HeaderMap,
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
    let Accepted { upgrade, protocol } = match accept(&headers, upgrade) {
        Ok(accepted) => accepted,
        Err(refusal) => return *refusal,
    };
    let (program, dir) = (
        shared.settings.supervisor.clone(),
        shared.pod_dir(&found.pod_uid),
    );
    let first = first_channel(&wanted);
    match exec::start(&program, &dir, wanted).await {
        Ok(exec) => upgrade.on_upgrade(async move |socket| {
            let session = session::run(socket, exec, (protocol, first));
            // The node's log has a panic; the client sees that its stream ends.
            panics::confined(session).await.ok();
        }),
        Err(error) => {
            let message = format!("error executing command in container: {error}");
            refuse(StatusCode::INTERNAL_SERVER_ERROR, &message)
        }
    }
}

/// `/attach/…?input=1&output=1&error=1`: the standard input of the container and its future output, or its terminal.
pub(crate) async fn attach(
    State(shared): State<Arc<Shared>>,
    Path(path): Path<ContainerPath>,
    Query(pairs): Pairs,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Response {
    let found = match find_running(&shared, path) {
        Ok(found) => found,
        Err(refusal) => return *refusal,
    };
    let dir = shared.pod_dir(&found.pod_uid);
    // A container that an older version of this program started has none.
    if found.terminal == Terminal::Own && terminal::is_there(&dir, (&found.name, found.attempt)) {
        return attach_to_terminal(&dir, &found, &pairs, (&headers, upgrade)).await;
    }
    let input = if is_on(&pairs, "input") {
        match attached::open(&shared, &dir, (&found.name, found.attempt)) {
            Ok(input) => Some(input),
            Err(error) => {
                let message = format!(
                    "container {:?} has no standard input to attach to: set `stdin: true` ({error})",
                    found.name
                );
                return refuse(StatusCode::BAD_REQUEST, &message);
            }
        }
    } else {
        None
    };
    let Accepted { upgrade, protocol } = match accept(&headers, upgrade) {
        Ok(accepted) => accepted,
        Err(refusal) => return *refusal,
    };
    match endpoint::follow_output(&shared, &found.pod_uid, found.name).await {
        Ok(output) => upgrade.on_upgrade(async move |socket| {
            let session = session::attach(socket, (input, output), protocol);
            panics::confined(session).await.ok();
        }),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

async fn attach_to_terminal(
    dir: &std::path::Path,
    found: &RunningContainer,
    pairs: &[(String, String)],
    (headers, upgrade): (&HeaderMap, Upgrade),
) -> Response {
    let input = match (is_on(pairs, "input"), found.input) {
        (true, Flow::Closed) => {
            let message = format!(
                "container {:?} has no standard input to attach to: set `stdin: true`",
                found.name
            );
            return refuse(StatusCode::BAD_REQUEST, &message);
        }
        (true, Flow::Open) => Flow::Open,
        (false, _) => Flow::Closed,
    };
    let Accepted { upgrade, protocol } = match accept(headers, upgrade) {
        Ok(accepted) => accepted,
        Err(refusal) => return *refusal,
    };
    match terminal::connect(dir, (&found.name, found.attempt)).await {
        Ok(connection) => upgrade.on_upgrade(async move |socket| {
            let session = session::attach_to_terminal(socket, (connection, input), protocol);
            panics::confined(session).await.ok();
        }),
        Err(error) => {
            let message = format!("the terminal of container {:?}: {error}", found.name);
            refuse(StatusCode::INTERNAL_SERVER_ERROR, &message)
        }
    }
}

pub(crate) fn refuse(code: StatusCode, message: &str) -> Response {
    (code, message.to_owned()).into_response()
}

/// The path of a request to a container.
#[derive(Deserialize)]
pub(crate) struct ContainerPath {
    namespace: String,
    pod: String,
    container: String,
}

/// A running container.
struct RunningContainer {
    pod_uid: String,
    name: String,
    attempt: u32,
    terminal: Terminal,
    /// Whether it has a standard input.
    input: Flow,
}

/// Finds the running container of a request path.
fn find_running(shared: &Shared, path: ContainerPath) -> Result<RunningContainer, Box<Response>> {
    let ContainerPath {
        namespace,
        pod: name,
        container,
    } = path;
    let not_found = |message: String| Box::new(refuse(StatusCode::NOT_FOUND, &message));
    let pod = shared
        .pods
        .get(&Key::new(namespace, name.as_str()))
        .ok_or_else(|| not_found(format!("pod {name:?} not found")))?;
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let status = disk::read(&shared.pod_dir(&uid)).ok().flatten();
    let containers = status.into_iter().flat_map(|status| status.containers);
    let running = containers
        .into_iter()
        .find(|one| one.name == container && matches!(one.state, Run::Running { .. }));
    let spec = pod.spec.iter().flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        spec.containers.iter().chain(init)
    });
    let mut specs = spec.filter(|one| one.name == container);
    let spec = specs.next();
    match running {
        Some(running) => Ok(RunningContainer {
            pod_uid: uid,
            terminal: match spec.and_then(|spec| spec.tty) {
                Some(true) => Terminal::Own,
                _ => Terminal::None,
            },
            input: match spec.and_then(|spec| spec.stdin) {
                Some(true) => Flow::Open,
                _ => Flow::Closed,
            },
            name: container,
            attempt: running.attempt,
        }),
        None => Err(not_found(format!("container not found ({container:?})"))),
    }
}

/// An upgrade, and the protocol of its messages.
struct Accepted {
    upgrade: WebSocketUpgrade,
    protocol: Protocol,
}

fn accept(headers: &HeaderMap, upgrade: Upgrade) -> Result<Accepted, Box<Response>> {
    let refused = |message: &str| Box::new(refuse(StatusCode::BAD_REQUEST, message));
    let upgrade = upgrade.map_err(|_| {
        refused("this server supports websockets, not SPDY: use kubectl 1.31 or later")
    })?;
    let upgrade = upgrade
        .max_message_size(MAX_MESSAGE)
        .protocols(protocol::NAMES);
    let selected = upgrade.selected_protocol().cloned();
    let protocol = match &selected {
        Some(selected) => selected.to_str().ok().and_then(Protocol::named),
        None if !headers.contains_key(header::SEC_WEBSOCKET_PROTOCOL) => Some(Protocol::UNNAMED),
        None => None,
    };
    if let Some(protocol) = protocol {
        return Ok(Accepted { upgrade, protocol });
    }
    let names = protocol::NAMES.join(", ");
    Err(refused(&format!(
        "the websocket protocol is not supported: use one of {names}"
    )))
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
}
