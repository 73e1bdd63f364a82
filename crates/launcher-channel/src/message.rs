//! What the two sides say.

use serde::{Deserialize, Serialize};

use crate::GuestPlan;

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
    /// The handler has recorded the final state: the launcher may end.
    Release,
    /// The current state.
    State,
}

/// From the launcher: the answer to a request, or news.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FromLauncher {
    Reply { id: u64, reply: Reply },
    State(GuestState),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    Done(GuestState),
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
}

/// The domain as libvirt sees it, reduced to what decides phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DomainState {
    Running,
    PausedByUser,
    PausedByIoError,
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
    Migrated,
    /// The domain could not be started.
    StartFailed,
    Unknown,
}
