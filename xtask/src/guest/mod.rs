//! `xtask guest`: guests for tests and examples, made of Debian packages.
//!
//! - `tiny` is a kernel and busybox: it boots in seconds;
//! - `debian` is Debian with systemd, cloud-init, the guest agent and an SSH server;
//! - `kernel` picks kernel and modules from packages, `boot` makes a file system that a BIOS boots, `partitions`
//!   the table of a disk, `ext4` a root file system;
//! - `publish` makes images of the parts.
//!
//! Everything is written in a fixed order with fixed times, so the same packages give the same bytes.

mod boot;
mod debian;
mod ext4;
mod kernel;
mod partitions;
mod publish;
mod tiny;

use anyhow::Result;
use clap::ValueEnum;

use crate::printer::Printer;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Guest {
    Tiny,
    Debian,
}

/// Builds container disk, kernel-boot image and plain disk, unless they are there.
pub(crate) fn run(printer: &Printer, guest: Guest) -> Result<()> {
    match guest {
        Guest::Tiny => tiny::build(printer),
        Guest::Debian => debian::build(printer),
    }
}
