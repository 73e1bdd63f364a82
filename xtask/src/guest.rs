//! The tiny guest: a Debian kernel and busybox, as fast to its greeting as the kernel allows.
//!
//! Made of three parts: a kernel image, a first file system that is the whole guest, and a disk that
//! boots both by a BIOS. Everything is written in a fixed order with fixed times, so the same
//! packages give the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use image_store::{Compression, Content, Entry, ImageConfig, LayoutWriter, Owner};

use crate::cache::{Cache, EPOCH, Inputs};
use crate::cpio;
use crate::debian::{PackageList, Variant};
use crate::image::megabytes;
use crate::printer::Printer;
use crate::workspace::{root, run_quietly};

/// Changed whenever the code below makes another guest of the same files.
const RECIPE: &str = "guest 3";
/// The owner that users' container disks have by convention.
const QEMU: Owner = Owner { uid: 107, gid: 107 };
/// Disk images hardly shrink, and every host that starts the guest unpacks them once.
const COMPRESSION: Compression = Compression::Zstd(3);
/// The resulting images in the cache: container disk, kernel-boot image,
/// plain disk.
const PUBLISHED: [&str; 3] = [
    "guest-tiny.oci",
    "guest-tiny-kernel.oci",
    "guest-tiny.qcow2",
];
const DISK_MIB: u64 = 64;

/// Builds container disk, kernel-boot image and plain disk, unless they are there.
pub(crate) fn tiny(printer: &Printer) -> Result<()> {
    let parts = root().join("deploy/images/guest");
    let inputs = Inputs::default().text(RECIPE).path(&parts)?;
    let cache = Cache::open()?;
    let made = cache.thing("guest", &inputs, |draft| {
        printer.line("making the tiny guest");
        make(&parts, draft)
    })?;
    let images = cache.images();
    let stamp = images.join(".guest-tiny");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == inputs.hash())
        && PUBLISHED.iter().all(|name| images.join(name).exists())
    {
        printer.line(format_args!(
            "the tiny guest is current in {}",
            images.display()
        ));
        return Ok(());
    }
    let container_disk = images.join(PUBLISHED[0]);
    let disk = (
        "disk",
        vec![("disk/disk.qcow2", made.join("disk.qcow2"), 0o440, QEMU)],
    );
    let digest = publish(&container_disk, "ferrovirt/guest-tiny:devel", disk)?;
    printer.line(format_args!("{}: {digest}", container_disk.display()));
    let kernel_boot = images.join(PUBLISHED[1]);
    let files = vec![
        ("boot/vmlinuz", made.join("vmlinuz"), 0o444, QEMU),
        ("boot/initrd", made.join("initrd"), 0o444, QEMU),
    ];
    let digest = publish(
        &kernel_boot,
        "ferrovirt/guest-tiny-kernel:devel",
        ("boot", files),
    )?;
    printer.line(format_args!("{}: {digest}", kernel_boot.display()));
    let plain = images.join(PUBLISHED[2]);
    let draft = images.join(".guest-tiny.qcow2");
    fs::copy(made.join("disk.qcow2"), &draft)?;
    fs::rename(&draft, &plain)?;
    fs::write(&stamp, inputs.hash())?;
    printer.line(format_args!(
        "{}: {}",
        plain.display(),
        megabytes(fs::metadata(&plain)?.len())
    ));
    Ok(())
}

type NamedFile<'n> = (&'n str, PathBuf, u32, Owner);

fn publish(
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
    entries.extend(files.into_iter().map(|(path, source, mode, owner)| Entry {
        path: path.to_owned(),
        mode,
        owner,
        content: Content::File(source),
    }));
    let mut layout = LayoutWriter::create(place, EPOCH)?;
    layout.add_entries(entries, COMPRESSION)?;
    Ok(layout.finish(reference, &ImageConfig::default())?)
}

fn make(parts: &Path, draft: &Path) -> Result<()> {
    let tree = draft.join("tree");
    PackageList::read(&parts.join("packages.txt"))?.install(Variant::Extract, &tree)?;
    let packed_kernel = kernel_of(&tree)?;
    fs::write(draft.join("vmlinuz"), &packed_kernel)?;
    let entries = first_file_system(parts, &tree)?;
    fs::write(draft.join("initrd"), cpio::archive(&entries)?)?;
    let command_line = fs::read_to_string(parts.join("cmdline.txt"))?;
    make_disk(draft, command_line.trim())?;
    fs::remove_dir_all(&tree).context("remove the unpacked packages")
}

