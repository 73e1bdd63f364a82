//! What the server does unasked.
//!
//! Invariant: each task works from the state of the store; an event only tells it where to look.

pub(crate) mod accounts;
pub(crate) mod budgets;
pub(crate) mod garbage;
mod namespace;
pub(crate) mod periodic;
pub(crate) mod quotas;
pub(crate) mod roles;
pub(crate) mod services;
