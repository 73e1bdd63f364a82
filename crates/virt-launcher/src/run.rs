//! The launcher mode: one thread with the guest's task and the handler's socket.

use std::error::Error;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use launcher_channel::SOCKET_PATH;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::guest::{Guest, Parts, RecordStore};
use crate::serial_log;
use crate::serve::{self, Channels};
use crate::settings::{self, Paths};
use crate::signals;

/// Requests that wait while the guest's task is busy; one handler has a few in flight.
const COMMANDS: usize = 16;
/// For writing the last replies and the final state: a stuck handler must not block the end.
const FINAL_WRITES: Duration = Duration::from_secs(2);

/// Runs until the guest has ended and the handler has released it, or the pod is terminated.
pub(crate) fn run(paths: &Paths, guest: settings::Guest) -> Result<ExitCode, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .thread_keep_alive(Duration::from_millis(100))
        .build()?;
    runtime.block_on(run_guest(paths, guest))
}

async fn run_guest(paths: &Paths, identity: settings::Guest) -> Result<ExitCode, Box<dyn Error>> {
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    // First of all, since the handler waits for this socket.
    let listener = serve::listen(Path::new(SOCKET_PATH))?;
    tasks.spawn(stop_on_signal(stop.clone())?);
    tracing::info!(
        namespace = identity.namespace,
        name = identity.name,
        uid = identity.uid,
        "launcher started"
    );
    let (console_to_log, wanted) = watch::channel(false);
    tasks.spawn(serial_log::maintain(
        serial_log::path(&identity.uid),
        wanted,
        stop.clone(),
    ));
    let store = RecordStore::open(&paths.record())?;
    let (state_sender, states) = watch::channel(None);
    let (commands, received) = mpsc::channel(COMMANDS);
    let parts = Parts {
        identity,
        paths: paths.clone(),
        tasks: tasks.clone(),
        store,
        states: state_sender,
        console_to_log,
    };
    let done = CancellationToken::new();
    accept(
        listener,
        Channels {
            commands,
            states,
            tasks: tasks.clone(),
        },
        done.clone(),
    );
    Box::pin(Guest::new(parts).run(received, stop.clone())).await;
    tracing::info!("the guest is released");
    done.cancel();
    stop.cancel();
    tasks.close();
    if tokio::time::timeout(FINAL_WRITES, tasks.wait())
        .await
        .is_err()
    {
        tracing::info!("the final state was not written in time");
    }
    Ok(ExitCode::SUCCESS)
}

fn accept(listener: UnixListener, channels: Channels, done: CancellationToken) {
    let tasks = channels.tasks.clone();
    tasks.spawn(serve::serve(listener, channels, done));
}

/// Installs the signal handlers at once; signals that arrived earlier were blocked and are
/// delivered now.
fn stop_on_signal(stop: CancellationToken) -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut quit = signal(SignalKind::quit())?;
    signals::unblock()?;
    Ok(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            _ = terminate.recv() => stop.cancel(),
            _ = interrupt.recv() => stop.cancel(),
            _ = quit.recv() => stop.cancel(),
        }
    })
}
