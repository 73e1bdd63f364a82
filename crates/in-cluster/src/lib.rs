//! The components as processes of a cluster: `ferrovirt api`, `ferrovirt controller`,
//! `ferrovirt handler`, each in pods that `deploy/ferrovirt.yaml` describes.
//!
//! - [`cli`] is the command line, `run` dispatches it to a component; `client` is the client of the API server;
//! - `rights` reports missing rights, `notices` publishes events about a component's own pod;
//! - `authority` keeps the installation's certificate authority, `signer` signs the certificates that
//!   `certificate` requests for virt-handler, and `guest_certificate` for its connections to servers in guests;
//! - `front_proxy` reads the authority of the API server's front proxy;
//! - `trust` writes the authority into the objects that API servers read, `changes` watches an object for
//!   changes by others, `pause` waits until the next check;
//! - `transfers` has the proxies of uploads and exports on a port of their own, and the key of upload tokens;
//! - `health` serves the kubelet's probes and the tables of `metrics`.
//!
//! **Invariants**: only `ferrovirt api` can read the authority's key; the key of a virt-handler never leaves its
//! node, and its certificate is for the node that its token is bound to, whatever the request names;
//! certificates are renewed long before they expire, without a restart; no component depends on this crate.

mod api;
mod authority;
mod certificate;
mod changes;
pub mod cli;
mod client;
mod console;
mod controller;
mod front_proxy;
mod guest_certificate;
mod handler;
mod health;
mod metrics;
mod notices;
mod pause;
mod rights;
mod run;
mod signer;
mod transfers;
mod trust;

pub use run::run;
