//! The proxy between this computer and the API server, or another server.
//!
//! - `choose` decides which one, as kubectl does: pure;
//! - `client` connects through it.

mod choose;
mod client;

#[cfg(test)]
mod tests;

pub(crate) use choose::{Environment, Proxies, choose};
pub(crate) use client::{client, send};
