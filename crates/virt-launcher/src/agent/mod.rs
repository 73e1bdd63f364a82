//! The guest agent: calling it, and bounding what it returns.
//!
//! Commands go through libvirt, which owns the channel and knows whether an agent is connected. A
//! task of its own makes one call at a time, so that an agent that never responds blocks nothing
//! else.
//!
//! **Invariants**: a response larger than [`commands::MAX_RESPONSE`] is dropped without being
//! parsed; every list and every text has a bound; the agent is polled at fixed times,
//! regardless of its responses; frozen file systems are thawed in time even if processes die.

mod commands;
mod credentials;
mod failed_pings;
mod freeze;
pub(crate) mod probe;
mod responses;
mod task;
mod thaw;

#[cfg(test)]
mod tests;

pub(crate) use failed_pings::FailedPings;
pub(crate) use task::{AgentCall, AgentCaller, AgentTask, Initial};
pub(crate) use thaw::ThawTimer;
