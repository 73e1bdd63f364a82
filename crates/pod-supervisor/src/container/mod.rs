//! One container through all its attempts: start, run, end, back off, restart.
//!
//! The supervisor's loop calls in here when a descriptor is ready or a deadline has passed; nothing
//! here blocks, except for a moment at the end of a container with a terminal.

mod adopt;
mod end;
mod output;
mod start;

use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::OwnedFd,
    process::{Child, ChildStdout},
};

use error_chain::error_chain;
use rustix::process::{Signal, pidfd_send_signal};

use self::output::Output;
use crate::{
    exit::Exit,
    layout,
    model::{ContainerSpec, MessageSource, RestartPolicy, Sandbox, Stdin, Terminal, User},
    report::report,
    status::{ContainerStatus, Process, State},
};

/// The exit of a container whose exit status is lost.
const UNKNOWN_EXIT: Exit = Exit {
    code: 255,
    signal: None,
};

#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) status: ContainerStatus,
    pub(crate) phase: Phase,
    policy: RestartPolicy,
    message_source: MessageSource,
    user: User,
    stdin: Stdin,
    terminal: Terminal,
    /// Keeps the standard input open until its first writer has ended.
    stdin_holder: Option<File>,
    output: Option<Output>,
}

#[derive(Debug)]
pub(crate) enum Phase {
    Starting {
        helper: Child,
        /// The helper's standard output, and the part that was read.
        output: ChildStdout,
        text: Vec<u8>,
        deadline: i64,
    },
    Running {
        pidfd: OwnedFd,
        process: Process,
        parent: Parent,
    },
    BackOff {
        until: i64,
    },
    Ended,
}

/// The parent of a container's process, which gets its exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parent {
    Supervisor,
    /// The process was adopted from an earlier supervisor.
    Other,
}

impl Container {
    pub(crate) fn new(spec: &ContainerSpec) -> Self {
        Self {
            status: ContainerStatus {
                name: spec.name.clone(),
                attempt: 0,
                strikes: 0,
                state: State::Starting,
                last: None,
                log_error: None,
            },
            phase: Phase::Ended,
            policy: spec.restart,
            message_source: spec.termination_message,
            user: spec.user.clone(),
            stdin: spec.stdin,
            terminal: spec.terminal,
            stdin_holder: None,
            output: None,
        }
    }

    /// Whether `pid` is this container's process and a child of the supervisor.
    pub(crate) fn owns_child(&self, pid: i32) -> bool {
        matches!(&self.phase, Phase::Running { process, parent: Parent::Supervisor, .. }
            if process.pid == pid)
    }

    /// When [`Self::on_deadline`] has to be called.
    pub(crate) fn deadline(&self) -> Option<i64> {
        match &self.phase {
            Phase::Starting { deadline, .. } => Some(*deadline),
            Phase::BackOff { until } => Some(*until),
            Phase::Running { .. } | Phase::Ended => None,
        }
    }

    pub(crate) fn on_deadline(&mut self, sandbox: &Sandbox) {
        match &mut self.phase {
            Phase::Starting { helper, .. } => {
                if let Err(error) = helper.kill() {
                    report(&format!(
                        "failed to kill a stuck helper: {}",
                        error_chain(&error)
                    ));
                }
            }
            Phase::BackOff { .. } => {
                self.status.last = self.status.termination().cloned();
                self.status.attempt += 1;
                self.begin(sandbox);
            }
            Phase::Running { .. } | Phase::Ended => {}
        }
    }

    pub(crate) fn signal(&self, signal: i32) -> io::Result<()> {
        let Phase::Running { pidfd, .. } = &self.phase else {
            return Err(io::Error::other("the container is not running"));
        };
        let signal = Signal::from_named_raw(signal)
            .ok_or_else(|| io::Error::other("there is no such signal"))?;
        Ok(pidfd_send_signal(pidfd, signal)?)
    }

    fn hold_stdin(&mut self) -> io::Result<()> {
        if self.stdin == Stdin::Once {
            let pipe = layout::stdin_pipe(&self.status.name, self.status.attempt);
            let holder = OpenOptions::new().read(true).write(true).open(pipe)?;
            self.stdin_holder = Some(holder);
        }
        Ok(())
    }

    /// The first writer of the standard input has ended.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin_holder = None;
    }

    /// From now on the container is not restarted.
    pub(crate) fn forbid_restarts(&mut self) {
        self.policy = RestartPolicy::Never;
        if let State::BackOff { termination, .. } = &self.status.state {
            self.status.state = State::Ended {
                termination: termination.clone(),
            };
            self.phase = Phase::Ended;
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }
}
