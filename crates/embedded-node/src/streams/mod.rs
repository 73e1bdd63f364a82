//! `exec` and `attach` over websockets, as `kubectl` uses them: the first byte of each message is
//! its channel.
//!
//! Supports `v5.channel.k8s.io`, where a client can close a stream, and `v4.channel.k8s.io`.
//! Clients with plain SPDY only (`kubectl` before 1.31) are refused.
//!
//! [`session`] serves an accepted connection, [`exit_status`] renders its end.

mod exit_status;
mod session;

use std::sync::Arc;

use axum::{
    extract::{Path, Query, State, WebSocketUpgrade, ws::rejection::WebSocketUpgradeRejection},
    response::{IntoResponse as _, Response},
};
use http::StatusCode;
use pod_supervisor::{
    exec::Terminal,
    status::{self as disk, State as Run},
};
use reconcile::Key;
use serde::Deserialize;

use crate::{
    endpoint,
    exec::{self, Flow, Wanted},
    node::Shared,
};

const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;

/// The newest first.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
/// Clients send shorter messages.
const MAX_MESSAGE: usize = 1 << 20;

type Pairs = Query<Vec<(String, String)>>;
pub(crate) type Upgrade = Result<WebSocketUpgrade, WebSocketUpgradeRejection>;

/// `/exec/…?command=…&input=1&output=1&error=1&tty=1`
pub(crate) async fn exec(
    State(shared): State<Arc<Shared>>,
    Path(path): Path<ContainerPath>,
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
        Ok(exec) => upgrade.on_upgrade(move |socket| session::run(socket, exec, first)),
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
    Path(path): Path<ContainerPath>,
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
        Ok(output) => upgrade.on_upgrade(move |socket| session::send_output(socket, output)),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
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
