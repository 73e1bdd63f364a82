//! All of Ferrovirt on one host: one process, one directory, one command.
//!
//! - [`cli`] is the command line; `run` leads from it to a command;
//! - `up` joins the embedded API server, the embedded node and the components of `KubeVirt`, each
//!   a task that talks through a `kube::Client` alone;
//! - `state_dir` is where everything lies and who holds it;
//! - `down`, `reset`, `status` work on the directory, with or without a running process.
//!
//! **Invariants**: a guest does not notice this process die or come back; whatever is made on the
//! host is found again from the state directory alone and is gone after `down`; this is the one
//! place that knows every component, and no component knows this one.

pub mod cli;
mod down;
mod identities;
mod kubeconfig;
pub mod metrics;
mod printer;
mod requirements;
mod run;
mod state_dir;
mod status;
mod up;

pub use run::{explain, run};
