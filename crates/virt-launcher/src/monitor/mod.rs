//! Process 1 of the pod: starts libvirtd and the launcher, reaps all processes, restarts either of
//! the two when it dies, and forwards the request to terminate to the launcher.
//!
//! It holds libvirtd's listening socket, so that a client can connect before libvirtd is up and
//! while it is being restarted. It is deliberately simple, because the pod ends with it: no async
//! runtime, no threads, no protocol.

mod child;
mod config;
mod exits;
mod socket;
mod socket_activation;

use std::error::Error;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process};

pub(crate) use self::child::own_program;
use self::child::{Child, PodState, Program};
pub(crate) use self::config::write_config;
#[cfg(test)]
pub(crate) use self::exits::write as write_ends;
pub(crate) use self::exits::{End, read as read_ends};
pub(crate) use self::socket_activation::{START_LIBVIRTD, libvirtd_command, start_libvirtd};
use crate::settings::Paths;
use crate::signals;

/// A launcher that exits with this code would fail again: it is not restarted.
pub(crate) const FINAL_EXIT_CODE: u8 = 64;
/// libvirtd has no state to save: it gets a short time to exit.
const LIBVIRTD_GRACE: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_hours(1);

/// What process 1 does when the launcher has failed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    End,
    /// Keeps libvirtd and the pod until the pod is terminated.
    Keep,
}

/// Runs until the launcher has ended and is not restarted; returns the pod's exit code.
pub(crate) fn run(
    paths: &Paths,
    arguments: &[OsString],
    after_failure: AfterFailure,
) -> Result<ExitCode, Box<dyn Error>> {
    signals::block()?;
    write_config(&paths.libvirt_config())?;
    let listener = OwnedFd::from(socket::listen(&paths.libvirt_socket())?);
    let mut children = [
        Child::new(Program::Libvirtd {
            paths: paths.clone(),
            listener,
        }),
        Child::new(Program::Launcher {
            arguments: arguments.to_vec(),
        }),
    ];
    let mut pod = PodState::Running;
    let mut kept = false;
    loop {
        for child in &mut children {
            child.start_if_due(pod);
        }
        let timeout = children
            .iter()
            .filter_map(Child::due_in)
            .min()
            .unwrap_or(LONG);
        if signals::next(timeout) == Some(signals::Signal::Terminate) {
            tracing::info!("the pod is terminating");
            pod = PodState::Terminating;
            children[1].signal(Signal::TERM);
        }
        while let Some((pid, status)) = reap() {
            let [libvirtd, launcher] = &mut children;
            if ![libvirtd.pid(), launcher.pid()].contains(&Some(pid)) {
                exits::record(&paths.ends(), End::of(pid, status));
            }
            libvirtd.on_exit(pid, status);
            launcher.on_exit(pid, status);
        }
        if let Some(code) = children[1].final_code() {
            if keeps(after_failure, code, pod) {
                if !kept {
                    tracing::warn!(
                        code,
                        "the launcher has failed: keeping the pod, as requested"
                    );
                    kept = true;
                }
                continue;
            }
            stop_libvirtd(&mut children[0]);
            tracing::info!(code, "the launcher has ended");
            return Ok(ExitCode::from(code));
        }
    }
}

fn keeps(after_failure: AfterFailure, code: u8, pod: PodState) -> bool {
    after_failure == AfterFailure::Keep && code != 0 && pod == PodState::Running
}

/// As process 1: runs `command`, reaps all processes, and returns the command's exit code.
pub(crate) fn reap_until_end_of(mut command: Command) -> io::Result<ExitCode> {
    signals::block()?;
    let child = i32::try_from(command.spawn()?.id())
        .ok()
        .and_then(Pid::from_raw);
    loop {
        if signals::next(LONG) == Some(signals::Signal::Terminate) {
            return Ok(ExitCode::FAILURE);
        }
        while let Some((pid, status)) = reap() {
            if Some(pid) == child {
                let code = status
                    .exit_status()
                    .and_then(|code| u8::try_from(code).ok());
                return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
            }
        }
    }
}

/// Reaps one process that has ended, a child or an orphan.
fn reap() -> Option<(Pid, WaitStatus)> {
    rustix::process::wait(WaitOptions::NOHANG).ok().flatten()
}

fn stop_libvirtd(libvirtd: &mut Child) {
    libvirtd.signal(Signal::TERM);
    let deadline = Instant::now() + LIBVIRTD_GRACE;
    while let Some(pid) = libvirtd.pid() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            if let Err(error) = kill_process(pid, Signal::KILL) {
                tracing::warn!(%error, "failed to kill libvirtd");
            }
            return;
        }
        signals::next(left);
        while let Some((pid, status)) = reap() {
            libvirtd.on_exit(pid, status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_is_kept_only_on_request_after_a_failure_and_until_it_is_terminated() {
        use AfterFailure::{End, Keep};
        use PodState::{Running, Terminating};
        let cases = [
            (Keep, FINAL_EXIT_CODE, Running, true),
            (Keep, FINAL_EXIT_CODE, Terminating, false),
            (Keep, 0, Running, false),
            (End, FINAL_EXIT_CODE, Running, false),
        ];
        for (after_failure, code, pod, expected) in cases {
            let kept = keeps(after_failure, code, pod);
            assert_eq!(kept, expected, "{after_failure:?} {code} {pod:?}");
        }
    }
}
