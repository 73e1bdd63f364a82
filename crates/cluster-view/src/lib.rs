//! Cluster state that several components read: the configuration, instance types, preferences.
//!
//! - [`Configuration`]: the current configuration of the cluster;
//! - [`sizes`]: the instance type and the preference of a VM.
//!
//! **Invariants**: read-only; decisions belong to `cluster-config` and `instancetype`.

mod configuration;
pub mod sizes;

pub use configuration::Configuration;
