//! The process that owns one pod: its namespaces, its cgroup, its containers and their logs.
//!
//! One such process runs per pod. The node starts it, and it outlives the node's process. It is
//! single-threaded, because creating containers forks, and small, because there is one per VM.
//!
//! - [`model`], [`status`], [`protocol`]: the interface between node and supervisor.
//! - [`client`]: the blocking client of the control socket.
//! - [`supervise`]: the loop. [`create`]: the short-lived helper that creates one container.
//! - [`exec`]: the helper that runs a further program in a container for its caller.
//! - [`terminal`]: the process that keeps the terminal of a container that has one.
//!
//! **Invariants.** The supervisor never forks without exec: `libcontainer` runs in the helper
//! only. Helpers run from a sealed copy of the program in memory. It never talks to an API server,
//! never pulls, never configures a network. Mounts of a container live in the container's own mount
//! namespace, so that they end with it.
#![expect(
    unsafe_code,
    reason = "signalfd, ioctls, interface flags, seccomp, bpf and mapped mounts have no safe wrapper"
)]

pub mod model;
pub mod status;

pub mod client;
pub mod protocol;

pub mod capabilities;
pub mod cgroup;
mod clock;
mod device_filter;
mod error;
mod exit;
mod launch;
mod links;
mod log;
mod oci;
pub mod oom;
mod overlay;
mod report;
mod restart;
mod sandbox;
mod sealed;
mod seccomp;
mod signals;
mod stage;
pub mod users;

mod container;
pub mod create;
pub mod exec;
pub mod layout;
pub mod supervise;
pub mod terminal;

pub use error::SupervisorError;
