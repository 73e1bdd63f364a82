//! `vmexport`: makes, deletes and downloads exports of VMs, snapshots and claims.
//!
//! A download asks the export's own server, which the export's status names, with the token of its Secret.

mod cli;
mod download;
mod links;
mod object;
mod run;
mod tunnel;
mod volume;

pub(crate) use cli::{Format, VmExport};
pub(crate) use run::{Way, download_claim, vm_export};
