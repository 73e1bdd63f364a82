//! One module for each group of commands.

pub(crate) mod backup;
pub(crate) mod console;
pub(crate) mod credentials;
pub(crate) mod expand;
pub(crate) mod expose;
pub(crate) mod guest;
pub(crate) mod guestfs;
pub(crate) mod image_upload;
pub(crate) mod log_verbosity;
pub(crate) mod logs;
pub(crate) mod memory_dump;
pub(crate) mod migrate;
pub(crate) mod object_graph;
pub(crate) mod permitted_devices;
pub(crate) mod port_forward;
pub(crate) mod power;
pub(crate) mod run_vm;
pub(crate) mod screenshot;
pub(crate) mod ssh;
pub(crate) mod template;
pub(crate) mod top;
pub(crate) mod ui;
pub(crate) mod usbredir;
pub(crate) mod version;
pub(crate) mod vm_export;
pub(crate) mod vnc;
pub(crate) mod volumes;
pub(crate) mod why;

#[cfg(test)]
mod transcripts;
