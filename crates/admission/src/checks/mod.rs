//! Checks of a guest's spec: a list of pure functions, one per problem. The list is the
//! specification.
//!
//! Checks run after defaults, so fields with a default are always set.

mod input;
mod names;

mod affinity;
mod compute;
mod credentials;
mod dedicated;
mod devices;
mod disks;
mod dns;
mod features;
mod firmware;
mod grace;
mod host_devices;
mod identity;
mod memory;
mod networks;
mod ports;
mod probes;
mod security;
mod seeds;
mod volumes;

mod list;

pub(crate) use disks::hotplugged_disk_problems;
pub use input::{Check, Input, Occasion, Origin, Requester};
pub(crate) use input::{gate_is_off, repeated};
pub use list::{ALL, run};
