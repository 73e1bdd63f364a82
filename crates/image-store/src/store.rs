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

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use oci_client::Reference;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::catalog::{Catalog, Located};
use crate::config::ImageConfig;
use crate::credentials::Credentials;
use crate::digest::Digest;
use crate::error::{ImageError, LayoutError, StoreError, UnpackError};
use crate::layout::Layout;
use crate::manifest::{ConfigDocument, Descriptor, Document, Manifest, platform_name};
use crate::name;
use crate::references::{References, replace_file, sync_directory};
use crate::registry::{Registry, Remote};
use crate::tree::Tree;
use crate::unpack::{LayerBlob, Limits, Unpacker};

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

type Pull = Shared<BoxFuture<'static, Result<Image, ImageError>>>;

struct Inner {
    root: PathBuf,
    limits: Limits,
    catalog: Mutex<Catalog>,
    references: Mutex<References>,
    pulls: Mutex<BTreeMap<PullKey, Pull>>,
    /// Images returned since the last collection: their users may not be in `keep` yet.
    recently_used: Mutex<BTreeSet<Digest>>,
    drafts: AtomicU64,
}

/// The content of `image.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Marker {
    digest: Digest,
    config: ImageConfig,
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
        self.inner.recently_used.lock().insert(image.digest.clone());
        Ok(image)
    }

    /// The present references from registries, with their digests.
    pub fn references(&self) -> BTreeMap<String, Digest> {
        self.inner.references.lock().all()
    }

    /// Removes all trees that are neither in `keep` nor returned by [`Self::ensure`] since the last
    /// call, and returns their digests.
    pub async fn retain(&self, keep: &BTreeSet<Digest>) -> Result<Vec<Digest>, StoreError> {
        let inner = Arc::clone(&self.inner);
        let mut keep = keep.clone();
        keep.append(&mut inner.recently_used.lock());
        tokio::task::spawn_blocking(move || inner.collect(&keep))
            .await
            .map_err(|_| StoreError::Cancelled)?
    }
}

impl Inner {
    async fn obtain(
        self: Arc<Self>,
        reference: Reference,
        policy: PullPolicy,
        credentials: Credentials,
    ) -> Result<Image, ImageError> {
        let name = reference.whole();
        let (this, wanted) = (Arc::clone(&self), name.clone());
        let present = run_blocking(&name, move || this.present(&wanted)).await?;
        match (present, policy) {
            (Some(Present::InLayout(image)), _) => return Ok(image),
            (Some(Present::Pulled(image)), PullPolicy::IfNotPresent | PullPolicy::Never) => {
                return Ok(image);
            }
            (None, PullPolicy::Never) => return Err(ImageError::NotPresent { reference: name }),
            (_, PullPolicy::Always | PullPolicy::IfNotPresent) => {}
        }
        self.pull(reference, &credentials).await
    }

    /// Finds the image on this host; unpacks it if it is in a layout.
    fn present(&self, name: &str) -> Result<Option<Present>, ImageError> {
        let located = self.catalog.lock().find(name);
        if let Some(located) = located {
            return self
                .unpack_layout(name, &located)
                .map(|image| Some(Present::InLayout(image)));
        }
        let recorded = self.references.lock().get(name).cloned();
        let Some(digest) = recorded else {
            return Ok(None);
        };
        let image = self
            .load(&digest)
            .map_err(|source| store_failed(name, source))?;
        Ok(image.map(Present::Pulled))
    }

    fn unpack_layout(&self, name: &str, located: &Located) -> Result<Image, ImageError> {
        let failed = |source: LayoutError| ImageError::Layout {
            reference: name.to_owned(),
            source: Arc::new(source),
        };
        let Some(layout) = Layout::open(&located.layout).map_err(failed)? else {
            return Err(failed(LayoutError::NotALayout {
                path: located.layout.clone(),
                message: "it changed while it was read".to_owned(),
            }));
        };
        let (digest, manifest) = manifest_in(&layout, &located.descriptor).map_err(failed)?;
        let present = self
            .load(&digest)
            .map_err(|source| store_failed(name, source))?;
        if let Some(image) = present {
            return Ok(image);
        }
        let config = layout
            .document(&manifest.config, "the image configuration")
            .map_err(failed)?;
        let config: ConfigDocument = serde_json::from_slice(&config).map_err(|source| {
            failed(LayoutError::Parse {
                path: located.layout.clone(),
                what: "the image configuration",
                source,
            })
        })?;
        let draft = self.draft().map_err(|source| store_failed(name, source))?;
        let marker = Marker {
            digest,
            config: config.config.unwrap_or_default(),
        };
        let open = |layer: &Descriptor| {
            layout
                .blob(&layer.digest)
                .map_err(io::Error::other)
                .map_err(UnpackError::Read)
        };
        let source = Source {
            manifest: &manifest,
            marker,
            open: &open,
        };
        self.unpack(name, &draft, source)
    }

