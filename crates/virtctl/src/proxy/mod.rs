//! The proxy between this computer and the API server.
//!
//! - `choose` decides which one, as kubectl does: pure;
//! - `client` connects through it.

mod choose;
mod client;

#[cfg(test)]
mod tests;

pub(crate) use choose::{Environment, choose};
pub(crate) use client::client;
