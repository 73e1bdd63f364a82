//! The effective configuration of a cluster: the administrator's settings over built-in defaults.
//!
//! - [`ClusterConfig`]: all effective settings;
//! - [`HostDisks`]: the one setting of a host's command line;
//! - [`gates`]: the table of feature gates with their stages;
//! - [`legacy`]: the config map that held the settings before the `KubeVirt` object.
//!
//! Invariant: pure functions; reading the objects from a cluster is for `cluster-view`.

mod config;
pub mod gates;
mod host_disks;
pub mod legacy;

pub use config::{
    Binding, ClusterConfig, DEFAULT_BINDING, DEFAULT_CPU_REQUEST, Machines, Permission, Rollout,
    Unusable,
};
pub use host_disks::HostDisks;