    async fn pull(
        self: Arc<Self>,
        reference: Reference,
        credentials: &Credentials,
    ) -> Result<Image, ImageError> {
        let name = reference.whole();
        let failed = |source| ImageError::Pull {
            reference: reference.whole(),
            source: Arc::new(source),
        };
        tracing::info!(image = name, "pulling image");
        let registry = Registry::new(&reference, credentials);
        let Remote { digest, manifest } = registry.resolve().await.map_err(failed)?;
        let (this, wanted) = (Arc::clone(&self), digest.clone());
        let loaded = run_blocking(&name, move || Ok(this.load(&wanted))).await?;
        let present = loaded.map_err(|source| store_failed(&name, source))?;
        let image = if let Some(image) = present {
            image
        } else {
            let config = registry.config(&manifest).await.map_err(failed)?;
            let draft = self.draft().map_err(|source| store_failed(&name, source))?;
            for layer in &manifest.layers {
                let blob = draft.blob(&layer.digest);
                if !blob.exists() {
                    registry.download(layer, &blob).await.map_err(failed)?;
                }
            }
            let (this, wanted) = (Arc::clone(&self), name.clone());
            let unpack = move || {
                let open = |layer: &Descriptor| {
                    fs::File::open(draft.blob(&layer.digest)).map_err(UnpackError::Read)
                };
                let source = Source {
                    manifest: &manifest,
                    marker: Marker { digest, config },
                    open: &open,
                };
                this.unpack(&wanted, &draft, source)
            };
            run_blocking(&name, unpack).await?
        };
        let (this, digest, wanted) = (Arc::clone(&self), image.digest.clone(), name.clone());
        let recorded = move || Ok(this.references.lock().record(&wanted, &digest));
        run_blocking(&name, recorded)
            .await?
            .map_err(|source| store_failed(&name, source))?;
        Ok(image)
    }

    /// Builds a tree in a draft directory and renames it to its final path.
    fn unpack<R: Read>(
        &self,
        name: &str,
        draft: &Draft,
        source: Source<'_, R>,
    ) -> Result<Image, ImageError> {
        let Source {
            manifest,
            marker,
            open,
        } = source;
        let failed = |source: UnpackError| ImageError::Unpack {
            reference: name.to_owned(),
            source: Arc::new(source),
        };
        let started = std::time::Instant::now();
        let dir = draft.path.join("tree");
        let io_failed =
            |action, path: &Path, source| store_failed(name, StoreError::io(action, path, source));
        fs::create_dir(&dir).map_err(|source| io_failed("make", &dir, source))?;
        let tree =
            Tree::create(&dir.join("rootfs")).map_err(|source| io_failed("make", &dir, source))?;
        let mut unpacker = Unpacker::new(&tree, self.limits);
        for layer in &manifest.layers {
            let blob = LayerBlob {
                media_type: layer.media_type.clone(),
                digest: layer.digest.clone(),
                size: layer.size,
                reader: open(layer).map_err(failed)?,
            };
            unpacker.apply(blob).map_err(failed)?;
        }
        let path = dir.join("image.json");
        let bytes = serde_json::to_vec_pretty(&marker).map_err(|source| {
            store_failed(
                name,
                StoreError::Parse {
                    path: path.clone(),
                    source,
                },
            )
        })?;
        replace_file(&path, &bytes).map_err(|source| io_failed("write", &path, source))?;
        tree.sync()
            .map_err(|source| io_failed("flush", &dir, source))?;
        let path = self.tree_path(&marker.digest);
        match fs::rename(&dir, &path) {
            // A concurrent pull unpacked the same image under another reference.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(source) => return Err(io_failed("rename to", &path, source)),
            Ok(()) => {
                let trees = self.root.join("trees");
                sync_directory(&trees).map_err(|source| io_failed("flush", &trees, source))?;
            }
        }
        tracing::info!(image = name, digest = %marker.digest, took = ?started.elapsed(), "unpacked image");
        Ok(Image {
            digest: marker.digest,
            root: path.join("rootfs"),
            config: marker.config,
        })
    }

