//! TLS servers and clients that authenticate their peer.
//!
//! - [`pki`] creates certificate authorities and leaf certificates, and stores them as PEM files;
//! - [`tls`] creates rustls settings from them, which can be replaced while a server runs;
//! - [`peer`] identifies a client, as an extension of each request;
//! - [`server`] is the accept loop around an axum router, `peers` its bounds of connections;
//! - [`hold`] ties something to a response until it was sent;
//! - [`client`] is a small HTTPS client that expects a server name, with support for upgrades;
//! - [`upgrade`] joins two upgraded connections;
//! - [`unverified`] connects to servers without a known authority, for probes of containers and programs in
//!   guests.
//!
//! Invariants: one crypto provider (aws-lc-rs), passed explicitly and never installed globally; no
//! certificate is accepted without a check against a named authority, except in [`unverified`]; no clock is read here, except
//! by rustls when it checks validity. Must not know: Kubernetes.

pub mod client;
mod held;
pub mod peer;
mod peers;
pub mod pki;
pub mod server;
pub mod tls;
pub mod unverified;
pub mod upgrade;

pub use client::{ClientError, HttpsClient, Target};
pub use held::hold;
pub use peer::{Peer, PeerCertificate};
pub use pki::{Authority, Identity, Leaf, PkiError, SigningRequest, Trust, Usage, Validity};
pub use server::{Limits, Server};
pub use tls::{ClientCertificates, TlsError, TlsSource, TlsSwap, believes, believes_client};

#[cfg(test)]
mod tests;
