//! The store: provides the trees of image references.
//!
//! On disk, below the root:
//!
//! ```text
//! trees/<hex>/rootfs/      the merged files of the image whose manifest has that digest
//! trees/<hex>/image.json   its marker, with the image's configuration
//! references.json          the digests of references from registries
//! tmp/                     work in progress, emptied when the store is opened
//! ```
//!
//! A tree is built in `tmp`, flushed, and renamed into `trees` last. Only one process may have a
//! root open at a time.
//!
//! The time of an image's marker is that of its last use: a collection removes the longest unused images first.
//!
//! [`pull`] finds or pulls an image, [`trees`] unpacks, loads and removes trees.

mod pull;
mod trees;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;

use crate::catalog::Catalog;
use crate::config::ImageConfig;
use crate::credentials::Credentials;
use crate::digest::Digest;
use crate::error::{ImageError, LayoutError, StoreError};
use crate::name;
use crate::references::References;
use crate::unpack::Limits;

/// When to access a registry, as in a container's `imagePullPolicy`. Images of registered layouts
/// count as present and are checked for changes with every policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

/// An unpacked image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The digest of the image's manifest.
    pub digest: Digest,
    /// The merged file tree. Do not modify it: all pods of the image share it.
    pub root: PathBuf,
    pub config: ImageConfig,
}

/// Images on this host. Clones share one store.
#[derive(Clone)]
pub struct ImageStore {
    inner: Arc<Inner>,
}

/// Identifies pulls that can be shared.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PullKey {
    reference: String,
    policy: PullPolicy,
    /// Fingerprint of the credentials.
    credentials: String,
}

/// What a collection must keep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InUse {
    /// Images from which containers or volumes were made.
    pub digests: BTreeSet<Digest>,
    /// References whose last image is about to be used, as given to [`ImageStore::ensure`].
    pub references: BTreeSet<String>,
    /// Images that were used at this time or later.
    pub since: Option<SystemTime>,
}

type Pull = Shared<BoxFuture<'static, Result<Image, ImageError>>>;

struct Inner {
    root: PathBuf,
    limits: Limits,
    catalog: Mutex<Catalog>,
    references: Mutex<References>,
    pulls: Mutex<BTreeMap<PullKey, Pull>>,
    /// Images returned since the last collection: their users may not be known to the caller yet.
    recently_used: Mutex<BTreeSet<Digest>>,
    /// What each reference was last resolved to by this process.
    resolved: Mutex<BTreeMap<String, Digest>>,
    drafts: AtomicU64,
}

impl std::fmt::Debug for ImageStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageStore")
            .field("root", &self.inner.root)
            .finish_non_exhaustive()
    }
}

impl Image {
    /// The user and group to run as; `None` if the image does not have the configured ones.
    ///
    /// Reads `/etc/passwd` and `/etc/group` of the image without leaving its tree.
    pub fn user(&self) -> Option<crate::ImageUser> {
        let table = |path| crate::tree::read_text(&self.root, path).unwrap_or_default();
        self.config
            .resolve_user(&table("etc/passwd"), &table("etc/group"))
    }
}

impl ImageStore {
    /// Opens or creates the store below `root` and removes unfinished work of an earlier process.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, StoreError> {
        Self::open_with_limits(root, Limits::DEFAULT)
    }

    /// Like [`open`](Self::open), with other limits for unpacked images.
    pub fn open_with_limits(root: impl Into<PathBuf>, limits: Limits) -> Result<Self, StoreError> {
        let root = root.into();
        let drafts = root.join("tmp");
        match fs::remove_dir_all(&drafts) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::io("empty", drafts, error));
            }
            _ => {}
        }
        for directory in [drafts, root.join("trees")] {
            fs::create_dir_all(&directory)
                .map_err(|source| StoreError::io("make", directory, source))?;
        }
        let references = References::load(root.join("references.json"))?;
        let inner = Inner {
            root,
            limits,
            catalog: Mutex::default(),
            references: Mutex::new(references),
            pulls: Mutex::default(),
            recently_used: Mutex::default(),
            resolved: Mutex::default(),
            drafts: AtomicU64::new(0),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Registers the images of all layouts in `directory` and returns their canonical names.
    /// Layouts that are added or replaced later are found without another call.
    pub async fn add_layouts(
        &self,
        directory: impl Into<PathBuf>,
    ) -> Result<Vec<String>, LayoutError> {
        let (inner, directory) = (Arc::clone(&self.inner), directory.into());
        let failed = directory.clone();
        tokio::task::spawn_blocking(move || inner.catalog.lock().add(&directory))
            .await
            .unwrap_or_else(|error| {
                Err(LayoutError::List {
                    path: failed,
                    source: io::Error::other(error),
                })
            })
    }

    /// Returns the image, pulled and unpacked if needed.
    ///
    /// Concurrent calls for the same image share one pull and its result. Cancel-safe.
    pub async fn ensure(
        &self,
        reference: &str,
        policy: PullPolicy,
        credentials: &Credentials,
    ) -> Result<Image, ImageError> {
        let parsed = name::parse(reference).map_err(|problem| ImageError::InvalidName {
            reference: reference.to_owned(),
            problem,
        })?;
        let key = PullKey {
            reference: parsed.whole(),
            policy,
            credentials: credentials.fingerprint(&parsed),
        };
        let pull = {
            let mut pulls = self.inner.pulls.lock();
            // Remove pulls that are finished or have no waiting callers.
            pulls.retain(|_, pull| pull.peek().is_none() && pull.strong_count() != Some(1));
            let start = || {
                let inner = Arc::clone(&self.inner);
                inner
                    .obtain(parsed, policy, credentials.clone())
                    .boxed()
                    .shared()
            };
            pulls.entry(key).or_insert_with(start).clone()
        };
        let image = pull.await?;
        self.inner.mark_used(&image.digest);
        let digest = image.digest.clone();
        self.inner
            .resolved
            .lock()
            .insert(reference.to_owned(), digest);
        Ok(image)
    }

    /// The present references from registries, with their digests.
    pub fn references(&self) -> BTreeMap<String, Digest> {
        self.inner.references.lock().all()
    }

    /// Removes images that are neither in use nor returned by [`Self::ensure`] since the last call, the
    /// longest unused first, until `is_enough`. Returns their digests.
    pub async fn collect(
        &self,
        in_use: InUse,
        is_enough: impl FnMut() -> bool + Send + 'static,
    ) -> Result<Vec<Digest>, StoreError> {
        let inner = Arc::clone(&self.inner);
        let mut keep = in_use.digests;
        keep.append(&mut inner.recently_used.lock());
        {
            let resolved = inner.resolved.lock();
            let named = in_use.references.iter();
            keep.extend(named.filter_map(|reference| resolved.get(reference).cloned()));
        }
        tokio::task::spawn_blocking(move || inner.collect(&keep, in_use.since, is_enough))
            .await
            .map_err(|_| StoreError::Cancelled)?
    }
}

fn store_failed(name: &str, source: StoreError) -> ImageError {
    ImageError::Store {
        reference: name.to_owned(),
        source: Arc::new(source),
    }
}
