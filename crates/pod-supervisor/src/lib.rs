//! The process that owns one pod: its namespaces, its cgroup, its containers and their logs.
//!
//! One such process runs per pod, started by the node and outliving it. It is single-threaded,
//! because containers are made by forking, and small, because there is one per virtual machine.
//!
//! - [`model`], [`status`], [`protocol`]: what node and supervisor say to each other.
//! - [`client`]: the blocking client of the control socket.
//! - [`supervise`]: the loop. [`create`]: the short-lived helper that makes one container.
//! - [`exec`]: the helper that runs one more program in a container, for whoever started it.
//!
//! **Invariants.** The supervisor never forks without exec: `libcontainer` runs in the helper
//! only. It never talks to an API server, never pulls, never configures a network. Mounts of a
//! container live in the container's own mount namespace, so that they end with it.
#![expect(
    unsafe_code,
    reason = "signalfd, pidfd ioctl, interface flags and seccomp have no safe wrapper"
)]

pub mod model;
pub mod status;

pub mod client;
pub mod protocol;

pub mod cgroup;
mod clock;
mod error;
mod exit;
mod links;
mod log;
mod oci;
mod overlay;
mod restart;
mod sandbox;
mod seccomp;
mod signals;

mod container;
pub mod create;
pub mod exec;
pub mod layout;
pub mod supervise;

pub use error::SupervisorError;
