//! rustls settings from certificates and trusted authorities, replaceable while a server runs.
//!
//! Invariant: a swap takes effect for new handshakes only, and a broken identity never replaces a
//! working one. Must not know: HTTP.

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    crypto::CryptoProvider,
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use rustls_pki_types::{ServerName, UnixTime};
use tokio::sync::watch;

use crate::{
    peer::PeerCertificate,
    pki::{Identity, PkiError, Trust},
};

/// Why TLS settings could not be created.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("read certificates")]
    Pki(#[from] PkiError),
    #[error("use certificate")]
    Rustls(#[from] rustls::Error),
    #[error("create the verifier of client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// Whether a server requires client certificates.
#[derive(Debug, Clone)]
pub enum ClientCertificates {
    /// The server does not request one.
    Ignored,
    /// A client may present one; an invalid one fails the handshake.
    Optional(Trust),
    /// A client without one fails the handshake.
    Required(Trust),
}

/// The current TLS settings of a server.
#[derive(Clone)]
pub struct TlsSource {
    current: watch::Receiver<Arc<ServerConfig>>,
}

impl TlsSource {
    /// Settings that never change.
    pub fn fixed(identity: &Identity, clients: &ClientCertificates) -> Result<Self, TlsError> {
        Ok(Self::swappable(identity, clients)?.1)
    }

    /// Settings that the owner of the [`TlsSwap`] may replace.
    pub fn swappable(
        identity: &Identity,
        clients: &ClientCertificates,
    ) -> Result<(TlsSwap, Self), TlsError> {
        let (sender, current) = watch::channel(Arc::new(server_config(identity, clients)?));
        Ok((TlsSwap { sender }, Self { current }))
    }

    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.borrow())
    }
}

impl fmt::Debug for TlsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSource").finish_non_exhaustive()
    }
}

/// Replaces a server's certificates.
pub struct TlsSwap {
    sender: watch::Sender<Arc<ServerConfig>>,
}

impl TlsSwap {
    /// Uses these from the next handshake on. On error nothing changes.
    pub fn replace(
        &self,
        identity: &Identity,
        clients: &ClientCertificates,
    ) -> Result<(), TlsError> {
        self.sender
            .send_replace(Arc::new(server_config(identity, clients)?));
        Ok(())
    }
}

impl fmt::Debug for TlsSwap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSwap").finish_non_exhaustive()
    }
}

/// A client's settings: it trusts only `trust`, and presents `identity` on request.
pub fn client_config(
    trust: &Trust,
    identity: Option<&Identity>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots(trust)?);
    let config = match identity {
        Some(identity) => builder.with_client_auth_cert(identity.chain()?, identity.key()?)?,
        None => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

/// Whether a client that trusts `trust` accepts `identity` at this time as the certificate of the server
/// `name`.
pub fn believes(
    trust: &Trust,
    identity: &Identity,
    name: &str,
    now: Timestamp,
) -> Result<bool, TlsError> {
    let chain = identity.chain()?;
    let (Some((leaf, others)), Ok(name)) = (chain.split_first(), ServerName::try_from(name)) else {
        return Ok(false);
    };
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots(trust)?), provider()).build()?;
    Ok(verifier
        .verify_server_cert(leaf, others, &name, &[], at(now))
        .is_ok())
}

/// Whether a server that trusts `trust` accepts `identity` at this time as the certificate of the client with this
/// common name.
pub fn believes_client(
    trust: &Trust,
    identity: &Identity,
    common_name: &str,
    now: Timestamp,
) -> Result<bool, TlsError> {
    let chain = identity.chain()?;
    let Some((leaf, others)) = chain.split_first() else {
        return Ok(false);
    };
    let named = PeerCertificate::parse(leaf).and_then(|certificate| certificate.common_name);
    let verified = verifier(trust, Anonymous::Refused)?.verify_client_cert(leaf, others, at(now));
    Ok(verified.is_ok() && named.as_deref() == Some(common_name))
}

fn at(time: Timestamp) -> UnixTime {
    let seconds = u64::try_from(time.as_second()).unwrap_or_default();
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

fn server_config(
    identity: &Identity,
    clients: &ClientCertificates,
) -> Result<ServerConfig, TlsError> {
    let builder =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match clients {
        ClientCertificates::Ignored => builder.with_no_client_auth(),
        ClientCertificates::Optional(trust) => {
            builder.with_client_cert_verifier(verifier(trust, Anonymous::Allowed)?)
        }
        ClientCertificates::Required(trust) => {
            builder.with_client_cert_verifier(verifier(trust, Anonymous::Refused)?)
        }
    };
    let mut config = builder.with_single_cert(identity.chain()?, identity.key()?)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Sessions are resumed by tickets; a cache of a few is enough for callers that hold connections.
    config.session_storage = rustls::server::ServerSessionMemoryCache::new(32);
    Ok(config)
}

#[derive(Clone, Copy)]
enum Anonymous {
    Allowed,
    Refused,
}

fn verifier(trust: &Trust, anonymous: Anonymous) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(trust)?), provider());
    let builder = match anonymous {
        Anonymous::Allowed => builder.allow_unauthenticated(),
        Anonymous::Refused => builder,
    };
    Ok(builder.build()?)
}

fn roots(trust: &Trust) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in trust.certificates()? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}
