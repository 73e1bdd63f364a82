//! Which TLS versions and ciphers the installation's servers take.

use kubevirt_api::cluster_config::{TlsConfiguration, TlsProtocolVersion};

use super::{CONFIGURATION, Question, configuration};
use crate::{Violation, kinds::Fault};

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

fn written(asked: &Question<'_>) -> Option<TlsConfiguration> {
    configuration(asked).tls_configuration
}

/// TLS 1.3, which is also what an empty minimum means, leaves nothing to choose.
pub(super) fn minimum(asked: &Question<'_>) -> Vec<Fault> {
    let Some(tls) = written(asked) else {
        return Vec::new();
    };
    let minimum = tls.min_tls_version.as_ref();
    let is_newest = minimum.is_none_or(|version| {
        version.as_str().is_empty() || *version == TlsProtocolVersion::VersionTLS13
    });
    if tls.ciphers.is_empty() || !is_newest {
        return Vec::new();
    }
    let detail = "ciphers cannot be chosen for TLS 1.3; leave them out, or set minTLSVersion to \
                  VersionTLS12 or older";
    vec![Violation::not_supported(field(), detail).into()]
}

pub(super) fn ciphers(asked: &Question<'_>) -> Vec<Fault> {
    let ciphers = written(asked).map(|tls| tls.ciphers).unwrap_or_default();
    let unknown = ciphers
        .iter()
        .enumerate()
        .filter(|(_, cipher)| !CIPHERS.contains(&cipher.as_str()));
    let faults = unknown.map(|(i, cipher)| {
        let detail = format!("{cipher:?} is unknown; use some of {}", CIPHERS.join(", "));
        Violation::not_supported(format!("{}[{i}]", field()), detail).into()
    });
    faults.collect()
}
