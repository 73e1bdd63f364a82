//! The control socket: JSON lines, a request per line, a reply per line, in order.
//!
//! After `Subscribe` the connection gets a status at once and after every change. Only uid 0 is
//! heard. Lines are bounded on both sides.

use serde::{Deserialize, Serialize};

use crate::{model::ContainerSpec, status::PodStatus};

/// Longest line either side accepts.
pub const MAX_LINE: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "request",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Request {
    /// Starts a container and keeps it going by its restart policy. A name that is known already
    /// is left alone: asking twice starts once.
    Start {
        container: Box<ContainerSpec>,
    },
    Signal {
        container: String,
        signal: i32,
    },
    Status,
    Subscribe,
    /// SIGTERM to all, SIGKILL after the grace, then the supervisor ends. Asked again, the
    /// shorter grace counts.
    Shutdown {
        grace_ms: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "camelCase")]
pub enum Reply {
    Done,
    Refused { message: String },
    Status(PodStatus),
}

/// The one line a supervisor writes to its standard output when it is ready or cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Greeting {
    Ready { network_namespace: u64 },
    Failed { message: String },
}
