//! What becomes of a guest: a container disk, a kernel-boot image and a plain disk in the cache directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use image_store::{Compression, Content, Entry, ImageConfig, LayoutWriter, Owner};

use crate::cache::{Cache, EPOCH};
use crate::image::megabytes;
use crate::printer::Printer;
use crate::workspace::run_quietly;

/// The owner that users' container disks have by convention.
const QEMU: Owner = Owner { uid: 107, gid: 107 };
/// Disk images hardly shrink, and every host that starts the guest unpacks them once.
const COMPRESSION: Compression = Compression::Zstd(3);

/// The parts of a guest: `disk.qcow2`, `vmlinuz` and `initrd` in a directory.
#[derive(Debug)]
pub(super) struct Parts<'p> {
    /// Such as `guest-tiny`.
    pub(super) name: &'p str,
    /// Of everything that they were made of.
    pub(super) hash: String,
    pub(super) directory: &'p Path,
}

type NamedFile<'n> = (&'n str, PathBuf, u32);

/// Publishes all three, unless they are there.
pub(super) fn publish(printer: &Printer, cache: &Cache, parts: &Parts<'_>) -> Result<()> {
    let (images, name) = (cache.images(), parts.name);
    let stamp = images.join(format!(".{name}"));
    let container_disk = images.join(format!("{name}.oci"));
    let kernel_boot = images.join(format!("{name}-kernel.oci"));
    let plain = images.join(format!("{name}.qcow2"));
    let all = [&container_disk, &kernel_boot, &plain];
    if fs::read_to_string(&stamp).is_ok_and(|found| found == parts.hash)
        && all.iter().all(|path| path.exists())
    {
        printer.line(format_args!("{name} is current in {}", images.display()));
        return Ok(());
    }
    let part = |name: &str| parts.directory.join(name);
    let disk = vec![("disk/disk.qcow2", part("disk.qcow2"), 0o440)];
    let reference = format!("ferrovirt/{name}:devel");
    let digest = image(&container_disk, &reference, ("disk", disk))?;
    printer.line(format_args!("{}: {digest}", container_disk.display()));
    let files = vec![
        ("boot/vmlinuz", part("vmlinuz"), 0o444),
        ("boot/initrd", part("initrd"), 0o444),
    ];
    let reference = format!("ferrovirt/{name}-kernel:devel");
    let digest = image(&kernel_boot, &reference, ("boot", files))?;
    printer.line(format_args!("{}: {digest}", kernel_boot.display()));
    let draft = images.join(format!(".{name}.qcow2"));
    fs::copy(part("disk.qcow2"), &draft)?;
    fs::rename(&draft, &plain)?;
    fs::write(&stamp, &parts.hash)?;
    printer.line(format_args!(
        "{}: {}",
        plain.display(),
        megabytes(fs::metadata(&plain)?.len())
    ));
    Ok(())
}

fn image(
    place: &Path,
    reference: &str,
    (directory, files): (&str, Vec<NamedFile<'_>>),
) -> Result<image_store::Digest> {
    let mut entries = vec![Entry {
        path: directory.to_owned(),
        mode: 0o555,
        owner: QEMU,
        content: Content::Directory,
    }];
    entries.extend(files.into_iter().map(|(path, source, mode)| Entry {
        path: path.to_owned(),
        mode,
        owner: QEMU,
        content: Content::File(source),
    }));
    let mut layout = LayoutWriter::create(place, EPOCH)?;
    layout.add_entries(entries, COMPRESSION)?;
    Ok(layout.finish(reference, &ImageConfig::default())?)
}

/// Turns a raw disk into `disk.qcow2`.
pub(super) fn qcow2(raw: &Path, draft: &Path) -> Result<()> {
    run_quietly(
        Command::new("qemu-img")
            .args(["convert", "-f", "raw", "-O", "qcow2"])
            .args([raw, &draft.join("disk.qcow2")]),
    )?;
    fs::remove_file(raw).with_context(|| format!("remove {}", raw.display()))
}
