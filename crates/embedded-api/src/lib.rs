//! The Kubernetes API on `SQLite`: a faithful subset in one process.
//!
//! - [`EmbeddedApi`] is the entry point: open it, take its router (or an in-process client), run
//!   its tasks;
//! - `store` holds objects and the log of changes, and is independent of kinds;
//! - `registry` lists the served kinds: built-in ones as a table, those of CRDs, those of other
//!   servers;
//! - `kinds` has defaults and validation of the built-in ones;
//! - `request` parses requests, `router` dispatches them, `verbs` execute them, `span` traces them;
//! - `auth` authenticates, `tokens` issues tokens of service accounts, `access` authorizes;
//! - `admission`, `aggregate`, `conversion`, `logs` call other servers, located by `backend`;
//! - [`reference`] renders the list of served kinds as a page;
//! - `encode` writes answers as protobuf or YAML;
//! - `fairness` limits what each user may use at once, and confines panics to their request;
//! - `health` answers health checks;
//! - `documents` serves discovery and `OpenAPI`, `metrics` the metrics of the process;
//! - `services` assigns cluster IPs and node ports;
//! - `plugins` complete new objects from other objects, `disruption` limits evictions;
//! - `pod_security` checks pods against the Pod Security Standards;
//! - `upkeep` collects garbage, maintains endpoints, empties namespaces, aggregates roles, counts
//!   budgets, expires events, compacts the log, copies the database.
//!
//! Invariants: no object is kept in memory between requests, except the rules of roles; every write
//! goes through `verbs::write` or the deletion in `verbs::delete`; every request is authenticated
//! and authorized first. Out of scope: the meaning of any custom kind.

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
mod span;
mod verbs;

mod admission;
mod aggregate;
mod backend;
mod conversion;
mod disruption;
mod documents;
mod encode;
mod fairness;
mod health;
mod limits;
mod logs;
mod metrics;
mod plugins;
mod pod_security;
mod quota;
pub mod reference;
mod services;

mod upkeep;

pub use self::metrics::METRICS;
pub use api::{Certificates, EmbeddedApi, KubeletClient, OpenError, ServiceAccounts, Settings};
pub use auth::Identity;
pub use clock::Clock;
pub use error::ApiError;
pub use services::ServiceSettings;
pub use store::{
    Contents, Database, Snapshot, StoreError, back_up, inspect, interrupted_restore, restore,
};
pub use tokens::{KeyError, SigningKey, Statements};
pub use upkeep::copies::Copies;
