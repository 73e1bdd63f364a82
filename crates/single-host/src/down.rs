//! Taking it down: the process, every guest, and what was made on the host.

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

/// For the process to end by itself.
const PATIENCE: Duration = Duration::from_secs(20);
/// For guests to power off.
const GRACE: Duration = Duration::from_secs(30);

pub(crate) fn down(flags: &cli::Down, printer: Printer) -> Result<()> {
    if !flags.state.state_dir.exists() {
        let dir = flags.state.state_dir.display();
        printer.line(&format!("Nothing is up: there is no {dir}."));
        return Ok(());
    }
    let state = StateDir::open(&flags.state.state_dir)?;
    let lock = take_down(&state, printer)?;
    drop(lock);
    let kept = state.root().display();
    printer.line(&format!(
        "Ferrovirt is down. What was defined is kept in {kept}; `ferrovirt reset` forgets it."
    ));
    Ok(())
}

pub(crate) fn reset(flags: &cli::Reset, printer: Printer) -> Result<()> {
    let path = &flags.state.state_dir;
    if !path.exists() {
        printer.line(&format!(
            "Nothing to forget: there is no {}.",
            path.display()
        ));
        return Ok(());
    }
    let state = StateDir::open(path)?;
    if !flags.yes {
        let question = format!(
            "This stops every virtual machine and deletes {} with all that was defined. Type yes:",
            state.root().display()
        );
        if printer.ask(&question)? != "yes" {
            bail!("nothing was changed");
        }
    }
    let lock = take_down(&state, printer)?;
    std::fs::remove_dir_all(state.root())
        .with_context(|| format!("delete {}", state.root().display()))?;
    drop(lock);
    printer.line("Everything is gone.");
    Ok(())
}

/// Ends the process if there is one, then everything that it left running.
fn take_down(state: &StateDir, printer: Printer) -> Result<Lock> {
    let lock = match state.lock()? {
        Locked::Ours(lock) => lock,
        Locked::Theirs(holder) => {
            end(holder)?;
            // The kernel gives the lock to us when the process is gone.
            wait_for_lock(state)?
        }
    };
    printer.line("Stopping guests ...");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    // Without settings nothing was ever brought up.
    if let Ok(bytes) = std::fs::read(state.settings()) {
        let remembered: Remembered = serde_json::from_slice(&bytes).context("read the settings")?;
        runtime.block_on(take_away(state, &remembered))?;
    }
    Ok(lock)
}

/// Pods first, then the network that they were on.
async fn take_away(state: &StateDir, remembered: &Remembered) -> Result<()> {
    let settings = network::settings(&remembered.pod_cidr, state)?;
    let pods = PodNetwork::open(settings)
        .await
        .context("open the pod network")?;
    embedded_node::teardown_all(&state.node(), &pods, GRACE)
        .await
        .context("stop the pods")?;
    pods.teardown().await.context("remove the pod network")?;
    pod_supervisor::cgroup::remove(&state.cgroup()).context("remove the control groups")
}

fn end(holder: Option<i32>) -> Result<()> {
    let pid = holder.and_then(Pid::from_raw);
    let pid = pid.context("find the running process: the lock names none")?;
    match kill_process(pid, Signal::TERM) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(err) => Err(err).with_context(|| format!("stop process {}", pid.as_raw_nonzero())),
    }
}

fn wait_for_lock(state: &StateDir) -> Result<Lock> {
    let seconds = PATIENCE.as_secs();
    Lock::wait(state, PATIENCE)?.with_context(|| {
        format!(
            "wait for the running process: it did not end within {seconds} s; end it with kill -9 \
             and try again"
        )
    })
}
