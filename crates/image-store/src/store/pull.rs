//! Finds an image on this host or pulls it.

use std::fs;
use std::io;
use std::sync::Arc;

use oci_client::Reference;

use super::trees::{Marker, Source};
use super::{Image, Inner, PullPolicy, store_failed};
use crate::catalog::Located;
use crate::credentials::Credentials;
use crate::digest::Digest;
use crate::error::{ImageError, LayoutError, StoreError, UnpackError};
use crate::layout::Layout;
use crate::manifest::{ConfigDocument, Descriptor, Document, Manifest, platform_name};
use crate::registry::{Registry, Remote};

/// The origin of an image on this host.
enum Present {
    InLayout(Image),
    Pulled(Image),
}

impl Inner {
    /// Finds the image on this host, or pulls it if the policy allows.
    pub(super) async fn obtain(
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

async fn run_blocking<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(store_failed(name, StoreError::Cancelled)))
}
