//! Object semantics of the Kubernetes API server, as pure functions from `serde_json::Value` to
//! `Value`.
//!
//! Invariants: nothing here reads a clock, a file or a socket; time and randomness are passed in.
//! Hostile input costs bounded work and bounded stack, given that values come from the JSON reader,
//! which limits nesting to 128 levels (a caller that reads YAML must enforce the same limit). Texts
//! that clients parse or users know (errors, managed fields, tables) are those of kube-apiserver.
//!
//! Out of scope: storage, HTTP, and which kinds the server serves.

pub mod resource;
pub mod status;
pub mod violation;

pub mod meta;
pub mod names;

pub mod jsonpath;
pub mod selector;

pub mod cel;
pub mod patch;
pub mod schema;
pub mod shape;

pub mod apply;
pub mod rbac;

pub mod discovery;
pub mod openapi;
pub mod protobuf;
pub mod table;

pub use resource::{GroupKind, GroupResource, Resource, Subresource};
pub use status::{Reason, Status};
pub use violation::{Fault, Violation};
