//! Stops the process and all guests, and removes everything created on the host.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use pod_network::PodNetwork;
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    cli,
    printer::Printer,
    state_dir::{Lock, Locked, StateDir},
    up::{Remembered, network},
};

/// Time limit for the process to end by itself.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Time that guests have to power off.
const GRACE_PERIOD: Duration = Duration::from_secs(30);

pub(crate) fn down(flags: &cli::Down, printer: Printer) -> Result<()> {
    if !flags.state.state_dir.exists() {
        let dir = flags.state.state_dir.display();
        printer.line(&format!("Ferrovirt is down: {dir} does not exist."));
        return Ok(());
    }
    let state = StateDir::open(&flags.state.state_dir)?;
    let lock = take_down(&state, printer)?;
    drop(lock);
    let kept = state.root().display();
    printer.line(&format!(
        "Ferrovirt is down. All objects are kept in {kept}; `ferrovirt reset` deletes them."
    ));
    Ok(())
}

pub(crate) fn reset(flags: &cli::Reset, printer: Printer) -> Result<()> {
    let path = &flags.state.state_dir;
    if !path.exists() {
        printer.line(&format!(
            "Nothing to delete: {} does not exist.",
            path.display()
        ));
        return Ok(());
    }
    let state = StateDir::open(path)?;
    if !flags.yes {
        let question = format!(
            "This stops every virtual machine and deletes {} with all objects. Type yes:",
            state.root().display()
        );
        if printer.prompt(&question)? != "yes" {
            bail!("nothing was changed");
        }
    }
    let lock = take_down(&state, printer)?;
    std::fs::remove_dir_all(state.root())
        .with_context(|| format!("delete {}", state.root().display()))?;
    drop(lock);
    printer.line("Ferrovirt is down and all its data is deleted.");
    Ok(())
}

/// Stops the process if one runs, then all pods, and removes the network.
fn take_down(state: &StateDir, printer: Printer) -> Result<Lock> {
    let lock = match state.lock()? {
        Locked::Ours(lock) => lock,
        Locked::Theirs(holder) => {
            stop_process(holder)?;
            // The kernel releases the lock when the process has ended.
            wait_for_lock(state)?
        }
    };
    printer.line("Stopping guests ...");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    // Without settings there was no `up`.
    if let Ok(bytes) = std::fs::read(state.settings()) {
        let remembered: Remembered = serde_json::from_slice(&bytes).context("read the settings")?;
        runtime.block_on(remove_pods_and_network(state, &remembered))?;
    }
    Ok(lock)
}

/// Removes pods first, then their network.
async fn remove_pods_and_network(state: &StateDir, remembered: &Remembered) -> Result<()> {
    let settings = network::settings(&remembered.pod_cidr, state)?;
    let pods = PodNetwork::open(settings)
        .await
        .context("open the pod network")?;
    embedded_node::teardown_all(&state.node(), &pods, GRACE_PERIOD)
        .await
        .context("stop the pods")?;
    pods.teardown().await.context("remove the pod network")?;
    pod_supervisor::cgroup::remove(&state.cgroup()).context("remove the control groups")
}

fn stop_process(holder: Option<i32>) -> Result<()> {
    let pid = holder.and_then(Pid::from_raw);
    let pid = pid.context("find the running process: the lock has no process id")?;
    match kill_process(pid, Signal::TERM) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("stop process {}", pid.as_raw_nonzero())),
    }
}

fn wait_for_lock(state: &StateDir) -> Result<Lock> {
    let seconds = STOP_TIMEOUT.as_secs();
    Lock::wait(state, STOP_TIMEOUT)?.with_context(|| {
        format!(
            "wait for the running process: it did not end within {seconds} s; end it with kill -9 \
             and try again"
        )
    })
}
