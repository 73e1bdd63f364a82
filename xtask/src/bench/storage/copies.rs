//! A claim that is a copy of another.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    path::Path,
};

use anyhow::{Context as _, Result};
use serde_json::json;

use super::{
    super::{
        figures::Figure,
        host::Host,
        objects::{CLAIM, Objects},
    },
    StorageOptions,
    imports::{data_volume, import},
};
use crate::printer::Printer;

pub(super) async fn measure(
    printer: &Printer,
    options: &StorageOptions,
    (host, objects): (&Host, &Objects),
) -> Result<Vec<Figure>> {
    printer.line(format_args!("copying a claim of {} MiB", options.copied));
    let blank = data_volume("original", &json!({"blank": {}}), options.copied);
    import(objects, &blank).await?;
    let volume = volume_of(objects, "original").await?;
    let disk = host.files_of(&volume).join("disk.img");
    fill(&disk, options.copied_data.min(options.copied))?;
    let source = json!({"pvc": {"namespace": "default", "name": "original"}});
    let copy = data_volume("copy", &source, options.copied);
    let took = import(objects, &copy).await?;
    Ok(vec![Figure::new(super::THIN_COPY, took, "ms")])
}

/// The name of the volume that a claim has.
pub(super) async fn volume_of(objects: &Objects, claim: &str) -> Result<String> {
    let found = objects.api(CLAIM).get(claim).await;
    let found = found.with_context(|| format!("read claim {claim}"))?;
    let volume = found.data["spec"]["volumeName"].as_str();
    let volume = volume.with_context(|| format!("claim {claim} has no volume"))?;
    Ok(volume.to_owned())
}

/// Writes data to the beginning of a disk and waits until it is stored.
fn fill(disk: &Path, mib: u64) -> Result<()> {
    let random = File::open("/dev/urandom").context("open the source of random bytes")?;
    let file = OpenOptions::new().write(true).open(disk);
    let mut file = file.with_context(|| format!("open {}", disk.display()))?;
    io::copy(&mut random.take(mib << 20), &mut file)
        .and_then(|_| file.sync_all())
        .with_context(|| format!("fill {}", disk.display()))
}

/// Whether files in the directory can share their blocks.
pub(super) fn has_reflinks(directory: &Path) -> Result<bool> {
    let (from, to) = (directory.join("reflink-from"), directory.join("reflink-to"));
    fs::write(&from, [1; 4096]).context("write a file")?;
    let source = File::open(&from)?;
    let target = File::create(&to)?;
    let cloned = rustix::fs::ioctl_ficlone(&target, &source);
    for file in [from, to] {
        fs::remove_file(file).context("remove a file")?;
    }
    Ok(cloned.is_ok())
}