fn kernel_of(tree: &Path) -> Result<Vec<u8>> {
    let boot = tree.join("boot");
    for entry in fs::read_dir(&boot)? {
        let entry = entry?;
        if entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(b"vmlinuz-")
        {
            return Ok(fs::read(entry.path())?);
        }
    }
    anyhow::bail!("the packages bring no kernel")
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
    for (name, path) in modules(parts, tree)? {
        if let Some(path) = path {
            put(&format!("modules/{name}.ko"), 0o644, Content::File(path));
        }
        order.push_str(&name);
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

/// The modules in loading order with their files; a module the kernel has built in is left out, and
/// the separator line stays, without a file.
fn modules(parts: &Path, tree: &Path) -> Result<Vec<(String, Option<PathBuf>)>> {
    let mut files = BTreeMap::new();
    let base = [tree.join("lib/modules"), tree.join("usr/lib/modules")];
    let base = base
        .iter()
        .find(|path| path.is_dir())
        .context("the kernel has no modules")?;
    find_modules(base, &mut files)?;
    let mut ordered = Vec::new();
    for name in fs::read_to_string(parts.join("modules.txt"))?
        .lines()
        .map(str::trim)
    {
        if name.is_empty() || name.starts_with('#') {
            continue;
        }
        if name == "--" {
            ordered.push((name.to_owned(), None));
        } else {
            add_with_needs(name, &files, &mut ordered)?;
        }
    }
    Ok(ordered)
}

fn find_modules(directory: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find_modules(&entry.path(), files)?;
        } else if let Some(name) = entry
            .file_name()
            .to_str()
            .and_then(|n| n.strip_suffix(".ko"))
        {
            files.insert(name.replace('-', "_"), entry.path());
        }
    }
    Ok(())
}

fn add_with_needs(
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    ordered: &mut Vec<(String, Option<PathBuf>)>,
) -> Result<()> {
    let Some(path) = files.get(name) else {
        return Ok(());
    };
    if ordered.iter().any(|(known, _)| known == name) {
        return Ok(());
    }
    for need in needs_of(&fs::read(path)?) {
        add_with_needs(&need.replace('-', "_"), files, ordered)?;
    }
    ordered.push((name.to_owned(), Some(path.clone())));
    Ok(())
}

/// A module lists its dependencies in a section of zero-terminated `key=value` strings.
fn needs_of(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(start) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let value = module.get(start + KEY.len()..).unwrap_or_default();
    let value = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(value)
        .split(',')
        .filter(|need| !need.is_empty())
        .map(str::to_owned)
        .collect()
}

/// A disk without partitions whose FAT file system a BIOS boots by syslinux.
fn make_disk(draft: &Path, command_line: &str) -> Result<()> {
    let raw = draft.join("disk.raw");
    fs::File::create(&raw)?.set_len(DISK_MIB << 20)?;
    run_quietly(
        Command::new("mformat")
            .args(["-i"])
            .arg(&raw)
            .args(["-v", "TINY", "-N", "20260101", "::"]),
    )?;
    run_quietly(Command::new("syslinux").arg("--install").arg(&raw))?;
    let settings = draft.join("syslinux.cfg");
    fs::write(
        &settings,
        format!(
            "DEFAULT tiny\nPROMPT 0\nLABEL tiny\nKERNEL vmlinuz\nINITRD initrd\nAPPEND {command_line}\n"
        ),
    )?;
    run_quietly(
        Command::new("mcopy")
            .arg("-i")
            .arg(&raw)
            .args([&draft.join("vmlinuz"), &draft.join("initrd"), &settings])
            .arg("::"),
    )?;
    fix_times(&raw).context("fix the times in the disk")?;
    run_quietly(
        Command::new("qemu-img")
            .args(["convert", "-f", "raw", "-O", "qcow2"])
            .args([&raw, &draft.join("disk.qcow2")]),
    )?;
    fs::remove_file(&raw)?;
    fs::remove_file(&settings)?;
    Ok(())
}

/// Sets a fixed time on every entry of a FAT root directory.
fn fix_times(raw: &Path) -> Result<()> {
    const ENTRY: usize = 32;
    /// Noon of 1 January 2026 in the format of FAT: time, then date.
    const NOON: [u8; 4] = [0x00, 0x60, 0x21, 0x5c];
    let disk = fs::File::options().read(true).write(true).open(raw)?;
    let mut boot = [0; 512];
    disk.read_exact_at(&mut boot, 0)?;
    let field = |at: usize| -> Result<u64> {
        let bytes = boot.get(at..at + 2).context("boot sector")?;
        Ok(u64::from(u16::from_le_bytes(bytes.try_into()?)))
    };
    let (sector, reserved, entries, table) = (field(11)?, field(14)?, field(17)?, field(22)?);
    ensure!(
        entries > 0 && table > 0,
        "the file system is not FAT12 or FAT16"
    );
    let tables = u64::from(*boot.get(16).context("boot sector")?);
    let start = (reserved + tables * table) * sector;
    let mut directory = vec![0; usize::try_from(entries)? * ENTRY];
    disk.read_exact_at(&mut directory, start)?;
    for entry in directory.chunks_exact_mut(ENTRY) {
        if entry.first() == Some(&0) || entry.get(11) == Some(&0x0f) {
            continue;
        }
        // Created, accessed, written.
        for (range, bytes) in [
            (13..14, &[0][..]),
            (14..18, &NOON[..]),
            (18..20, &NOON[2..]),
            (22..26, &NOON[..]),
        ] {
            if let Some(field) = entry.get_mut(range) {
                field.copy_from_slice(bytes);
            }
        }
    }
    disk.write_all_at(&directory, start)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::needs_of;

    #[test]
    fn a_module_names_its_needs() {
        assert_eq!(
            needs_of(b"x\0license=GPL\0depends=a,b-c\0name=d\0"),
            ["a", "b-c"]
        );
        assert!(needs_of(b"x\0depends=\0name=d\0").is_empty());
        assert!(needs_of(b"").is_empty());
    }
}
