//! Taking over containers of an earlier supervisor.

use std::os::fd::AsFd as _;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{Container, Parent, Phase, UNKNOWN_EXIT, output::Output};
use crate::{
    clock,
    create::find_started,
    exit, layout,
    model::Sandbox,
    status::{ContainerStatus, EndReason, Process, State},
};

impl Container {
    /// Takes over the container from its last status.
    pub(crate) fn adopt(&mut self, sandbox: &Sandbox, status: ContainerStatus) {
        self.status = status;
        let dir = layout::attempt_dir(&self.status.name, self.status.attempt);
        match self.status.state.clone() {
            State::Ended { .. } => {}
            State::BackOff { until_ms, .. } => {
                let wait = (until_ms - clock::now_ms()).clamp(0, 300_000);
                self.phase = Phase::BackOff {
                    until: clock::steady_ms() + wait,
                };
            }
            State::Running {
                process,
                started_ms,
            } => {
                self.adopt_process(sandbox, process, started_ms);
            }
            State::Starting => {
                if let Some(process) = find_started(&dir) {
                    self.adopt_process(sandbox, process, clock::now_ms());
                } else {
                    self.begin(sandbox);
                }
            }
        }
    }

    fn adopt_process(&mut self, sandbox: &Sandbox, process: Process, started_ms: i64) {
        let pidfd = Pid::from_raw(process.pid)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
            .filter(|_| process.is_alive());
        self.status.state = State::Running {
            process,
            started_ms,
        };
        let Some(pidfd) = pidfd else {
            self.ended(sandbox, UNKNOWN_EXIT, EndReason::Unknown);
            return;
        };
        if let Err(error) = self.hold_stdin() {
            self.set_log_error(&error);
        }
        match Output::open(&self.status.name, self.status.attempt) {
            Ok(output) => self.output = Some(output),
            Err(error) => self.set_log_error(&error),
        }
        self.phase = Phase::Running {
            pidfd,
            process,
            parent: Parent::Other,
        };
    }

    /// Handles the end of an adopted process, which its pidfd has signalled.
    pub(crate) fn on_adopted_end(&mut self, sandbox: &Sandbox) {
        let Phase::Running {
            pidfd,
            process,
            parent: Parent::Other,
        } = &self.phase
        else {
            return;
        };
        match exit::of_adopted(process.pid, pidfd.as_fd()) {
            Some(exit) => self.on_exit(sandbox, exit),
            None => self.ended(sandbox, UNKNOWN_EXIT, EndReason::Unknown),
        }
    }
}
