//! What the two sides say.

use serde::{Deserialize, Serialize};

use crate::{Agent, AgentQuestion, AgentReport, GuestPlan};

/// From the handler: a numbered request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToLauncher {
    pub id: u64,
    pub request: Request,
}

/// The closed set of what a handler may ask. Each may be asked again with the same effect.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// Make this guest run, or adopt it when it already does. After the guest has ended the
    /// answer is its final state; a launcher starts its guest once in its life.
    Sync(Box<GuestPlan>),
    Pause,
    Unpause,
    /// Ask the guest to power off; destroy it when the grace is over. A later request with a
    /// shorter grace shortens the wait.
    #[serde(rename_all = "camelCase")]
    Shutdown {
        grace_seconds: u64,
    },
    /// Destroy at once.
    Destroy,
    /// Ask the guest to start anew, by its agent or by the power button.
    SoftReboot,
    /// As by the button on the case.
    Reset,
    /// Ask the guest's agent. Answered by [`Reply::Agent`].
    AskAgent(AgentQuestion),
    /// The handler has recorded the final state: the launcher may end.
    Release,
    /// The current state.
    State,
}

/// From the launcher: the answer to a request, or news.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FromLauncher {
    Reply { id: u64, reply: Reply },
    State(GuestState),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    Done(GuestState),
    Agent(Box<AgentReport>),
    /// `reason` is a stable CamelCase word, `message` a sentence for people. `retry` says whether
    /// the same request may succeed later.
    Refused {
        reason: String,
        message: String,
        retry: bool,
    },
}

/// All the handler needs to know about the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestState {
    /// `None` until the domain was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<DomainState>,
    /// Machine type as resolved by libvirt, such as `pc-q35-10.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// A graceful shutdown is under way.
    #[serde(default)]
    pub shutting_down: bool,
    /// A sentence on why the guest is paused or has ended, where more is known than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What the guest's agent says, while one is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Box<Agent>>,
    /// The signal that ended QEMU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu_signal: Option<i32>,
}

/// Characters of any text in a state.
const LONGEST: usize = 512;
/// Of any list in a state.
const MOST: usize = 64;

impl GuestState {
    /// The state with everything cut that is longer than an honest launcher says: what a handler
    /// passes on may come from a launcher that its guest has taken over.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let cut = |text: &mut String| {
            if let Some((at, _)) = text.char_indices().nth(LONGEST) {
                text.truncate(at);
            }
        };
        self.note.iter_mut().for_each(cut);
        self.machine.iter_mut().for_each(cut);
        if let Some(agent) = &mut self.agent {
            agent.freeze.iter_mut().for_each(cut);
            agent.missing.truncate(MOST);
            agent.missing.iter_mut().for_each(cut);
            agent.interfaces.truncate(MOST);
            for interface in &mut agent.interfaces {
                cut(&mut interface.name);
                interface.mac.iter_mut().for_each(cut);
                interface.addresses.truncate(MOST);
                interface.addresses.iter_mut().for_each(cut);
            }
            if let Some(os) = &mut agent.os {
                for text in [
                    &mut os.name,
                    &mut os.kernel_release,
                    &mut os.version,
                    &mut os.pretty_name,
                    &mut os.version_id,
                    &mut os.kernel_version,
                    &mut os.machine,
                    &mut os.id,
                ] {
                    text.iter_mut().for_each(cut);
                }
            }
        }
        self
    }
}

/// The domain as libvirt sees it, reduced to what decides phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DomainState {
    Running,
    PausedByUser,
    PausedByIoError,
    /// A migration that had handed the guest over could not bring all of its memory.
    PausedPostcopyFailed,
    /// Paused for any other reason (migration, start-up, debugger).
    PausedOther,
    /// The guest has ended and will not come back in this pod.
    Stopped(StopReason),
}

/// Why the guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// Powered off from inside or after an ACPI request.
    Shutdown,
    /// Destroyed by us, at once or after the grace.
    Destroyed,
    /// QEMU died.
    Crashed,
    /// The guest kernel panicked.
    Panicked,
    /// The watchdog expired, and its action is to end the guest.
    Watchdog,
    Migrated,
    /// Its state was written to a file.
    Saved,
    /// It was put back to a snapshot in which it did not run.
    FromSnapshot,
    /// The domain could not be started.
    StartFailed,
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AgentInterface, AgentOs};

    #[test]
    fn a_launcher_that_says_too_much_is_cut_short() {
        let long = || "ä".repeat(2 * LONGEST);
        let state = GuestState {
            note: Some(long()),
            machine: Some(long()),
            agent: Some(Box::new(Agent {
                missing: vec![long(); 100],
                os: Some(AgentOs {
                    pretty_name: Some(long()),
                    ..AgentOs::default()
                }),
                interfaces: vec![
                    AgentInterface {
                        name: long(),
                        mac: Some(long()),
                        addresses: vec![long(); 100],
                    };
                    100
                ],
                freeze: Some(long()),
            })),
            ..GuestState::default()
        };
        let bounded = serde_json::to_string(&state.bounded()).unwrap();
        assert!(
            bounded.len() <= MOST * (MOST + 4) * 2 * LONGEST,
            "{}",
            bounded.len()
        );
        let usual = GuestState {
            note: Some("disk root: its storage is full".to_owned()),
            ..GuestState::default()
        };
        assert_eq!(usual.clone().bounded(), usual);
    }
}
