//! Whether the guest has an agent, and the task that asks it.

use launcher_channel::Agent;

use super::Guest;
use super::refusal::Refusal;
use crate::agent::{AgentTask, Question};

/// Where the channel of the agent stands in a domain's XML.
const CHANNEL: &str = "name='org.qemu.guest_agent.0'";

/// What is known of the agent over this connection to libvirtd.
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

    /// Comes back when the agent said something new; never without one.
    pub(super) async fn news(&mut self) {
        if let Self::Connected(task) = self
            && task.seen.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }

    /// What it said last; nothing yet is empty.
    pub(super) fn seen(&self) -> Option<Box<Agent>> {
        match self {
            Self::Connected(task) => {
                let seen = task.seen.borrow().clone();
                Some(Box::new(seen.unwrap_or_default()))
            }
            Self::Unknown | Self::Absent => None,
        }
    }

    pub(super) fn ask(&self, question: Question) -> Result<(), Refusal> {
        match self {
            Self::Connected(task) if task.ask(question) => Ok(()),
            Self::Connected(_) => Err(Refusal::AgentBusy),
            Self::Unknown | Self::Absent => Err(Refusal::NoAgent),
        }
    }
}

impl Guest {
    /// The agent came or went.
    pub(super) fn note_agent(&mut self, connected: bool) {
        match (connected, &self.agent, self.connection(), self.domain()) {
            (true, AgentLink::Connected(_), ..) => {}
            (true, _, Some(connection), Some(domain)) => {
                tracing::info!("the guest's agent is there");
                let said = self.agent_said.take();
                let (task, running) = AgentTask::new(connection, domain, (said, self.thaw.clone()));
                self.tasks.spawn(running);
                self.agent = AgentLink::Connected(task);
            }
            _ => self.agent = AgentLink::Absent,
        }
    }
}

/// What libvirt's XML of a running domain says of the agent's channel.
pub(super) fn is_connected(xml: &str) -> bool {
    let tag = xml
        .split('<')
        .find(|tag| tag.starts_with("target ") && tag.contains(CHANNEL));
    tag.is_some_and(|tag| tag.contains("state='connected'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_channel_says_whether_it_is_connected() {
        let xml = |name: &str, state: &str| {
            format!(
                "<domain><channel type='unix'><target type='virtio' name='{name}' state='{state}'/>"
            )
        };
        assert!(is_connected(&xml("org.qemu.guest_agent.0", "connected")));
        assert!(!is_connected(&xml(
            "org.qemu.guest_agent.0",
            "disconnected"
        )));
        assert!(!is_connected(&xml("org.spice", "connected")));
        assert!(!is_connected(""));
    }
}
