//! From a VMI to the XML of a libvirt domain.
//!
//! Pure: a [`Supported`](model::Supported) guest and [`Facts`] about the node and the plumbed pod go
//! in, text comes out. One struct per device, each with its own `render`; escaping happens in one
//! place (`element`).
//!
//! **Invariants**: the same input gives the same text; a field that this crate does not render is
//! refused with its path, never left out; every user-named device except
//! filesystems has an alias `ua-<name>`; devices
//! that a guest finds by their PCI address have the one that `layout` gives them.
//!
//! It must not know which process creates the files that the XML names ([`model::paths`] defines
//! their paths), nor anything about the host beyond the facts.

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
mod filesystems;
mod host_devices;
mod ignition;
mod interfaces;
mod io_threads;
mod layout;
mod memory;
mod numa;
mod os;
mod peripherals;
mod pinning;
mod security;
mod sources;
mod tags;
mod virtio;

pub use disks::{HotDisk, disk_targets, hot_disk};
pub use domain::{memory_bytes, render, separate_cpus, tagged_devices};
pub use error::RenderError;
pub use facts::{
    Acceleration, Allocation, BlockSizes, DirectIo, EfiFirmware, Facts, HostCell, HostCpu, Input,
    InterfaceFacts, Provisioning, SmbiosFacts, VolumeFacts, VolumeMode,
};
pub use interfaces::hot_interface;
pub use memory::hot_memory;
pub use tags::{Near, TaggedBus, TaggedDevice, TaggedKind};
