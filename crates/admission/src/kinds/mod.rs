//! Defaults and checks of the kinds other than VM and VMI: one file per kind or group.
//!
//! A kind is a row of [`ROWS`]; its checks are a list of named rules, each a pure function, in the
//! order their problems are reported. Other objects that a check needs are in [`Related`]: a kind
//! lists the lookups, the webhook server performs them.
//!
//! Invariants: nothing here reads a cluster; a rejection (a refusal without a field, such as a gate
//! that is off) ends the list, violations of fields are collected; an object that is being deleted
//! is not checked, so that no rule can block its removal.
//!
//! To add a kind: implement `Kind`, add its row. To add a rule: its function and its row in `RULES`,
//! and cases under `tests/kinds/`.

mod kind;
mod related;

mod numbers;
mod patches;
mod references;
mod refusals;
mod selector;

mod backup;
mod backup_restore;
mod clone;
mod export;
mod instancetype;
mod kubevirt;
mod migration;
mod migration_policy;
mod plugin;
mod pool;
mod preference;
mod preset;
mod replica_set;
mod restore;
mod snapshot;
mod template;

mod table;

pub mod eviction;

pub(crate) use kind::{Findings, Operation};
pub use related::{Lookup, Related};
pub use table::{ROWS, Row, lookups};
pub(crate) use table::{RawRequest, find, rules};
