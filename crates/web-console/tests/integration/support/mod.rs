//! The console in front of an API server in memory.

mod console;
mod devices;
mod objects;
mod uploads;
mod upstream;
mod webhooks;

pub(crate) use console::Environment;
pub(crate) use objects::{network_kind, user, viewer_rights, vm, vmi};
pub(crate) use uploads::{Outcome, Proxy};
