//! One task per pod: it owns the state of the pod and performs one step after the other.
//!
//! - [`plan`] decides on the next steps, [`act`] performs them, [`status`] renders the status.
//! - [`networks`] reads the pod's secondary networks from its annotations.
//! - [`task`] tracks the progress and retries of one step.
//! - [`worker`] is the task that connects them.

mod act;
mod networks;
pub(crate) mod plan;
mod status;
mod task;
mod worker;

pub(crate) use act::{OBJECT_FILE, network_record};
pub(crate) use worker::{Desired, run};
