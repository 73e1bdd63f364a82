//! The socket that the handler connects to.
//!
//! One conversation at a time: a new connection ends the one before, because a handler that was
//! restarted must not wait for the death of its predecessor's. Only root may connect (and the
//! launcher's own user, which could end the launcher anyway).

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

/// Answers that wait for the socket; a handler has a few requests in flight at most.
const ANSWERS: usize = 16;
/// A handler that reads nothing for so long is stuck; it can connect again.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// Puts a listener at `path`, in place of one that an earlier launcher left.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    let fresh = file::beside(path)?;
    let listener = UnixListener::bind(&fresh)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&fresh, path)?;
    Ok(listener)
}

/// What a conversation needs of the rest.
#[derive(Debug, Clone)]
pub(crate) struct Desk {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) states: watch::Receiver<Option<GuestState>>,
    pub(crate) tasks: TaskTracker,
}

/// Accepts handlers until `stop`; the last conversation goes on until it has said all.
pub(crate) async fn serve(listener: UnixListener, desk: Desk, stop: CancellationToken) {
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
                desk.tasks
                    .spawn(converse(stream, desk.clone(), current.clone()));
            }
            Err(err) => tracing::warn!(%err, "a connection was turned away"),
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

async fn converse(stream: UnixStream, desk: Desk, replaced: CancellationToken) {
    tracing::info!("the handler is connected");
    let (read, write) = stream.into_split();
    let (answer, answers) = mpsc::channel(ANSWERS);
    let ended = tokio::select! {
        () = replaced.cancelled() => Ok("another took its place"),
        ended = hear(read, &desk, answer) => ended,
        ended = speak(write, desk.states.clone(), answers) => ended,
    };
    match ended {
        Ok(why) => tracing::info!(why, "the handler is gone"),
        Err(err) => tracing::warn!(err = error_chain(&err), "the handler is gone"),
    }
}

async fn hear(
    mut from: OwnedReadHalf,
    desk: &Desk,
    answer: mpsc::Sender<FromLauncher>,
) -> Result<&'static str, FrameError> {
    while let Some(ToLauncher { id, request }) = read_frame(&mut from, MAX_FRAME).await? {
        let command = Command {
            id,
            request,
            answer: answer.clone(),
        };
        if desk.commands.send(command).await.is_err() {
            // The guest's owner has ended: the other half says what is left to say.
            std::future::pending::<()>().await;
        }
    }
    Ok("it hung up")
}

async fn speak(
    mut to: OwnedWriteHalf,
    mut states: watch::Receiver<Option<GuestState>>,
    mut answers: mpsc::Receiver<FromLauncher>,
) -> Result<&'static str, FrameError> {
    states.mark_changed();
    loop {
        let (message, last) = tokio::select! {
            biased;
            Some(answer) = answers.recv() => (Some(answer), false),
            changed = states.changed() => {
                let state = states.borrow_and_update().clone();
                (state.map(FromLauncher::State), changed.is_err())
            }
        };
        if last {
            return Ok("all is said");
        }
        let Some(message) = message else { continue };
        let written = tokio::time::timeout(WRITE_LIMIT, write_frame(&mut to, &message)).await;
        written.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))?;
    }
}
