//! Downloads manifests and blobs from a registry.
//!
//! Registries are not trusted: responses are bounded by the sizes in the verified manifest and
//! hashed here, independently of the client library. Registries on a loopback address are accessed
//! without TLS, as by other container tools; all others with TLS.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use oci_client::Reference;
use oci_client::client::{Client, ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::secrets::RegistryAuth;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;

use crate::ImageConfig;
use crate::credentials::Credentials;
use crate::digest::Digest;
use crate::error::RegistryError;
use crate::manifest::{
    ConfigDocument, DOCKER_INDEX_TYPE, DOCKER_MANIFEST_TYPE, Descriptor, Document, INDEX_TYPE,
    MANIFEST_TYPE, MAX_DOCUMENT, Manifest, platform_name,
};
use crate::metrics;

pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Between two chunks of a response.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// The connection to the registry of one image.
pub(crate) struct Registry {
    client: Client,
    reference: Reference,
    auth: RegistryAuth,
}

/// A resolved image.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) digest: Digest,
    pub(crate) manifest: Manifest,
}

impl Registry {
    pub(crate) fn new(reference: &Reference, credentials: &Credentials) -> Self {
        let config = ClientConfig {
            protocol: protocol_for(reference.resolve_registry()),
            connect_timeout: Some(CONNECT_TIMEOUT),
            read_timeout: Some(READ_TIMEOUT),
            user_agent: "ferrovirt",
            ..ClientConfig::default()
        };
        Self {
            client: Client::new(config),
            reference: reference.clone(),
            auth: credentials.for_reference(reference),
        }
    }

    /// Fetches the manifest for this host's platform.
    pub(crate) async fn resolve(&self) -> Result<Remote, RegistryError> {
        let (digest, document) = self.document(&self.reference).await?;
        let index = match document {
            Document::Manifest(manifest) => return Ok(Remote { digest, manifest }),
            Document::Index(index) => index,
        };
        let no_platform = || RegistryError::NoPlatform {
            registry: self.name(),
            platform: platform_name(),
        };
        let chosen = index.for_this_host().ok_or_else(no_platform)?;
        let reference = self.reference.clone_with_digest(chosen.digest.to_string());
        match self.document(&reference).await? {
            (digest, Document::Manifest(manifest)) => Ok(Remote { digest, manifest }),
            (_, Document::Index(_)) => Err(no_platform()),
        }
    }

    pub(crate) async fn config(&self, manifest: &Manifest) -> Result<ImageConfig, RegistryError> {
        let bytes = self.small_blob(&manifest.config).await?;
        let document: ConfigDocument = self.parse(&bytes, "the image configuration")?;
        Ok(document.config.unwrap_or_default())
    }

    /// Writes a blob to a new file.
    pub(crate) async fn download(
        &self,
        descriptor: &Descriptor,
        to: &Path,
    ) -> Result<(), RegistryError> {
        let downloaded = self.download_to(descriptor, to).await;
        let result = if downloaded.is_ok() { "done" } else { "failed" };
        metrics::DOWNLOADS.increment([result]);
        downloaded
    }

    async fn download_to(&self, descriptor: &Descriptor, to: &Path) -> Result<(), RegistryError> {
        let mut file = tokio::fs::File::create_new(to)
            .await
            .map_err(RegistryError::Save)?;
        let mut stream = self.blob(descriptor).await?;
        let mut hasher = Sha256::new();
        let mut left = descriptor.size;
        while let Some(chunk) = stream.next().await {
            let chunk = chunk?;
            metrics::DOWNLOADED_BYTES.add([], u64::try_from(chunk.len()).unwrap_or(u64::MAX));
            left = subtract(left, chunk.len()).ok_or_else(|| RegistryError::TooLarge {
                registry: self.name(),
                what: "a layer",
                limit: descriptor.size,
            })?;
            hasher.update(&chunk);
            file.write_all(&chunk).await.map_err(RegistryError::Save)?;
        }
        file.flush().await.map_err(RegistryError::Save)?;
        if left == 0 && Digest::finish(hasher) == descriptor.digest {
            return Ok(());
        }
        Err(self.corrupt_blob(descriptor))
    }

