//! The image store of the pods.

use anyhow::{Context, Result};
use image_store::ImageStore;

use crate::{cli, state_dir::StateDir};

/// The images of an installation, relative to the program's directory.
const SHARE: &str = "../share/ferrovirt/images";

/// Opens the store and registers the layouts.
pub(super) async fn open(flags: &cli::Up, state: &StateDir) -> Result<ImageStore> {
    let root = state.images();
    let store = tokio::task::spawn_blocking(move || ImageStore::open(root)).await??;
    let installed = std::env::current_exe().ok().and_then(|program| {
        let dir = program.parent()?.join(SHARE);
        dir.is_dir().then_some(dir)
    });
    if let Some(dir) = flags.images.clone().or(installed) {
        let images = store
            .add_layouts(dir.clone())
            .await
            .with_context(|| format!("--images {}", dir.display()))?;
        tracing::info!(dir = %dir.display(), images = ?images, "images from layouts");
    }
    Ok(store)
}
