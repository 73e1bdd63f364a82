//! The end of an attempt: termination status, clean-up, and the decision about a restart.

use std::{
    fs::{self, File},
    io::Read as _,
    path::Path,
};

use error_chain::error_chain;

use super::{Container, Phase, UNKNOWN_EXIT};
use crate::{
    cgroup, clock,
    create::container_cgroup,
    exit::Exit,
    layout, log,
    model::{MessageSource, Sandbox},
    report::report,
    restart::{Next, after_end},
    status::{EndReason, State, Termination},
};

const MAX_TERMINATION_MESSAGE: u64 = 4096;
/// The exit code of a container that could not be created.
const START_ERROR: i32 = 128;

impl Container {
    pub(crate) fn on_exit(&mut self, sandbox: &Sandbox, exit: Exit) {
        let group = container_cgroup(sandbox, &self.status.name, self.status.attempt);
        let reason = if exit.signal == Some(libc::SIGKILL) && cgroup::oom_kills(&group) > 0 {
            EndReason::OOMKilled
        } else if exit.code == 0 {
            EndReason::Completed
        } else {
            EndReason::Error
        };
        self.ended(sandbox, exit, reason);
    }

    pub(super) fn ended(&mut self, sandbox: &Sandbox, exit: Exit, reason: EndReason) {
        self.finish_output();
        let started_ms = match &self.status.state {
            State::Running { started_ms, .. } => *started_ms,
            _ => clock::now_ms(),
        };
        let message = match reason {
            EndReason::Unknown => "the container ended while no supervisor was running".to_owned(),
            _ => self.termination_message(exit),
        };
        self.finish_attempt(
            sandbox,
            Termination {
                exit_code: exit.code,
                signal: exit.signal,
                reason,
                started_ms,
                finished_ms: clock::now_ms(),
                message,
            },
        );
    }

    pub(super) fn failed_to_start(&mut self, sandbox: &Sandbox, message: &str) {
        self.finish_output();
        let now = clock::now_ms();
        self.finish_attempt(
            sandbox,
            Termination {
                exit_code: START_ERROR,
                signal: None,
                reason: EndReason::StartError,
                started_ms: now,
                finished_ms: now,
                message: message.to_owned(),
            },
        );
    }

    /// Cleans up after the attempt and decides about a restart.
    fn finish_attempt(&mut self, sandbox: &Sandbox, termination: Termination) {
        self.close_stdin();
        let (name, attempt) = (&self.status.name, self.status.attempt);
        let group = container_cgroup(sandbox, name, attempt);
        let cleaned = cgroup::kill(&group)
            .and_then(|()| cgroup::remove(&group))
            .and_then(|()| fs::remove_dir_all(layout::attempt_dir(name, attempt)));
        if let Err(error) = cleaned {
            // Not fatal: the node removes the whole directory with the pod.
            report(&format!(
                "failed to clean up after {name} attempt {attempt}: {}",
                error_chain(&error)
            ));
        }
        failpoints::after("pod-supervisor/clean-up-container");
        let ran = termination.finished_ms - termination.started_ms;
        match after_end(self.policy, termination.exit_code, ran, self.status.strikes) {
            Next::Stay => {
                self.status.state = State::Ended { termination };
                self.phase = Phase::Ended;
            }
            Next::Restart { delay_ms, strikes } => {
                self.status.strikes = strikes;
                let until_ms = clock::now_ms() + delay_ms;
                self.status.state = State::BackOff {
                    until_ms,
                    delay_ms,
                    termination,
                };
                self.phase = Phase::BackOff {
                    until: clock::steady_ms() + delay_ms,
                };
            }
        }
    }

    /// Ends a process that exited before its pidfd was opened, and whose exit status is lost.
    pub(crate) fn end_if_lost(&mut self, sandbox: &Sandbox) {
        let running = matches!(self.status.state, State::Running { .. });
        if running && matches!(self.phase, Phase::Ended) {
            self.ended(sandbox, UNKNOWN_EXIT, EndReason::Unknown);
        }
    }
}

impl Container {
    fn termination_message(&self, exit: Exit) -> String {
        let (name, attempt) = (&self.status.name, self.status.attempt);
        let message = read_message(&layout::termination_file(name));
        let falls_back = self.message_source == MessageSource::FileOrLog && exit.code != 0;
        if message.is_empty() && falls_back {
            return log::end_of(&layout::log_file(name, attempt)).unwrap_or_else(|error| {
                format!("failed to read the end of the log: {}", error_chain(&error))
            });
        }
        message
    }
}

fn read_message(file: &Path) -> String {
    let mut bytes = Vec::new();
    match File::open(file)
        .and_then(|file| file.take(MAX_TERMINATION_MESSAGE).read_to_end(&mut bytes))
    {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!(
            "failed to read the termination message: {}",
            error_chain(&error)
        ),
    }
}