    async fn document(&self, reference: &Reference) -> Result<(Digest, Document), RegistryError> {
        let accepted = [
            MANIFEST_TYPE,
            INDEX_TYPE,
            DOCKER_MANIFEST_TYPE,
            DOCKER_INDEX_TYPE,
        ];
        let (bytes, _) = self
            .client
            .pull_manifest_raw(reference, &self.auth, &accepted)
            .await
            .map_err(|error| self.failure(error))?;
        if subtract(MAX_DOCUMENT, bytes.len()).is_none() {
            return Err(RegistryError::TooLarge {
                registry: self.name(),
                what: "a manifest",
                limit: MAX_DOCUMENT,
            });
        }
        let digest = Digest::of(&bytes);
        if reference
            .digest()
            .is_some_and(|wanted| wanted != digest.as_str())
        {
            let what = format!("manifest {digest}");
            return Err(RegistryError::Corrupt {
                registry: self.name(),
                what,
            });
        }
        Ok((digest, self.parse(&bytes, "a manifest")?))
    }

    async fn small_blob(&self, descriptor: &Descriptor) -> Result<Vec<u8>, RegistryError> {
        let too_large = || RegistryError::TooLarge {
            registry: self.name(),
            what: "the image configuration",
            limit: MAX_DOCUMENT,
        };
        let mut left = Some(descriptor.size.min(MAX_DOCUMENT));
        let mut stream = self.blob(descriptor).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk?;
            left = left.and_then(|left| subtract(left, chunk.len()));
            if left.is_none() {
                return Err(too_large());
            }
            bytes.extend_from_slice(&chunk);
        }
        if Digest::of(&bytes) != descriptor.digest {
            return Err(self.corrupt_blob(descriptor));
        }
        Ok(bytes)
    }

    async fn blob(
        &self,
        descriptor: &Descriptor,
    ) -> Result<BoxStream<'_, Result<Bytes, RegistryError>>, RegistryError> {
        let digest = descriptor.digest.clone();
        let stream = self
            .client
            .pull_blob_stream(&self.reference, digest.as_str())
            .await
            .map_err(|error| self.failure(error))?;
        let chunks = stream.map(move |chunk| {
            chunk.map_err(|source| RegistryError::Transfer {
                registry: self.name(),
                digest: digest.clone(),
                source,
            })
        });
        Ok(chunks.boxed())
    }

    fn parse<T: serde::de::DeserializeOwned>(
        &self,
        bytes: &[u8],
        what: &'static str,
    ) -> Result<T, RegistryError> {
        serde_json::from_slice(bytes).map_err(|source| RegistryError::Parse {
            registry: self.name(),
            what,
            source,
        })
    }

    fn corrupt_blob(&self, descriptor: &Descriptor) -> RegistryError {
        RegistryError::Corrupt {
            registry: self.name(),
            what: format!("blob {}", descriptor.digest),
        }
    }

    fn name(&self) -> String {
        self.reference.resolve_registry().to_owned()
    }

    /// Registries respond "unauthorized" to anonymous clients for images that do not exist, so the
    /// two cases cannot be distinguished.
    fn failure(&self, error: OciDistributionError) -> RegistryError {
        use OciDistributionError as Error;
        let (registry, reference) = (self.name(), self.reference.whole());
        let not_found = RegistryError::NotFound {
            registry,
            reference,
        };
        let (registry, reference) = (self.name(), self.reference.whole());
        match &error {
            Error::ImageManifestNotFoundError(_) | Error::ServerError { code: 404, .. } => {
                not_found
            }
            Error::RegistryError { envelope, .. }
                if envelope.errors.iter().any(|error| {
                    use OciErrorCode::{BlobUnknown, ManifestUnknown, NameUnknown, NotFound};
                    matches!(
                        error.code,
                        BlobUnknown | ManifestUnknown | NameUnknown | NotFound
                    )
                }) =>
            {
                not_found
            }
            Error::UnauthorizedError { .. } | Error::AuthenticationFailure(_) => match self.auth {
                RegistryAuth::Anonymous => not_found,
                _ => RegistryError::Unauthorized {
                    registry,
                    reference,
                },
            },
            _ => RegistryError::Communication {
                registry,
                source: Box::new(error),
            },
        }
    }
}

fn subtract(left: u64, length: usize) -> Option<u64> {
    left.checked_sub(u64::try_from(length).ok()?)
}

pub(crate) fn protocol_for(registry: &str) -> ClientProtocol {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    let address = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<std::net::IpAddr>();
    if host == "localhost" || address.is_ok_and(|address| address.is_loopback()) {
        ClientProtocol::Http
    } else {
        ClientProtocol::Https
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_registries_are_accessed_without_tls() {
        let cases = [
            ("localhost:5000", true),
            ("127.0.0.1:5000", true),
            ("[::1]:5000", true),
            ("localhost.example.org", false),
            ("10.0.0.1:5000", false),
            ("registry.example.org", false),
        ];
        for (registry, plain) in cases {
            assert_eq!(
                protocol_for(registry) == ClientProtocol::Http,
                plain,
                "{registry}"
            );
        }
    }
}
