//! Cluster state that several components read: the configuration, instance types, preferences.
//!
//! - [`Configuration`]: the current configuration of the cluster;
//! - [`health`]: the answer of `/healthz`, with the version of the configuration in effect;
//! - [`sizes`]: the instance type and the preference of a VM.
//!
//! **Invariants**: read-only; decisions belong to `cluster-config` and `instancetype`.

mod configuration;
mod health;
pub mod sizes;

pub use configuration::Configuration;
pub use health::{Health, health};
