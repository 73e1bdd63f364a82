//! Cluster IPs and node ports: assigned when a service is created or changes its type, free again
//! when it is deleted.
//!
//! - [`settings`] has the ranges;
//! - [`spec`] reads the fields of a service;
//! - [`update`] keeps assigned values when the client does not send them, and drops those that do
//!   not fit a new type;
//! - [`pool`] assigns; [`admit`] does so while no other service can be admitted.
//!
//! Invariant: what is in use follows from the stored services alone, so nothing can leak.

mod admit;
mod pool;
mod settings;
mod spec;
mod update;

pub use self::settings::ServiceSettings;
pub(crate) use self::{
    admit::{Gate, admit, repair},
    spec::{is_external, is_headless, needs_health_check, remove},
};
