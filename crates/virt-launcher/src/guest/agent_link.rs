//! Whether the guest agent is connected, and the task that talks to it.

use launcher_channel::{Agent, Credential};
use libvirt::AgentState;

use super::refusal::Refusal;
use super::task::Guest;
use crate::agent::{AgentCall, AgentTask, Initial};

/// What is known about the agent over this connection to libvirtd.
#[derive(Debug)]
pub(super) enum AgentLink {
    Unknown,
    Absent,
    Connected(AgentTask),
}

impl AgentLink {
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// Returns when the agent's report has changed; never without an agent.
    pub(super) async fn changed(&mut self) {
        if let Self::Connected(task) = self
            && task.report.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }

    /// The agent's last report, empty before the first one.
    pub(super) fn report(&self) -> Option<Box<Agent>> {
        match self {
            Self::Connected(task) => {
                let report = task.report.borrow().clone();
                Some(Box::new(report.unwrap_or_default()))
            }
            Self::Unknown | Self::Absent => None,
        }
    }

    pub(super) fn send(&self, call: AgentCall) -> Result<(), Refusal> {
        match self {
            Self::Connected(task) if task.try_send(call).is_ok() => Ok(()),
            Self::Connected(_) => Err(Refusal::AgentBusy),
            Self::Unknown | Self::Absent => Err(Refusal::NoAgent),
        }
    }
}

impl Guest {
    fn credentials(&self) -> Vec<Credential> {
        let record = self.store.record();
        record.map_or_else(Vec::new, |record| record.plan.credentials.clone())
    }

    /// Starts or ends the agent's task when the agent connects or disconnects.
    pub(super) fn on_agent_state(&mut self, state: AgentState) {
        match (state, &self.agent, self.connection(), self.domain()) {
            (AgentState::Connected, AgentLink::Connected(_), ..) => {}
            (AgentState::Connected, _, Some(connection), Some(domain)) => {
                tracing::info!("guest agent connected");
                let initial = Initial {
                    report: self.last_agent.take(),
                    thaw: self.thaw.clone(),
                    credentials: self.credentials(),
                };
                let (task, running) = AgentTask::new(connection, domain, initial);
                self.tasks.spawn(running);
                self.agent = AgentLink::Connected(task);
            }
            _ => self.agent = AgentLink::Absent,
        }
    }
}
