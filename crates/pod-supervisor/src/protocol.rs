//! The control socket's protocol: JSON lines, one reply for each request, in order.
//!
//! After `Subscribe` the connection gets the status at once and after every change. Only uid 0 may
//! connect. The length of lines is bounded on both sides.

use serde::{Deserialize, Serialize};

use crate::{model::ContainerSpec, status::PodStatus};

/// The longest line that either side accepts.
pub const MAX_LINE: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "request",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Request {
    /// Starts a container and restarts it by its policy. A container that exists is left unchanged,
    /// so a repeated request starts it once.
    Start {
        container: Box<ContainerSpec>,
    },
    Signal {
        container: String,
        signal: i32,
    },
    /// Ends the standard input of a container that has it for one writer.
    CloseStdin {
        container: String,
    },
    Status,
    Subscribe,
    /// Sends SIGTERM to all containers and SIGKILL after the grace period; then the supervisor
    /// exits. Of repeated requests the shorter grace period counts.
    Shutdown {
        grace_ms: u64,
        /// Containers that the node ends itself, after their stop hooks: they get no SIGTERM.
        #[serde(default)]
        held: Vec<String>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "camelCase")]
pub enum Reply {
    Done,
    Refused { message: String },
    Status(PodStatus),
}

/// The line that a supervisor writes to its standard output when it is ready or has failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Greeting {
    Ready { network_namespace: u64 },
    Failed { message: String },
}
