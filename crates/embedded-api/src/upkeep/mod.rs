//! Background tasks of the server.
//!
//! Invariant: each task works from the state of the store; an event is only a hint where to start.

pub(crate) mod accounts;
pub(crate) mod budgets;
pub(crate) mod copies;
pub(crate) mod endpoints;
pub(crate) mod garbage;
mod namespace;
pub(crate) mod periodic;
pub(crate) mod quotas;
pub(crate) mod roles;
pub(crate) mod server_service;
pub(crate) mod services;
