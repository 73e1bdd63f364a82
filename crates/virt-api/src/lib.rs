//! Admission webhooks and the aggregated API `subresources.kubevirt.io`.
//!
//! - `verbs`: what users do to a running VM, one module each; routes, discovery and the list of
//!   rights are made from the one list of them;
//! - `streams`: consoles and screens, joined byte by byte to the node that has them;
//! - `webhooks`: HTTP around the pure functions of `admission`;
//! - `caller`: who asks, and whether they may.
//!
//! **Invariants**: stateless, any number of replicas; nothing is asked of a node whose certificate
//! does not name it; a user's right is checked for every request, by the API server's own word.

mod caller;
mod discovery;
mod node;
mod refusal;
mod settings;
mod streams;
mod verbs;
mod webhooks;

pub use installation::webhooks::{EVICT, MUTATE, VALIDATE, Webhook};
pub use settings::{FrontProxy, Settings, run};
pub use verbs::{ALL as VERBS, Entry, Object};
