//! Bytes on disk: programs and images.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::{
    figures::{Figure, as_f64},
    host::Host,
};

const LAUNCHER: &str = "usr/bin/virt-launcher";

pub(super) fn measure(host: &Host) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for name in ["ferrovirt", "pod-supervisor", "virtctl"] {
        let bytes = size(&host.programs.join(name))?;
        figures.push(figure(format!("binary.{name}"), bytes));
    }
    let launcher = launcher_tree(host)?;
    let program = size(&launcher.join(LAUNCHER))?;
    figures.push(figure("binary.virt-launcher".to_owned(), program));
    for (name, layout) in [
        ("launcher", "virt-launcher.oci"),
        ("guest", "guest-tiny.oci"),
        ("guest-kernel", "guest-tiny-kernel.oci"),
    ] {
        let layout = host.images.join(layout);
        if layout.exists() {
            let bytes = size(&layout.join("blobs"))?;
            figures.push(figure(format!("image.{name}.packed"), bytes));
        }
    }
    figures.push(figure(
        "image.launcher.unpacked".to_owned(),
        size(&launcher)?,
    ));
    Ok(figures)
}

fn figure(name: String, bytes: u64) -> Figure {
    Figure::new(name, as_f64(bytes) / 1e6, "MB")
}

/// The launcher image as the host unpacked it.
fn launcher_tree(host: &Host) -> Result<PathBuf> {
    let trees = host.state.join("images/trees");
    let mut roots = Vec::new();
    for entry in fs::read_dir(&trees).with_context(|| format!("list {}", trees.display()))? {
        roots.push(entry?.path().join("rootfs"));
    }
    roots
        .into_iter()
        .find(|root| root.join(LAUNCHER).exists())
        .context("find the unpacked launcher image")
}

/// Of a file or of all files below a directory.
fn size(path: &Path) -> Result<u64> {
    let meta = fs::symlink_metadata(path).with_context(|| format!("look at {}", path.display()))?;
    if !meta.is_dir() {
        return Ok(meta.len());
    }
    let mut sum = 0;
    for entry in fs::read_dir(path).with_context(|| format!("list {}", path.display()))? {
        sum += size(&entry?.path())?;
    }
    Ok(sum)
}
