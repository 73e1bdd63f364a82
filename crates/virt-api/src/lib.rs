//! Admission webhooks and the aggregated APIs `subresources.kubevirt.io` and `subresources.template.kubevirt.io`.
//!
//! - `verbs`: operations on VMs and templates, one module each; routes, discovery and rights come from one
//!   list;
//! - `discovery`, `openapi`: documents about the verbs, made from the same list;
//! - `streams`: consoles and screens, connected byte by byte to the node of the guest;
//! - `uploads`: tokens for uploads of disks, and the proxy that receives them;
//! - `exports`: the proxy through which clients outside of the cluster download exports;
//! - `webhooks`: HTTP around the pure functions of `admission`;
//! - `metrics`: the metrics of this crate and the path `/metrics`;
//! - `caller`: the user of a request, and the access check.
//!
//! **Invariants**: stateless, any number of replicas; no request goes to a node whose certificate does
//! not name it; the API server checks the user's right for every request.

mod caller;
mod discovery;
mod exports;
mod fallback;
mod metrics;
mod node;
mod openapi;
mod refusal;
mod settings;
mod streams;
mod uploads;
mod verbs;
mod webhooks;

pub use self::metrics::METRICS;
pub use cluster_view::Configuration;
pub use exports::ExportProxy;
pub use installation::registration::{AGGREGATED, Aggregated};
pub use installation::webhooks::{
    EVICT, EVICTION_PATH, MUTATE, MUTATE_COPY, VALIDATE, VALIDATE_COPY, Webhook,
};
pub use settings::{FrontProxy, Settings, WebhookCallers, run};
pub use uploads::{Signer, UploadProxy, UploadTokens};
pub use verbs::{ALL as VERBS, Answer, Contract, Entry, Level, Object, Verb};
