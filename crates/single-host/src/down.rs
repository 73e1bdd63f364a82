//! Stops the process and all guests, and removes everything created on the host.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use embedded_node::{Progress, Stopping};
use pod_network::PodNetwork;
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    cli,
    printer::Printer,
    service,
    state_dir::{Lock, Locked, StateDir},
    up::{Remembered, network},
};

/// Time limit for the process to end by itself.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Guests that are deleted get no longer than this to power off.
const GRACE_BEFORE_DELETION: Duration = Duration::from_secs(30);

pub(crate) fn down(flags: &cli::Down, printer: Printer) -> Result<()> {
    if flags.for_shutdown && !service::systemd::host_is_stopping()? {
        printer.line("The host is not shutting down: guests keep running.");
        return Ok(());
    }
    if !flags.state.state_dir.exists() {
        let dir = flags.state.state_dir.display();
        printer.line(&format!("Ferrovirt is down: {dir} does not exist."));
        return Ok(());
    }
    let state = StateDir::open(&flags.state.state_dir)?;
    let lock = take_down(&state, longest_grace(flags), printer)?;
    drop(lock);
    let kept = state.root().display();
    printer.line(&format!(
        "Ferrovirt is down. All objects are kept in {kept}; `ferrovirt reset` deletes them."
    ));
    Ok(())
}

/// Guests have their own grace period, which the user or a shutdown of the host may shorten.
fn longest_grace(flags: &cli::Down) -> Duration {
    match flags.grace_period {
        Some(seconds) => Duration::from_secs(seconds),
        None if flags.for_shutdown => service::LONGEST_SHUTDOWN,
        None => Duration::MAX,
    }
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
    let lock = take_down(&state, GRACE_BEFORE_DELETION, printer)?;
    std::fs::remove_dir_all(state.root())
        .with_context(|| format!("delete {}", state.root().display()))?;
    drop(lock);
    printer.line("Ferrovirt is down and all its data is deleted.");
    Ok(())
}

/// Stops the process if one runs, then all pods, and removes the network.
fn take_down(state: &StateDir, longest_grace: Duration, printer: Printer) -> Result<Lock> {
    let lock = match state.lock()? {
        Locked::Ours(lock) => lock,
        Locked::Theirs(holder) => {
            stop_process(holder)?;
            // The kernel releases the lock when the process has ended.
            wait_for_lock(state)?
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    // Without settings there was no `up`.
    if let Ok(bytes) = std::fs::read(state.settings()) {
        let remembered: Remembered = serde_json::from_slice(&bytes).context("read the settings")?;
        let reported = ReportedProgress::new(printer);
        let stopping = Stopping {
            longest_grace,
            progress: &|progress| reported.print(progress),
        };
        runtime.block_on(remove_pods_and_network(state, &remembered, stopping))?;
    }
    Ok(lock)
}

/// Removes pods first, then their network.
async fn remove_pods_and_network(
    state: &StateDir,
    remembered: &Remembered,
    stopping: Stopping<'_>,
) -> Result<()> {
    let settings = network::settings(&remembered.pod_cidr, state)?;
    let pods = PodNetwork::open(settings)
        .await
        .context("open the pod network")?;
    embedded_node::teardown_all(&state.node(), &pods, stopping)
        .await
        .context("stop the pods")?;
    pods.teardown().await.context("remove the pod network")?;
    pod_supervisor::cgroup::remove(&state.cgroup()).context("remove the control groups")
}

/// Prints each pod that stops, and how many are left.
struct ReportedProgress {
    printer: Printer,
    running: AtomicUsize,
}

impl ReportedProgress {
    fn new(printer: Printer) -> Self {
        Self {
            printer,
            running: AtomicUsize::new(0),
        }
    }

    fn print(&self, progress: Progress<'_>) {
        self.printer.line(&self.text(progress));
    }

    fn text(&self, progress: Progress<'_>) -> String {
        match progress {
            Progress::Stopping { pod, grace } => {
                self.running.fetch_add(1, Ordering::Relaxed);
                format!("Stopping {pod} (at most {} s) ...", grace.as_secs())
            }
            Progress::Stopped { pod } => {
                let left = self
                    .running
                    .fetch_sub(1, Ordering::Relaxed)
                    .saturating_sub(1);
                format!("Stopped {pod}; {left} left.")
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(for_shutdown: bool, grace_period: Option<u64>) -> cli::Down {
        cli::Down {
            state: cli::StateDir {
                state_dir: "/unused".into(),
            },
            for_shutdown,
            grace_period,
        }
    }

    #[test]
    fn only_users_and_shutdowns_shorten_grace_periods() {
        for (for_shutdown, grace_period, expected) in [
            (false, None, Duration::MAX),
            (true, None, Duration::from_mins(20)),
            (false, Some(0), Duration::ZERO),
            (true, Some(5), Duration::from_secs(5)),
        ] {
            let found = longest_grace(&flags(for_shutdown, grace_period));
            assert_eq!(found, expected, "{for_shutdown} {grace_period:?}");
        }
    }

    #[test]
    fn progress_counts_the_pods_that_are_left() {
        let reported = ReportedProgress::new(Printer);
        let grace = Duration::from_mins(1);
        let pods = ["ns/a", "ns/b"];
        let begun = pods.map(|pod| reported.text(Progress::Stopping { pod, grace }));
        assert_eq!(begun[1], "Stopping ns/b (at most 60 s) ...");
        let ended = pods.map(|pod| reported.text(Progress::Stopped { pod }));
        assert_eq!(ended, ["Stopped ns/a; 1 left.", "Stopped ns/b; 0 left."]);
    }
}
