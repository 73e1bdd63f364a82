//! TLS versions and ciphers of the installation's servers.

use kubevirt_api::cluster_config::{TlsConfiguration, TlsProtocolVersion};
use validation::Violation;

use super::request::{CONFIGURATION, Request, configuration};
use crate::kinds::kind::Problem;

/// Cipher suites by their registered names.
const CIPHERS: &[&str] = &[
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
];

fn field() -> String {
    format!("{CONFIGURATION}.tlsConfiguration.ciphers")
}

fn written(request: &Request<'_>) -> Option<TlsConfiguration> {
    configuration(request).tls_configuration
}

/// The ciphers of TLS 1.3, which is also the default minimum, are not configurable.
pub(super) fn minimum(request: &Request<'_>) -> Vec<Problem> {
    let Some(tls) = written(request) else {
        return Vec::new();
    };
    let minimum = tls.min_tls_version.as_ref();
    let is_newest = minimum.is_none_or(|version| {
        version.as_str().is_empty() || *version == TlsProtocolVersion::VersionTLS13
    });
    if tls.ciphers.is_empty() || !is_newest {
        return Vec::new();
    }
    let detail = "ciphers are not configurable for TLS 1.3; leave them out, or set minTLSVersion to \
                  VersionTLS12 or older";
    vec![Violation::not_supported(field(), detail).into()]
}

pub(super) fn ciphers(request: &Request<'_>) -> Vec<Problem> {
    let ciphers = written(request).map(|tls| tls.ciphers).unwrap_or_default();
    let unknown = ciphers
        .iter()
        .enumerate()
        .filter(|(_, cipher)| !CIPHERS.contains(&cipher.as_str()));
    let problems = unknown.map(|(i, cipher)| {
        let detail = format!("{cipher:?} is unknown; use any of {}", CIPHERS.join(", "));
        Violation::not_supported(format!("{}[{i}]", field()), detail).into()
    });
    problems.collect()
}
