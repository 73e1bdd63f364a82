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

/// Before what died for the second time is started again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Whatever died and however often, an instance's status is to be right again within ten seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// After that long a run, the next death is a new trouble and not the old one.
const SETTLED: Duration = Duration::from_secs(30);

/// What is run.
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

/// This very program, under its plain name if it has one, so that a process list reads well.
pub(crate) fn own_program() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let plain = own.with_file_name("virt-launcher");
    Ok(if plain.exists() { plain } else { own })
}

/// A program and how its runs went.
#[derive(Debug)]
pub(super) struct Child {
    program: Program,
    state: State,
    backoff: Backoff,
}

#[derive(Debug)]
enum State {
    Due(Instant),
    Running {
        pid: Pid,
        since: Instant,
    },
    /// Not to be started again.
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
            state: State::Due(due),
            backoff,
        }
    }

    /// Starts it if its time has come. When the pod is `ending`, a fresh process is told so.
    pub(super) fn start_if_due(&mut self, ending: bool) {
        let State::Due(when) = self.state else { return };
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
                if ending && matches!(self.program, Program::Launcher { .. }) {
                    self.signal(Signal::TERM);
                }
            }
            Ok(None) => self.retry_later(),
            Err(err) => {
                tracing::error!(program = name, %err, "cannot be started");
                self.retry_later();
            }
        }
    }

    fn retry_later(&mut self) {
        self.state = State::Due(Instant::now() + self.backoff.pause());
    }

    /// How long until [`Self::start_if_due`] has something to do.
    pub(super) fn due_in(&self) -> Option<Duration> {
        match self.state {
            State::Due(when) => Some(when.saturating_duration_since(Instant::now())),
            State::Running { .. } | State::Over { .. } => None,
        }
    }

    pub(super) fn pid(&self) -> Option<Pid> {
        match self.state {
            State::Running { pid, .. } => Some(pid),
            State::Due(_) | State::Over { .. } => None,
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let Some(Err(err)) = self.pid().map(|pid| kill_process(pid, signal)) {
            tracing::warn!(program = self.program.name(), %err, "cannot be signalled");
        }
    }

    /// Takes note of a process's end, if it was this one.
    pub(super) fn note_end(&mut self, ended: Pid, status: WaitStatus) {
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
            "died and is started again"
        );
        if since.elapsed() > SETTLED {
            self.backoff.reset();
        }
        self.retry_later();
    }

    fn is_final(&self, code: u8) -> bool {
        matches!(self.program, Program::Launcher { .. }) && matches!(code, 0 | FINAL_EXIT_CODE)
    }

    /// The code of a launcher that has ended for good.
    pub(super) fn final_code(&self) -> Option<u8> {
        match self.state {
            State::Over { code } => Some(code),
            State::Due(_) | State::Running { .. } => None,
        }
    }
}
