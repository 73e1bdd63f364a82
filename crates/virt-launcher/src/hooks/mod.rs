//! Hook sidecars: containers of the tenant that may change the seed and the domain of a guest before it starts.
//!
//! Each opens a socket in a directory of its own and serves gRPC there. It is asked which hooks it has, and then
//! called for each of them; sidecars with a higher priority are called first, and each gets the answer of the one
//! before.
//!
//! **Invariants**: nothing that a sidecar sends is used before it is checked; every wait has a limit; a failure names
//! the sidecar.

mod ask;
mod cloud_init;
mod domain;
mod error;
mod messages;
mod shim;
mod sidecar;
#[cfg(test)]
mod tests;

pub(crate) use self::ask::{Asked, ask, ask_for_seeds, shut_down};
pub(crate) use self::error::HookError;
pub(crate) use self::shim::{SIDECAR_SHIM, run as run_shim};