    fn load(&self, digest: &Digest) -> Result<Option<Image>, StoreError> {
        let tree = self.tree_path(digest);
        let path = tree.join("image.json");
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(StoreError::io("read", path, source)),
        };
        let marker: Marker =
            serde_json::from_slice(&bytes).map_err(|source| StoreError::Parse { path, source })?;
        let root = tree.join("rootfs");
        Ok(Some(Image {
            digest: marker.digest,
            root,
            config: marker.config,
        }))
    }

    fn collect(&self, keep: &BTreeSet<Digest>) -> Result<Vec<Digest>, StoreError> {
        let trees = self.root.join("trees");
        let failed = |source| StoreError::io("list", &trees, source);
        let mut removed = Vec::new();
        for entry in fs::read_dir(&trees).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Some(digest) = name
                .to_str()
                .and_then(|hex| format!("sha256:{hex}").parse::<Digest>().ok())
            else {
                continue;
            };
            if keep.contains(&digest) || self.recently_used.lock().contains(&digest) {
                continue;
            }
            // Rename first, so that an interrupted removal leaves no partial tree.
            let draft = self.draft()?;
            let removed_tree = draft.path.join("tree");
            fs::rename(entry.path(), &removed_tree)
                .map_err(|source| StoreError::io("rename", entry.path(), source))?;
            removed.push(digest);
        }
        self.references.lock().remove(&removed)?;
        Ok(removed)
    }

    fn tree_path(&self, digest: &Digest) -> PathBuf {
        self.root.join("trees").join(digest.hex())
    }

    fn draft(&self) -> Result<Draft, StoreError> {
        let number = self.drafts.fetch_add(1, Ordering::Relaxed);
        let path = self.root.join("tmp").join(number.to_string());
        fs::create_dir(&path).map_err(|source| StoreError::io("make", path.clone(), source))?;
        Ok(Draft { path })
    }
}

/// Opens the bytes of a layer.
type OpenLayer<'o, R> = &'o dyn Fn(&Descriptor) -> Result<R, UnpackError>;

/// The layers of an image to unpack.
struct Source<'s, R> {
    manifest: &'s Manifest,
    marker: Marker,
    open: OpenLayer<'s, R>,
}

/// The origin of an image on this host.
enum Present {
    InLayout(Image),
    Pulled(Image),
}

/// A directory for work in progress, removed when dropped.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn blob(&self, digest: &Digest) -> PathBuf {
        self.path.join(digest.hex())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "unfinished work cannot be removed");
        }
    }
}

/// The manifest of a layout's entry, selected from an index of platforms if needed.
fn manifest_in(
    layout: &Layout,
    descriptor: &Descriptor,
) -> Result<(Digest, Manifest), LayoutError> {
    let read = |descriptor: &Descriptor| {
        let bytes = layout.document(descriptor, "a manifest")?;
        serde_json::from_slice::<Document>(&bytes).map_err(|source| LayoutError::Parse {
            path: layout.path().to_owned(),
            what: "a manifest",
            source,
        })
    };
    let no_platform = || LayoutError::NoPlatform {
        path: layout.path().to_owned(),
        platform: platform_name(),
    };
    let index = match read(descriptor)? {
        Document::Manifest(manifest) => return Ok((descriptor.digest.clone(), manifest)),
        Document::Index(index) => index,
    };
    let chosen = index.for_this_host().ok_or_else(no_platform)?;
    match read(chosen)? {
        Document::Manifest(manifest) => Ok((chosen.digest.clone(), manifest)),
        Document::Index(_) => Err(no_platform()),
    }
}

fn store_failed(name: &str, source: StoreError) -> ImageError {
    ImageError::Store {
        reference: name.to_owned(),
        source: Arc::new(source),
    }
}

async fn run_blocking<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(store_failed(name, StoreError::Cancelled)))
}
