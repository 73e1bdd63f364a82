//! What the server does unasked.
//!
//! Invariant: each task works from the state of the store; an event only tells it where to look.

pub(crate) mod garbage;
pub(crate) mod periodic;
pub(crate) mod services;
