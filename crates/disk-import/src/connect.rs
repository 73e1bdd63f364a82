//! Connections to the server of a source, plain or with TLS.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time;
use tokio_rustls::TlsConnector;
use url::Url;

/// Less than the time for the whole connection, so that a second address is tried.
const PER_ADDRESS: Duration = Duration::from_secs(8);

/// Both directions of a connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub(crate) type Connecting<'a> =
    Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + 'a>>;

/// Opens connections; a test has its own.
pub(crate) trait Connect {
    fn connect<'a>(&'a self, url: &'a Url) -> Connecting<'a>;
}

/// Connections over the network.
pub(crate) struct Network {
    tls: TlsConnector,
}

impl Network {
    /// Trusts the public authorities and, besides, those in the PEM files.
    pub(crate) fn new(authorities: &[Vec<u8>]) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(
            webpki_root_certs::TLS_SERVER_ROOT_CERTS
                .iter()
                .cloned()
                .map(CertificateDer::into_owned),
        );
        for pem in authorities {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|error| error.to_string())?;
                let added = roots.add(certificate);
                added.map_err(|error| error.to_string())?;
            }
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            tls: TlsConnector::from(Arc::new(config)),
        })
    }
}

/// Tries all addresses of the host: one that does not answer leaves time for the others.
async fn open(host: &str, port: u16) -> io::Result<TcpStream> {
    let message = "the name of the host has no address";
    let mut last = io::Error::new(io::ErrorKind::NotFound, message);
    for address in lookup_host((host, port)).await? {
        match time::timeout(PER_ADDRESS, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(late) => last = late.into(),
        }
    }
    Err(last)
}

impl Connect for Network {
    fn connect<'a>(&'a self, url: &'a Url) -> Connecting<'a> {
        Box::pin(async move {
            let host = url.host_str().unwrap_or_default();
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            let port = url.port_or_known_default().unwrap_or(80);
            let stream = open(bare, port).await?;
            if url.scheme() != "https" {
                return Ok(Box::new(stream) as Box<dyn Stream>);
            }
            let name = ServerName::try_from(bare.to_owned()).map_err(io::Error::other)?;
            let stream = self.tls.connect(name, stream).await?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}
