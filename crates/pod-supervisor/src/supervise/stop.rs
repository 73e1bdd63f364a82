//! Stopping the pod: SIGTERM first, SIGKILL after the grace period.

use error_chain::error_chain;

use super::Supervisor;
use crate::{
    clock,
    container::{Container, Phase},
    report::report,
    signals,
};

#[derive(Debug)]
pub(super) struct Stopping {
    pub(super) kill_at: i64,
    pub(super) killed: bool,
    /// Containers that the node sends SIGTERM to.
    held: Vec<String>,
}

impl Supervisor {
    /// Sends SIGTERM now, except to held containers, and SIGKILL after the grace period. A second call
    /// can only shorten it, and sends SIGTERM to containers that it no longer holds.
    pub(super) fn stop(&mut self, grace_ms: i64, held: &[String]) {
        let kill_at = clock::steady_ms().saturating_add(grace_ms);
        self.changed = true;
        if let Some(stop) = &mut self.stopping {
            stop.kill_at = stop.kill_at.min(kill_at);
            let before = std::mem::replace(&mut stop.held, held.to_vec());
            self.terminate(|name| before.contains(name) && !held.contains(name));
            return;
        }
        self.stopping = Some(Stopping {
            kill_at,
            killed: false,
            held: held.to_vec(),
        });
        for container in &mut self.containers {
            container.forbid_restarts();
        }
        self.terminate(|name| !held.contains(name));
        failpoints::after("pod-supervisor/stop");
    }

    /// Sends SIGTERM to the running containers with these names.
    fn terminate(&self, which: impl Fn(&String) -> bool) {
        for container in &self.containers {
            if matches!(container.phase, Phase::Running { .. }) && which(&container.status.name) {
                signal_container(container, libc::SIGTERM);
            }
        }
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
