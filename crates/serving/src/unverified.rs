//! TLS to servers without a known authority: containers whose probes and hooks use HTTPS, and programs in guests.
//! Kubelets and `KubeVirt` do not check these certificates either.
//!
//! **Invariant.** Never used for secrets of ours: the certificate does not say who the peer is.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, SignatureScheme,
    client::{
        WantsClientCert,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::pki::Identity;

/// Makes a TLS connection over the stream, whatever the certificate of the server.
pub async fn connect<S>(stream: S, host: &str) -> io::Result<TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let config = any_server()?.with_no_client_auth();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

/// Likewise, to a server without a name, which gets to know who connects if it asks for a certificate.
pub async fn connect_as<S>(stream: S, identity: &Identity) -> io::Result<TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let chain = identity.chain().map_err(io::Error::other)?;
    let key = identity.key().map_err(io::Error::other)?;
    let mut config = any_server()?
        .with_client_auth_cert(chain, key)
        .map_err(io::Error::other)?;
    config.enable_sni = false;
    // The name is neither sent nor compared.
    let name = ServerName::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

fn any_server() -> io::Result<ConfigBuilder<ClientConfig, WantsClientCert>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = AnyCertificate(Arc::clone(&provider));
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier)))
}

/// Checks that the peer has the key of its certificate, and nothing else.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.0.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
