//! The guests of this node: one reconciler from pod and VMI to a running domain and back to the
//! VMI's status.
//!
//! A guest is started as soon as its pod's launcher answers; its phase is written once the
//! controller has handed the VMI over (Scheduled). Everything is level-triggered: after a restart
//! of this process each launcher is asked again and nothing is started twice.

mod act;
mod agent;
mod ending;
mod migratable;
mod observe;
mod plan;
mod status;

pub(crate) use act::{ClientHandle, Guests, GuestsParts};
pub(crate) use agent::{file_systems, info, users};
pub(crate) use plan::grace_seconds;
pub(crate) use status::Known;
