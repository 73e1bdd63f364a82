//! The socket that the handler connects to.
//!
//! One connection at a time: a new one closes the one before, because a restarted handler must not
//! wait until its predecessor's connection is gone. Only root may connect (and the launcher's own
//! user, which could kill the launcher anyway).

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use error_chain::error_chain;
use launcher_channel::{
    FrameError, FromLauncher, GuestState, MAX_FRAME, ToLauncher, read_frame, write_frame,
};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::file;
use crate::guest::Command;

/// Replies that wait for the socket; a handler has a few requests in flight at most.
const REPLIES: usize = 16;
/// A handler that reads nothing for that long is stuck; it can reconnect.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// Listens at `path`, in place of a socket that an earlier launcher left.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    let fresh = file::beside(path)?;
    let listener = UnixListener::bind(&fresh)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&fresh, path)?;
    Ok(listener)
}

/// A connection's channels to the guest's task.
#[derive(Debug, Clone)]
pub(crate) struct Channels {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) states: watch::Receiver<Option<GuestState>>,
    pub(crate) tasks: TaskTracker,
}

/// Accepts handlers until `stop`; the last connection continues until everything is written.
pub(crate) async fn serve(listener: UnixListener, channels: Channels, stop: CancellationToken) {
    let mut current = CancellationToken::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted.and_then(|(stream, _)| admit(stream)) {
            Ok(stream) => {
                current.cancel();
                current = CancellationToken::new();
                let connection = run_connection(stream, channels.clone(), current.clone());
                channels.tasks.spawn(connection);
            }
            Err(error) => tracing::warn!(%error, "connection refused"),
        }
    }
}

fn admit(stream: UnixStream) -> io::Result<UnixStream> {
    let peer = stream.peer_cred()?.uid();
    if peer == 0 || peer == rustix::process::getuid().as_raw() {
        return Ok(stream);
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("user {peer} may not connect"),
    ))
}

async fn run_connection(stream: UnixStream, channels: Channels, replaced: CancellationToken) {
    tracing::info!("handler connected");
    let (read, write) = stream.into_split();
    let (reply_to, replies) = mpsc::channel(REPLIES);
    let ended = tokio::select! {
        () = replaced.cancelled() => Ok("replaced by another connection"),
        ended = receive(read, &channels, reply_to) => ended,
        ended = send(write, channels.states.clone(), replies) => ended,
    };
    match ended {
        Ok(reason) => tracing::info!(reason, "handler disconnected"),
        Err(error) => tracing::warn!(error = error_chain(&error), "handler connection failed"),
    }
}

async fn receive(
    mut from: OwnedReadHalf,
    channels: &Channels,
    reply_to: mpsc::Sender<FromLauncher>,
) -> Result<&'static str, FrameError> {
    while let Some(ToLauncher { id, request }) = read_frame(&mut from, MAX_FRAME).await? {
        let command = Command {
            id,
            request,
            reply_to: reply_to.clone(),
        };
        if channels.commands.send(command).await.is_err() {
            // The guest's task has ended: `send` writes what is left and ends the connection.
            std::future::pending::<()>().await;
        }
    }
    Ok("closed by the handler")
}

async fn send(
    mut to: OwnedWriteHalf,
    mut states: watch::Receiver<Option<GuestState>>,
    mut replies: mpsc::Receiver<FromLauncher>,
) -> Result<&'static str, FrameError> {
    states.mark_changed();
    loop {
        let (message, last) = tokio::select! {
            biased;
            Some(reply) = replies.recv() => (Some(reply), false),
            changed = states.changed() => {
                let state = states.borrow_and_update().clone();
                (state.map(FromLauncher::State), changed.is_err())
            }
        };
        if last {
            return Ok("the guest is released");
        }
        let Some(message) = message else { continue };
        let written = tokio::time::timeout(WRITE_LIMIT, write_frame(&mut to, &message)).await;
        written.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))?;
    }
}
