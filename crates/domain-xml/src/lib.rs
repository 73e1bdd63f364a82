//! From a VMI to the XML of a libvirt domain.
//!
//! Pure: the VMI and [`Facts`] about the node and the plumbed pod go in, text comes out. One
//! struct per device, each with its own `render`; escaping happens in one place (`element`).
//!
//! **Invariants**: the same input gives the same text; what the VMI asks for and this crate does
//! not render is refused with its field path, never left out; every user-named device has an
//! alias `ua-<name>`. PCI addresses are left to libvirt.
//!
//! It must not know how files come to be where the XML points ([`paths`] names the places), nor
//! what the host looks like beyond the facts.

pub mod paths;

mod clock;
mod consoles;
mod controllers;
mod cpu;
mod disks;
mod domain;
mod element;
mod error;
mod facts;
mod features;
mod interfaces;
mod os;
mod peripherals;
mod sources;
mod unsupported;

pub use disks::disk_targets;
pub use domain::{domain_name, guest_memory, render};
pub use error::RenderError;
pub use facts::{
    Acceleration, DirectIo, EfiFirmware, Facts, Input, InterfaceFacts, SmbiosFacts, VolumeFacts,
    VolumeMode,
};
pub use sources::host_disk_name;
