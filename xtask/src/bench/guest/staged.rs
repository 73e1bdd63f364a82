//! A directory of images for a host: those of the cache, the load, and a container disk with data.

use std::{
    fs,
    io::{BufWriter, Read as _, Write as _},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use image_store::{Compression, Content, Entry, ImageConfig, LayoutWriter, Owner};

use super::super::{host, load::Load, objects::LOAD_IMAGE};
use crate::cache::EPOCH;

pub(super) const DATA_IMAGE: &str = "ferrovirt/bench-data:devel";
const QEMU: Owner = Owner { uid: 107, gid: 107 };

/// The directory, which ends with the load's.
pub(in crate::bench) fn staged(load: &Load, data_mib: Option<u64>) -> Result<PathBuf> {
    let directory = load.directory.path().join("images");
    fs::create_dir(&directory).context("make a directory of images")?;
    let cached = host::images()?;
    for name in ["virt-launcher.oci", "guest-tiny.oci"] {
        symlink(cached.join(name), directory.join(name)).context("link an image")?;
    }
    image(&directory.join("load.oci"), LOAD_IMAGE, &load.disk)?;
    if let Some(mib) = data_mib {
        let data = load.directory.path().join("data.raw");
        random_file(&data, mib)?;
        image(&directory.join("data.oci"), DATA_IMAGE, &data)?;
    }
    Ok(directory)
}

/// A file that nothing compresses.
pub(in crate::bench) fn random_file(path: &Path, mib: u64) -> Result<()> {
    let random = fs::File::open("/dev/urandom").context("open the source of random bytes")?;
    let mut file = BufWriter::new(fs::File::create(path)?);
    std::io::copy(&mut random.take(mib << 20), &mut file)
        .with_context(|| format!("fill {}", path.display()))?;
    file.flush()
        .with_context(|| format!("fill {}", path.display()))
}

fn image(place: &Path, reference: &str, disk: &Path) -> Result<()> {
    let entry = |path: &str, mode, content| Entry {
        path: path.to_owned(),
        mode,
        owner: QEMU,
        content,
    };
    let entries = vec![
        entry("disk", 0o555, Content::Directory),
        entry("disk/disk.raw", 0o440, Content::File(disk.to_owned())),
    ];
    let mut layout = LayoutWriter::create(place, EPOCH)?;
    layout.add_entries(entries, Compression::Zstd(1))?;
    layout.finish(reference, &ImageConfig::default())?;
    Ok(())
}
