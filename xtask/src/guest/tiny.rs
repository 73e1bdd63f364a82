//! The tiny guest: a Debian kernel and busybox, as fast to its greeting as the kernel allows.
//!
//! Made of three parts: a kernel image, a first file system that is the whole guest, and a disk that
//! boots both by a BIOS.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use image_store::{Content, Entry, Owner};

use super::boot::{self, BootFileSystem};
use super::kernel::{kernel_of, modules};
use super::publish::{Parts, publish, qcow2};
use crate::cache::{Cache, Inputs};
use crate::cpio;
use crate::debian::{PackageList, Variant};
use crate::printer::Printer;
use crate::workspace::{root, run_quietly};

/// Changed whenever the code below makes another guest of the same files.
const RECIPE: &str = "guest 3";
const DISK_MIB: u64 = 64;

/// Builds container disk, kernel-boot image and plain disk, unless they are there.
pub(super) fn build(printer: &Printer) -> Result<()> {
    let parts = root().join("deploy/images/guest");
    let inputs = Inputs::default().text(RECIPE).path(&parts)?;
    let cache = Cache::open()?;
    let made = cache.thing("guest", &inputs, |draft| {
        printer.line("making the tiny guest");
        make(&parts, draft)
    })?;
    publish(
        printer,
        &cache,
        &Parts {
            name: "guest-tiny",
            hash: inputs.hash(),
            directory: &made,
        },
    )
}

fn make(parts: &Path, draft: &Path) -> Result<()> {
    let tree = draft.join("tree");
    PackageList::read(&parts.join("packages.txt"))?.install(Variant::Extract, &tree)?;
    fs::write(draft.join("vmlinuz"), kernel_of(&tree)?)?;
    let entries = first_file_system(parts, &tree)?;
    fs::write(draft.join("initrd"), cpio::archive(&entries)?)?;
    let command_line = fs::read_to_string(parts.join("cmdline.txt"))?;
    make_disk(draft, command_line.trim())?;
    fs::remove_dir_all(&tree).context("remove the unpacked packages")
}

/// The whole guest.
fn first_file_system(parts: &Path, tree: &Path) -> Result<Vec<Entry>> {
    let entry = |path: &str, mode, content| Entry {
        path: path.to_owned(),
        mode,
        owner: Owner::ROOT,
        content,
    };
    let mut entries = Vec::new();
    for path in [
        "bin",
        "dev",
        "etc",
        "etc/acpi",
        "etc/acpi/PWRF",
        "modules",
        "proc",
        "root",
        "run",
        "seed",
        "sys",
        "tmp",
    ] {
        entries.push(entry(path, 0o755, Content::Directory));
    }
    let busybox = tree.join("bin/busybox");
    for applet in applets(&busybox)? {
        entries.push(entry(
            &format!("bin/{applet}"),
            0o777,
            Content::Symlink("busybox".to_owned()),
        ));
    }
    let mut put = |path: &str, mode, content| {
        entries.retain(|entry| entry.path != path);
        entries.push(entry(path, mode, content));
    };
    put("bin/busybox", 0o755, Content::File(busybox));
    for (path, part, mode) in [
        ("init", "init", 0o755),
        ("bin/count", "count", 0o755),
        ("bin/crash", "crash", 0o755),
        ("bin/hang", "hang", 0o755),
        ("bin/share", "share", 0o755),
        ("etc/acpi/PWRF/00000080", "power-off", 0o755),
        ("etc/cloud-config.awk", "cloud-config.awk", 0o644),
        ("etc/cloud-init", "cloud-init", 0o644),
        ("etc/cloud-init-final", "cloud-init-final", 0o644),
        ("etc/profile", "profile", 0o644),
        ("etc/udhcpc", "udhcpc", 0o755),
    ] {
        put(path, mode, Content::File(parts.join(part)));
    }
    put(
        "etc/passwd",
        0o644,
        Content::Bytes(b"root::0:0:root:/root:/bin/sh\n".to_vec()),
    );
    put("etc/group", 0o644, Content::Bytes(b"root:x:0:\n".to_vec()));
    let mut order = String::new();
    for module in modules(&parts.join("modules.txt"), tree)? {
        if let Some(file) = &module.file {
            let content = Content::File(file.clone());
            put(&format!("modules/{}.ko", module.name), 0o644, content);
        }
        order.push_str(&module.name);
        order.push('\n');
    }
    put("modules/order", 0o644, Content::Bytes(order.into_bytes()));
    entries.sort_by(|left, right| Path::new(&left.path).cmp(Path::new(&right.path)));
    Ok(entries)
}

fn applets(busybox: &Path) -> Result<Vec<String>> {
    let output = run_quietly(Command::new(busybox).arg("--list"))?;
    let text = String::from_utf8(output).context("busybox's list of applets")?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// A disk without partitions whose FAT file system a BIOS boots.
fn make_disk(draft: &Path, command_line: &str) -> Result<()> {
    let raw = draft.join("disk.raw");
    fs::File::create(&raw)?.set_len(DISK_MIB << 20)?;
    boot::make(&BootFileSystem {
        disk: &raw,
        partition: None,
        name: "tiny",
        draft,
        command_line,
    })?;
    qcow2(&raw, draft)
}
