//! Cluster state that several components read: the configuration, instance types, preferences, rights of users.
//!
//! - [`Configuration`]: the current configuration of the cluster;
//! - [`health`]: the answer of `/healthz`, with the version of the configuration in effect;
//! - [`Subject`]: what a user or a service account may do;
//! - [`sizes`]: the instance type and the preference of a VM.
//!
//! **Invariants**: read-only; decisions belong to `cluster-config` and `instancetype`.

mod access;
mod configuration;
mod health;
pub mod sizes;

pub use access::{DEFAULT_ACCOUNT, Right, Subject};
pub use configuration::Configuration;
pub use health::{Health, health};
