//! The Kubernetes API on `SQLite`: a faithful subset in one process.
//!
//! - [`EmbeddedApi`] is the entry: open it, take its router (or an in-process client), run its tasks;
//! - `store` keeps objects and the log of changes, and knows no kinds;
//! - `registry` knows the kinds: built-in ones as a table, those of CRDs, those of other servers;
//! - `kinds` are defaults and rules of the built-in ones;
//! - `request` reads what is asked, `router` finds who answers, `verbs` do it;
//! - `auth` tells who asks, `tokens` are those of service accounts, `access` who may do what;
//! - `admission`, `aggregate`, `logs` call other servers, found by `backend`;
//! - `documents` are discovery and `OpenAPI`;
//! - `plugins` complete new objects from others, `disruption` guards evictions;
//! - `upkeep` collects garbage, empties namespaces, puts roles together, counts budgets, expires
//!   events, shortens the log.
//!
//! Invariants: no object is kept in memory between requests; every write goes through
//! `verbs::write` or the deletion in `verbs::delete`; nothing is answered before it is known who
//! asks and that they may, and rules of roles are all that is remembered of objects. Must not know: what any custom kind means.

mod clock;
mod error;
mod store;

mod access;
mod auth;
mod kinds;
mod registry;
mod request;
mod tokens;

mod api;
mod router;
mod verbs;

mod admission;
mod aggregate;
mod backend;
mod disruption;
mod documents;
mod logs;
mod plugins;
mod quota;

mod upkeep;

pub use api::{EmbeddedApi, KubeletClient, OpenError, ServiceAccounts, Settings};
pub use auth::Identity;
pub use clock::Clock;
pub use error::ApiError;
pub use store::{Database, StoreError};
pub use tokens::{KeyError, SigningKey};
