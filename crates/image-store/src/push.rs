//! Pushes the image of an OCI layout to a registry.
//!
//! Blobs that the registry has are not sent again, and a blob that does not match its digest is not
//! sent. The tag is set last, after the manifest is stored under its digest. So an interrupted push
//! leaves no tag, and the next one sends only the rest.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use oci_client::client::{Client, ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use oci_client::secrets::RegistryAuth;
use oci_client::{Reference, RegistryOperation};

use crate::credentials::Credentials;
use crate::digest::Digest;
use crate::error::{LayoutError, PushError};
use crate::layout::Layout;
use crate::manifest::{Descriptor, Document, MANIFEST_TYPE, Manifest, REF_NAME};
use crate::name;
use crate::registry::{CONNECT_TIMEOUT, protocol_for};
use crate::verified::VerifiedReader;

/// A registry responds after a whole blob, so this bounds the upload of the largest one.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(30);
/// Bytes per read.
const CHUNK: usize = 1 << 20;

/// The only image of a layout.
#[derive(Debug)]
pub struct Package {
    layout: Arc<Layout>,
    name: String,
    descriptor: Descriptor,
    document: Vec<u8>,
    manifest: Manifest,
}

/// The protocol to a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TLS, except for registries on a loopback address.
    TlsUnlessLoopback,
    /// Plain HTTP.
    Plain,
}

/// The progress of one blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The registry already has the blob.
    AlreadyPresent,
    /// The number of bytes sent.
    Sent(u64),
    Done,
}

/// Receives the digest, size and progress of each blob.
pub type ProgressListener = Arc<dyn Fn(&Digest, u64, Progress) + Send + Sync>;

/// The settings of a push.
pub struct Push {
    pub credentials: Credentials,
    pub transport: Transport,
    pub listener: ProgressListener,
}

impl fmt::Debug for Push {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Push")
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

impl Package {
    /// Opens the image of a layout: a directory, or an archive with the extension `.tar`.
    pub fn open(path: &Path) -> Result<Self, LayoutError> {
        let invalid = |message: &str| LayoutError::NotALayout {
            path: path.to_owned(),
            message: message.to_owned(),
        };
        let layout = Layout::open(path)?.ok_or_else(|| {
            invalid("it is neither a directory with an index.json nor a .tar archive")
        })?;
        let mut images = layout.index()?.manifests;
        let descriptor = images.pop().filter(|_| images.is_empty());
        let descriptor =
            descriptor.ok_or_else(|| invalid("it does not contain exactly one image"))?;
        let document = layout.document(&descriptor, "the manifest")?;
        let parsed = serde_json::from_slice(&document).map_err(|source| LayoutError::Parse {
            path: path.to_owned(),
            what: "the manifest",
            source,
        })?;
        let Document::Manifest(manifest) = parsed else {
            return Err(invalid("its image is an index of other images"));
        };
        Ok(Self {
            name: descriptor
                .annotations
                .get(REF_NAME)
                .cloned()
                .unwrap_or_default(),
            layout: Arc::new(layout),
            descriptor,
            document,
            manifest,
        })
    }

    /// The image's name in the layout; empty if it has none.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn digest(&self) -> &Digest {
        &self.descriptor.digest
    }

    /// Pushes the image to the registry under that name, such as `registry.example/team/image:1`.
    pub async fn push(&self, name: &str, how: &Push) -> Result<(), PushError> {
        let session = Session::new(name, how)?;
        session.log_in().await?;
        let mut sent = BTreeSet::new();
        for blob in self.manifest.layers.iter().chain([&self.manifest.config]) {
            // An empty layer may occur twice.
            if sent.insert(blob.digest.clone()) {
                session.push_blob(&self.layout, blob).await?;
            }
        }
        session
            .push_manifest(self.digest(), &self.document, self.media_type())
            .await
    }

    fn media_type(&self) -> &str {
        let types = [&self.descriptor.media_type, &self.manifest.media_type];
        let first = types.into_iter().find(|one| !one.is_empty());
        first.map_or(MANIFEST_TYPE, String::as_str)
    }
}

/// The connection to a registry to push one image.
struct Session<'a> {
    client: Client,
    reference: Reference,
    auth: RegistryAuth,
    listener: &'a ProgressListener,
}

impl<'a> Session<'a> {
    fn new(name: &str, how: &'a Push) -> Result<Self, PushError> {
        let reference = name::parse(name).map_err(|problem| PushError::Name {
            name: name.to_owned(),
            problem,
        })?;
        let config = ClientConfig {
            protocol: match how.transport {
                Transport::TlsUnlessLoopback => protocol_for(reference.resolve_registry()),
                Transport::Plain => ClientProtocol::Http,
            },
            connect_timeout: Some(CONNECT_TIMEOUT),
            read_timeout: Some(RESPONSE_TIMEOUT),
            // Not every registry supports chunked uploads.
            use_monolithic_push: true,
            user_agent: "ferrovirt",
            ..ClientConfig::default()
        };
        Ok(Self {
            client: Client::new(config),
            auth: how.credentials.for_reference(&reference),
            reference,
            listener: &how.listener,
        })
    }

    async fn log_in(&self) -> Result<(), PushError> {
        let logged_in = self
            .client
            .auth(&self.reference, &self.auth, RegistryOperation::Push);
        logged_in
            .await
            .map(drop)
            .map_err(|error| self.failure(error))
    }

