//! One of the two programs that process 1 keeps running.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use backoff::Backoff;
use rustix::process::{Pid, Signal, WaitStatus, kill_process};

use super::{FINAL_EXIT_CODE, libvirtd_command};
use crate::settings::Paths;

/// The pause before the second restart; the first one is immediate.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// A bound, as the VMI's status has to be right again within ten seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// After a run of this length the next death counts as a new problem.
const STABLE: Duration = Duration::from_secs(30);

/// The program.
#[derive(Debug)]
pub(super) enum Program {
    Libvirtd { paths: Paths, listener: OwnedFd },
    Launcher { arguments: Vec<OsString> },
}

impl Program {
    fn name(&self) -> &'static str {
        match self {
            Self::Libvirtd { .. } => "libvirtd",
            Self::Launcher { .. } => "virt-launcher",
        }
    }

    fn command(&self) -> io::Result<Command> {
        match self {
            Self::Libvirtd { paths, listener } => Ok(libvirtd_command(
                &own_program()?,
                paths,
                listener.try_clone()?,
            )),
            Self::Launcher { arguments } => {
                let mut command = Command::new(own_program()?);
                command
                    .arg("run")
                    .args(arguments)
                    .env("MALLOC_ARENA_MAX", "1");
                Ok(command)
            }
        }
    }
}

/// The path of this program, preferably the one that ends in `virt-launcher`, for a clear process
/// list.
pub(crate) fn own_program() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let plain = own.with_file_name("virt-launcher");
    Ok(if plain.exists() { plain } else { own })
}

/// A program and the state of its process.
#[derive(Debug)]
pub(super) struct Child {
    program: Program,
    state: State,
    backoff: Backoff,
}

/// Whether the pod is being terminated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodState {
    Running,
    Terminating,
}

#[derive(Debug)]
enum State {
    Pending(Instant),
    Running {
        pid: Pid,
        since: Instant,
    },
    /// Not restarted.
    Over {
        code: u8,
    },
}

impl Child {
    pub(super) fn new(program: Program) -> Self {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let due = Instant::now() + backoff.pause();
        Self {
            program,
            state: State::Pending(due),
            backoff,
        }
    }

    /// Starts the program if it is due. In a terminating pod a new launcher is terminated at once.
    pub(super) fn start_if_due(&mut self, pod: PodState) {
        let State::Pending(when) = self.state else {
            return;
        };
        if when > Instant::now() {
            return;
        }
        let name = self.program.name();
        let started = self
            .program
            .command()
            .and_then(|mut command| command.spawn());
        let pid = started.map(|child| i32::try_from(child.id()).ok().and_then(Pid::from_raw));
        match pid {
            Ok(Some(pid)) => {
                tracing::info!(program = name, pid = pid.as_raw_nonzero(), "started");
                self.state = State::Running {
                    pid,
                    since: Instant::now(),
                };
                if pod == PodState::Terminating && matches!(self.program, Program::Launcher { .. })
                {
                    self.signal(Signal::TERM);
                }
            }
            Ok(None) => self.retry_later(),
            Err(error) => {
                tracing::error!(program = name, %error, "failed to start a program");
                self.retry_later();
            }
        }
    }

    fn retry_later(&mut self) {
        self.state = State::Pending(Instant::now() + self.backoff.pause());
    }

    /// The time until [`Self::start_if_due`] starts the program.
    pub(super) fn due_in(&self) -> Option<Duration> {
        match self.state {
            State::Pending(when) => Some(when.saturating_duration_since(Instant::now())),
            State::Running { .. } | State::Over { .. } => None,
        }
    }

    pub(super) fn pid(&self) -> Option<Pid> {
        match self.state {
            State::Running { pid, .. } => Some(pid),
            State::Pending(_) | State::Over { .. } => None,
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let Some(Err(error)) = self.pid().map(|pid| kill_process(pid, signal)) {
            tracing::warn!(program = self.program.name(), %error, "failed to signal a program");
        }
    }

    /// Handles the end of a process, if it was this one.
    pub(super) fn on_exit(&mut self, ended: Pid, status: WaitStatus) {
        let State::Running { pid, since } = self.state else {
            return;
        };
        if pid != ended {
            return;
        }
        let code = status
            .exit_status()
            .and_then(|code| u8::try_from(code).ok());
        if let Some(code) = code.filter(|code| self.is_final(*code)) {
            self.state = State::Over { code };
            return;
        }
        tracing::warn!(
            program = self.program.name(),
            code,
            signal = status.terminating_signal(),
            "program died: restarting it"
        );
        if since.elapsed() > STABLE {
            self.backoff.reset();
        }
        self.retry_later();
    }

    fn is_final(&self, code: u8) -> bool {
        matches!(self.program, Program::Launcher { .. }) && matches!(code, 0 | FINAL_EXIT_CODE)
    }

    /// The exit code of a launcher that has ended and is not restarted.
    pub(super) fn final_code(&self) -> Option<u8> {
        match self.state {
            State::Over { code } => Some(code),
            State::Pending(_) | State::Running { .. } => None,
        }
    }
}
