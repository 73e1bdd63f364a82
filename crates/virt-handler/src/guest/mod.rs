//! The guests of this node: one reconciler from pod and VMI to a running domain, and back to the
//! VMI's status.
//!
//! A guest is started as soon as its pod's launcher is connected; its phase is written once
//! virt-controller has handed the VMI over (phase `Scheduled`). Everything is level-triggered: after
//! a restart of virt-handler each launcher reports its state again, and nothing is started twice.

mod act;
mod agent;
mod backups;
mod dumps;
mod error;
#[cfg(test)]
pub(crate) mod fixture;
mod fragment;
mod interfaces;
mod migratable;
mod nics;
mod nics_act;
mod observe;
mod outcome;
mod plan;
mod plug;
mod plugged;
mod resize;
mod sessions;
mod start;
mod status;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use act::{ClientHandle, Guests, GuestsParts};
pub(crate) use agent::{file_systems, info, users};
pub(crate) use error::GuestError;
pub(crate) use interfaces::Attached;
pub(crate) use migratable::{Reach, copied_disks, moved_disks};
pub(crate) use observe::{Pair, Part, arriving_pod};
pub(crate) use plan::{grace_seconds, pauses_agent_probes};
pub(crate) use plug::BringError;
pub(crate) use sessions::Entry;
pub(crate) use status::PreparedStatus;
