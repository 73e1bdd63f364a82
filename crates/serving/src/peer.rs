//! The identity of a client.
//!
//! Invariant: a [`PeerCertificate`] exists only for a certificate that was verified in the handshake.

use std::net::SocketAddr;

use rustls_pki_types::CertificateDer;
use x509_parser::{extensions::GeneralName, prelude::X509Certificate};

/// The client of a connection: an extension of every request to a [`crate::Server`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub address: SocketAddr,
    /// None if the client presented no certificate.
    pub certificate: Option<PeerCertificate>,
}

/// The names in a verified client certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerCertificate {
    pub common_name: Option<String>,
    pub organizations: Vec<String>,
    pub dns_names: Vec<String>,
}

impl PeerCertificate {
    /// Reads the names; None if the bytes are not an X.509 certificate.
    pub fn parse(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let subject = parsed.subject();
        Some(Self {
            common_name: subject
                .iter_common_name()
                .next()
                .and_then(|name| name.as_str().ok())
                .map(ToOwned::to_owned),
            organizations: subject
                .iter_organization()
                .filter_map(|name| name.as_str().ok())
                .map(ToOwned::to_owned)
                .collect(),
            dns_names: dns_names(&parsed),
        })
    }
}

fn dns_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(names)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    names
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        })
        .collect()
}
