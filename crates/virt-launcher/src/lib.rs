//! The keeper of one guest: everything of ours that runs in a VM's pod.
//!
//! One program in four modes, told apart in [`command_line`]: [`monitor`] is process 1 and only
//! starts, reaps and restarts; [`run`] owns the guest; a short one hands libvirtd its socket; and
//! [`probe`] finds out once per node what guests can have there.
//!
//! **Invariants**: the guest's life depends on QEMU alone, so any other process of the pod may die
//! and be started again; one task ([`guest`]) owns the guest and everybody else sends it requests;
//! a guest is started once in the life of a pod, which a file remembers across restarts; process 1
//! uses no async runtime.
//!
//! What it must not know: Kubernetes, and how a VMI becomes a domain. Its plan comes ready-made
//! over `launcher-channel`.

mod agent;
mod command_line;
mod dhcp;
mod file;
mod guest;
mod hypervisor;
mod monitor;
mod prepare;
mod probe;
mod run;
mod serial_log;
mod serve;
mod settings;
mod signals;

pub use command_line::main;
