//! Pods as local processes: a small kubelet.
//!
//! [`EmbeddedNode`] registers a Node, binds pods to it and runs one task per bound pod: it
//! observes (the pod, its supervisor's status, images, volumes, network), plans (pure) and acts.
//! Files are where a kubelet has them: `<root>/pods/<uid>/volumes/kubernetes.io~empty-dir/<name>`.
//!
//! **Invariants.** Containers belong to their pod's supervisor process: this crate may be killed
//! at any instruction, and the next process continues from the disk without touching a container
//! or starting one twice. Pods on disk that the API server does not know are torn down. Nothing
//! here knows virtual machines.

mod affinity;
mod container;
mod cpus;
mod devices;
mod disk;
mod documents;
mod endpoint;
mod environment;
mod error;
#[expect(unsafe_code, reason = "a terminal is registered by its descriptor")]
mod exec;
mod hooks;
mod host_ports;
mod hostname;
mod hosts;
mod logs;
mod metrics;
mod network_definitions;
mod node;
mod pod;
mod policies;
mod port_forward;
mod probes;
mod registration;
mod repeated;
mod resolv_conf;
mod resources;
mod schedule;
mod selector;
mod services;
mod settings;
mod slots;
mod storage;
mod streams;
mod supervisor;
mod sysctls;
mod teardown;
mod tokens;
mod users;
mod volumes;

pub use self::metrics::METRICS;
pub use endpoint::API_SERVER;
pub use error::{Failure, NodeError};
pub use network_definitions::NETWORK_DEFINITIONS;
pub use node::{EmbeddedNode, recorded_pods};
pub use settings::{
    Addresses, Endpoint, Images, Network, Resolver, SecondaryInterface, ServiceOffer, Settings,
    VOLUME_REFRESH,
};
pub use storage::definitions::VOLUME_SNAPSHOT_DEFINITIONS;
pub use teardown::{Progress, Stopping, TeardownError, teardown_all};
