//! The guest's agent: asking it, and bounding what it says.
//!
//! Commands go by way of libvirt, which owns the channel and knows whether an agent listens. A task
//! of its own asks, one question at a time, so that a guest that never answers holds up nobody but
//! itself.
//!
//! **Invariants**: an answer larger than [`ask::LARGEST`] is thrown away unread; every list and
//! every text has a bound; a guest is asked at fixed times, whatever it says; a guest
//! that is held still is let go, whoever dies meanwhile.

mod answers;
mod ask;
mod task;
mod thaw;

pub(crate) use task::{AgentTask, Question};
pub(crate) use thaw::Thaw;