    async fn push_blob(&self, layout: &Arc<Layout>, blob: &Descriptor) -> Result<(), PushError> {
        let (digest, size) = (&blob.digest, blob.size);
        let report = |progress| (self.listener)(digest, size, progress);
        let there = self
            .client
            .blob_exists(&self.reference, digest.as_str())
            .await;
        if there.map_err(|error| self.failure(error))? {
            report(Progress::AlreadyPresent);
            return Ok(());
        }
        // Not every registry checks the digests of uploads.
        verify(layout, blob).await?;
        let content = content(layout, blob, Arc::clone(self.listener))?;
        let sent =
            self.client
                .push_blob_stream(&self.reference, content, digest.as_str(), Some(size));
        sent.await.map_err(|error| self.failure(error))?;
        report(Progress::Done);
        Ok(())
    }

    /// Stores the manifest under its digest and then under its name, and verifies the result.
    async fn push_manifest(
        &self,
        digest: &Digest,
        document: &[u8],
        media_type: &str,
    ) -> Result<(), PushError> {
        let by_digest = self.reference.clone_with_digest(digest.to_string());
        let mut names = vec![&by_digest];
        if self.reference.digest().is_none() {
            names.push(&self.reference);
        }
        for name in names {
            let media_type = media_type
                .parse()
                .map_err(|_| PushError::MediaType(media_type.to_owned()))?;
            let put = self
                .client
                .push_manifest_raw(name, document.to_vec(), media_type);
            put.await.map_err(|error| self.failure(error))?;
        }
        let reported = self
            .client
            .fetch_manifest_digest(&self.reference, &self.auth)
            .await;
        let reported = reported.map_err(|error| self.failure(error))?;
        if reported == digest.as_str() {
            return Ok(());
        }
        Err(PushError::DigestMismatch {
            registry: self.registry(),
            reference: self.reference.whole(),
            reported,
        })
    }

    fn registry(&self) -> String {
        self.reference.resolve_registry().to_owned()
    }

    fn failure(&self, error: OciDistributionError) -> PushError {
        use OciDistributionError as Error;
        let (registry, reference) = (self.registry(), self.reference.whole());
        let is_status = |wanted: &[u16]| match &error {
            Error::ServerError { code, .. } => wanted.contains(code),
            Error::RequestError(source) => source
                .status()
                .is_some_and(|status| wanted.contains(&status.as_u16())),
            _ => false,
        };
        let is_refused = matches!(
            &error,
            Error::UnauthorizedError { .. } | Error::AuthenticationFailure(_)
        ) || is_status(&[401, 403])
            || matches!(&error, Error::RegistryError { envelope, .. } if envelope.errors.iter().any(|error| {
                use oci_client::errors::OciErrorCode::{Denied, Unauthorized};
                matches!(error.code, Denied | Unauthorized)
            }));
        match self.auth {
            RegistryAuth::Anonymous if is_refused => PushError::NeedsCredentials {
                registry,
                reference,
            },
            _ if is_refused => PushError::Refused {
                registry,
                reference,
            },
            _ => PushError::Communication {
                registry,
                source: Box::new(error),
            },
        }
    }
}

/// Verifies a blob before it is sent.
async fn verify(layout: &Arc<Layout>, blob: &Descriptor) -> Result<(), PushError> {
    let (layout, blob) = (Arc::clone(layout), blob.clone());
    let checked = tokio::task::spawn_blocking(move || {
        let reader = VerifiedReader::new(layout.blob(&blob.digest)?, blob.size);
        match reader.finish(&blob.digest) {
            Ok(true) => Ok(()),
            Ok(false) => Err(LayoutError::Corrupt {
                path: layout.path().to_owned(),
                digest: blob.digest,
            }),
            Err(source) => Err(LayoutError::Read {
                path: layout.path().to_owned(),
                source,
            }),
        }
    });
    let checked = checked.await.map_err(|_| PushError::Cancelled)?;
    checked.map_err(PushError::Layout)
}

type Chunk = Result<Bytes, OciDistributionError>;

/// Streams the content of a blob.
fn content(
    layout: &Layout,
    blob: &Descriptor,
    listener: ProgressListener,
) -> Result<impl Stream<Item = Chunk> + Send + use<>, PushError> {
    let reader = layout.blob(&blob.digest).map_err(PushError::Layout)?;
    let (digest, size) = (blob.digest.clone(), blob.size);
    let state = (reader, 0, listener, digest);
    Ok(futures::stream::try_unfold(
        state,
        move |state| async move {
            let (reader, sent, listener, digest) = state;
            let read = tokio::task::spawn_blocking(move || read_chunk(reader)).await;
            let (reader, chunk) = read.map_err(io::Error::other)??;
            if chunk.is_empty() {
                return Ok(None);
            }
            let sent =
                u64::try_from(chunk.len()).map_or(size, |length| length.saturating_add(sent));
            listener(&digest, size, Progress::Sent(sent));
            Ok(Some((chunk, (reader, sent, listener, digest))))
        },
    ))
}

type Reader = Box<dyn Read + Send>;

fn read_chunk(reader: Reader) -> io::Result<(Reader, Bytes)> {
    let mut taken = reader.take(CHUNK as u64);
    let mut chunk = Vec::with_capacity(CHUNK);
    taken.read_to_end(&mut chunk)?;
    Ok((taken.into_inner(), chunk.into()))
}
