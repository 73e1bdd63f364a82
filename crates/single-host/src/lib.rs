//! All of Ferrovirt on one host: one process, one directory, one command.
//!
//! - [`cli`] is the command line; `run` dispatches it to a command;
//! - `up` starts the embedded API server, the embedded kubelet and the components of `KubeVirt`, each a task
//!   whose only connection to the others is a `kube::Client`;
//! - `state_dir` has the paths of the state directory and its lock;
//! - `down`, `reset`, `status` work on the directory, with or without a running process;
//! - `service` installs `up` as a service of systemd;
//! - `backup` copies and restores the database, `history` checks that it belongs to this host;
//! - [`metrics`] lists the tables of metrics that the API server serves.
//!
//! **Invariants**: guests survive the end and the restart of this process; everything created on the host can
//! be found from the state directory alone and is removed by `down`; only this crate depends on every component,
//! and no component depends on it.

mod backup;
pub mod cli;
mod down;
mod history;
mod identities;
mod kubeconfig;
pub mod metrics;
mod printer;
mod requirements;
mod run;
mod service;
mod state_dir;
mod status;
mod up;

pub use run::{explain, run};
