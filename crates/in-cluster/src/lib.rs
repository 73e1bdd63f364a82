//! The components as processes of a cluster: `ferrovirt api`, `ferrovirt controller`,
//! `ferrovirt handler`, each in pods that `deploy/ferrovirt.yaml` describes.
//!
//! - [`cli`] is the command line, `run` leads from it to a component; `client` is what it talks to the
//!   API server with;
//! - `rights` tells which rights are missing, `notices` is how a component speaks of itself;
//! - `authority` keeps the installation's certificate authority, `signer` signs for node agents,
//!   `certificate` asks it to;
//! - `front_proxy` reads whom the API server forwards for;
//! - `trust` writes the authority where API servers look for it, `changes` waits for others who write,
//!   `pause` for the time to look again.
//!
//! **Invariants**: only `ferrovirt api` can read the authority's key; the key of a node's agent never
//! leaves its node, and its certificate is for the node that Kubernetes says its token is bound to,
//! whatever the request says; certificates are renewed long before they end, without a restart; no
//! component knows this crate.

mod api;
mod authority;
mod certificate;
mod changes;
pub mod cli;
mod client;
mod controller;
mod front_proxy;
mod handler;
mod health;
mod metrics;
mod notices;
mod pause;
mod rights;
mod run;
mod signer;
mod trust;

pub use run::run;
