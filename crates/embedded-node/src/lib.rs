//! Pods as local processes: a small kubelet.
//!
//! [`EmbeddedNode`] registers a Node, binds pods to it and drives each bound pod by one task:
//! observe (the pod, its supervisor's status, images, volumes, network), plan (pure), act. Files
//! lie where a kubelet has them: `<root>/pods/<uid>/volumes/kubernetes.io~empty-dir/<name>`.
//!
//! **Invariants.** Containers belong to their pod's supervisor process: this crate may be killed
//! at any instruction, and whoever runs next goes on from the disk with no container touched and
//! none started twice. What is on disk and unknown to the API server is taken down. Nothing here
//! knows virtual machines.

mod affinity;
mod container;
mod devices;
mod documents;
mod endpoint;
mod environment;
mod error;
#[expect(unsafe_code, reason = "a terminal is registered by its descriptor")]
mod exec;
mod logs;
mod node;
mod pod;
mod port_forward;
mod probes;
mod registration;
mod resolv_conf;
mod resources;
mod room;
mod schedule;
mod services;
mod settings;
mod storage;
mod streams;
mod supervisor;
mod teardown;
mod tokens;
mod volumes;

pub use error::{Failure, NodeError};
pub use node::EmbeddedNode;
pub use settings::{Addresses, Endpoint, Images, Network, Resolver, ServiceOffer, Settings};
pub use teardown::{TeardownError, teardown_all};
