//! The launcher proper: one thread, the guest's owner, the handler's socket.

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

use crate::guest::{Guest, Memory, Parts};
use crate::serial_log;
use crate::serve::{self, Desk};
use crate::settings::{self, Paths};
use crate::signals;

/// Requests that wait while the owner is busy; one handler has a few in flight.
const COMMANDS: usize = 16;
/// The last answers and the final state are on their way; a stuck handler does not hold us.
const FAREWELL: Duration = Duration::from_secs(2);

/// Runs until the guest is over and the handler knows, or the pod is ended.
pub(crate) fn run(paths: &Paths, guest: settings::Guest) -> Result<ExitCode, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .thread_keep_alive(Duration::from_millis(100))
        .build()?;
    runtime.block_on(keep(paths, guest))
}

async fn keep(paths: &Paths, identity: settings::Guest) -> Result<ExitCode, Box<dyn Error>> {
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    // The handler watches for this socket: everything else can wait.
    let listener = serve::listen(Path::new(SOCKET_PATH))?;
    tasks.spawn(stop_on_signal(stop.clone())?);
    tracing::info!(
        namespace = identity.namespace,
        name = identity.name,
        uid = identity.uid,
        "keeping a guest"
    );
    let (console_to_log, wanted) = watch::channel(false);
    tasks.spawn(serial_log::keep(
        serial_log::path(&identity.uid),
        wanted,
        stop.clone(),
    ));
    let memory = Memory::open(&paths.record())?;
    let (told, states) = watch::channel(None);
    let (commands, received) = mpsc::channel(COMMANDS);
    let parts = Parts {
        identity,
        paths: paths.clone(),
        tasks: tasks.clone(),
        memory,
        told,
        console_to_log,
    };
    let done = CancellationToken::new();
    accept(
        listener,
        Desk {
            commands,
            states,
            tasks: tasks.clone(),
        },
        done.clone(),
    );
    Box::pin(Guest::new(parts).run(received, stop.clone())).await;
    tracing::info!("the guest is over");
    done.cancel();
    stop.cancel();
    tasks.close();
    if tokio::time::timeout(FAREWELL, tasks.wait()).await.is_err() {
        tracing::info!("somebody did not listen to the end");
    }
    Ok(ExitCode::SUCCESS)
}

fn accept(listener: UnixListener, desk: Desk, done: CancellationToken) {
    let tasks = desk.tasks.clone();
    tasks.spawn(serve::serve(listener, desk, done));
}

/// Installs the handlers at once; the signals that process 1 sent meanwhile were blocked and come
/// now.
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
