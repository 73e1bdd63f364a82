//! The Kubernetes API on `SQLite`: a faithful subset in one process.
//!
//! - [`EmbeddedApi`] is the entry: open it, take its router (or an in-process client), run its tasks;
//! - `store` keeps objects and the log of changes, and knows no kinds;
//! - `registry` knows the kinds: built-in ones as a table, those of CRDs, those of other servers;
//! - `request` reads what is asked, `router` finds who answers, `verbs` do it;
//! - `admission`, `aggregate`, `logs` call other servers, found by `backend`;
//! - `documents` are discovery and `OpenAPI`;
//! - `upkeep` collects garbage, empties namespaces, expires events, shortens the log.
//!
//! Invariants: no object is kept in memory between requests; every write goes through
//! `verbs::write` or the deletion in `verbs::delete`; a request without a verified identity reads
//! health and version only. Must not know: what any custom kind means.

mod clock;
mod error;
mod store;

mod auth;
mod registry;
mod request;

mod api;
mod router;
mod verbs;

mod admission;
mod aggregate;
mod backend;
mod documents;
mod logs;

mod upkeep;

pub use api::{EmbeddedApi, KubeletClient, OpenError, Settings};
pub use auth::Identity;
pub use clock::Clock;
pub use error::ApiError;
pub use store::{Database, StoreError};
