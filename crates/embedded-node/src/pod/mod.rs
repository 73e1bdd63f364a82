//! One task per pod: it owns all that is known of the pod and does one step after the other.
//!
//! - [`plan`] decides what to do, [`act`] does it, [`status`] says how it stands.
//! - [`task`] remembers how far a step is and when to try it again.

mod act;
pub(crate) mod plan;
mod status;
mod task;
mod worker;

pub(crate) use act::OBJECT_FILE;
pub(crate) use worker::{Wanted, run};
