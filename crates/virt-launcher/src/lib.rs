//! Runs one guest: all of Ferrovirt's code inside a VM's pod.
//!
//! One program with eight modes, selected in [`command_line`]: [`monitor`] is process 1 and only
//! starts, reaps and restarts; [`run`] owns the guest; short-lived modes hand libvirtd its
//! socket and start passt; `virt-probe` asks the guest's agent for the kubelet;
//! [`hold_volumes`] keeps volumes for a guest of another pod; [`hooks`] has the sidecar that runs scripts of
//! tenants; and [`probe`] finds out once per node
//! what guests can use there.
//!
//! **Invariants**: the guest's life depends on QEMU alone, so any other process of the pod may die
//! and be restarted; one task ([`guest`]) owns the guest and all others send it requests; a guest
//! is started once in the life of a pod, which a file records across restarts; process 1 uses no
//! async runtime.
//!
//! What it must not know: Kubernetes, and how a VMI becomes a domain. The finished plan arrives
//! over `launcher-channel`.

mod agent;
mod command_line;
mod dhcp;
mod domain_list;
mod file;
mod guest;
mod hold_volumes;
mod hooks;
mod hypervisor;
mod ipv6;
mod metrics;
mod monitor;
mod passt;
mod prepare;
mod probe;
mod rate;
mod run;
mod secret_files;
mod serial_log;
mod serve;
mod settings;
mod signals;
mod xml;

pub use command_line::main;
