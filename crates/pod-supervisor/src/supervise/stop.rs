//! Stopping the pod: SIGTERM first, SIGKILL after the grace period.

use error_chain::error_chain;

use super::Supervisor;
use crate::{
    clock,
    container::{Container, Phase},
    report::report,
    signals,
};

#[derive(Debug, Clone, Copy)]
pub(super) struct Stopping {
    pub(super) kill_at: i64,
    pub(super) killed: bool,
}

impl Supervisor {
    /// Sends SIGTERM now and SIGKILL after the grace period, which a second call can only shorten.
    pub(super) fn stop(&mut self, grace_ms: i64) {
        let kill_at = clock::steady_ms().saturating_add(grace_ms);
        self.changed = true;
        if let Some(stop) = &mut self.stopping {
            stop.kill_at = stop.kill_at.min(kill_at);
            return;
        }
        self.stopping = Some(Stopping {
            kill_at,
            killed: false,
        });
        for container in &mut self.containers {
            container.forbid_restarts();
        }
        self.signal_all(libc::SIGTERM);
        failpoints::after("pod-supervisor/stop");
    }

    pub(super) fn signal_all(&self, signal: i32) {
        for container in &self.containers {
            match &container.phase {
                Phase::Running { .. } => signal_container(container, signal),
                Phase::Starting { helper, .. } if signal == libc::SIGKILL => {
                    signals::kill(i32::try_from(helper.id()).unwrap_or_default());
                }
                Phase::Starting { .. } | Phase::BackOff { .. } | Phase::Ended => {}
            }
        }
    }
}

pub(super) fn signal_container(container: &Container, signal: i32) {
    if let Err(error) = container.signal(signal) {
        report(&format!(
            "failed to signal {}: {}",
            container.status.name,
            error_chain(&error)
        ));
    }
}
