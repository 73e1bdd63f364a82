//! TLS servers and clients that know who is at the other end.
//!
//! - [`pki`] makes certificate authorities and leaf certificates, and keeps them in PEM files;
//! - [`tls`] turns them into rustls settings that may be swapped while a server runs;
//! - [`peer`] is what a server knows about a caller, put on each request as an extension;
//! - [`server`] is the accept loop around an axum router;
//! - [`client`] is a small HTTPS client that names the server it expects, and can be upgraded;
//! - [`upgrade`] joins two upgraded connections.
//!
//! Invariants: one crypto provider (aws-lc-rs), passed explicitly and never installed globally; no
//! certificate is accepted without a check against a named authority; no clock is read here, except
//! by rustls when it checks validity. Must not know: Kubernetes.

pub mod client;
pub mod peer;
pub mod pki;
pub mod server;
pub mod tls;
pub mod upgrade;

pub use client::{ClientError, HttpsClient, Target};
pub use peer::{Peer, PeerCertificate};
pub use pki::{Authority, Identity, Leaf, PkiError, SigningRequest, Trust, Usage, Validity};
pub use server::{Limits, Server};
pub use tls::{ClientCertificates, TlsError, TlsSource, TlsSwap, believes};

#[cfg(test)]
mod tests;
