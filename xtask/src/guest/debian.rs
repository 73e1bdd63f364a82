//! The Debian guest: systemd, cloud-init, the QEMU guest agent and an SSH server, as users have them.
//!
//! The lists in `deploy/images/debian` decide what is in it and what is turned off. A first file system of our own
//! replaces that of Debian, which looks for many more kinds of disks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result};
use image_store::{Content, Entry, Owner};

use super::boot::{self, BootFileSystem};
use super::ext4::{self, RootFileSystem};
use super::kernel::{kernel_of, modules, modules_of};
use super::partitions::{self, Kind, Partition};
use super::publish::{Parts, publish, qcow2};
use crate::cache::{Cache, Inputs};
use crate::cpio;
use crate::debian::{PackageList, Variant, list};
use crate::printer::Printer;
use crate::workspace::{root, run_quietly};

/// Changed whenever the code below makes another guest of the same files.
const RECIPE: &str = "debian guest 1";
const BOOT: Partition = Partition {
    kind: Kind::Boot,
    first: 2048,
    sectors: 64 << 11,
};
/// Most of it is a hole in the file.
const ROOT: Partition = Partition {
    kind: Kind::Linux,
    first: BOOT.first + BOOT.sectors,
    sectors: 2 << 21,
};
/// The first file system finds the root by it.
const LABEL: &str = "debian-root";
const UUID: &str = "6d0f4b3e-8a55-4c1e-9d2a-0087deb13000";
const SIGNATURE: u32 = 0x0087_deb1;
/// Files of `deploy/images/debian` and their places on the disk.
const FILES: [(&str, &str, u32); 3] = [
    ("cloud.cfg", "etc/cloud/cloud.cfg.d/90-guest.cfg", 0o644),
    ("fstab", "etc/fstab", 0o644),
    ("hosts", "etc/hosts", 0o644),
];

/// Builds container disk, kernel-boot image and plain disk, unless they are there.
pub(super) fn build(printer: &Printer) -> Result<()> {
    let parts = root().join("deploy/images/debian");
    let inputs = Inputs::default().text(RECIPE).path(&parts)?;
    let cache = Cache::open()?;
    let made = cache.thing("guest-debian", &inputs, |draft| {
        printer.line("making the Debian guest (downloads its packages)");
        make(&parts, draft)
    })?;
    publish(
        printer,
        &cache,
        &Parts {
            name: "guest-debian",
            hash: inputs.hash(),
            directory: &made,
        },
    )
}

fn make(parts: &Path, draft: &Path) -> Result<()> {
    let (tree, kernel) = (draft.join("tree"), draft.join("kernel"));
    install(parts, &tree, &kernel)?;
    fs::write(draft.join("vmlinuz"), kernel_of(&kernel)?)?;
    let entries = first_file_system(parts, &kernel)?;
    fs::write(draft.join("initrd"), cpio::archive(&entries)?)?;
    add_modules(&kernel, &tree)?;
    let entries = root_file_system(parts, &tree)?;
    let command_line = fs::read_to_string(parts.join("cmdline.txt"))?;
    let disk = draft.join("disk.raw");
    fs::File::create(&disk)?.set_len(ROOT.offset() + ROOT.size())?;
    boot::make(&BootFileSystem {
        disk: &disk,
        partition: Some(BOOT),
        name: "debian",
        draft,
        command_line: command_line.trim(),
    })?;
    ext4::make(&RootFileSystem {
        disk: &disk,
        partition: ROOT,
        label: LABEL,
        uuid: UUID,
        entries: &entries,
        draft,
    })?;
    partitions::write(&disk, SIGNATURE, &[BOOT, ROOT])?;
    qcow2(&disk, draft)?;
    for tree in [tree, kernel] {
        fs::remove_dir_all(&tree).context("remove the unpacked packages")?;
    }
    Ok(())
}

/// Installs the system and unpacks the kernel, side by side: both mostly wait for a mirror.
fn install(parts: &Path, tree: &Path, kernel: &Path) -> Result<()> {
    let packages = PackageList::read(&parts.join("packages.txt"))?;
    let kernels = PackageList::read(&parts.join("kernel.txt"))?;
    thread::scope(|scope| {
        let unpacked = scope.spawn(|| kernels.install(Variant::Extract, kernel));
        packages.install(Variant::MinBase, tree)?;
        unpacked
            .join()
            .map_err(|_panic| anyhow::anyhow!("unpacking the kernel panicked"))?
    })
}

/// Finds the root file system and starts systemd.
fn first_file_system(parts: &Path, kernel: &Path) -> Result<Vec<Entry>> {
    let entry = |path: &str, mode, content| Entry {
        path: path.to_owned(),
        mode,
        owner: Owner::ROOT,
        content,
    };
    let mut entries: Vec<Entry> = ["bin", "dev", "modules", "proc", "root", "sys"]
        .map(|path| entry(path, 0o755, Content::Directory))
        .into();
    for (path, file) in [
        ("bin/busybox", kernel.join("bin/busybox")),
        ("init", parts.join("init")),
    ] {
        entries.push(entry(path, 0o755, Content::File(file)));
    }
    let mut order = String::new();
    for module in modules(&parts.join("modules.txt"), kernel)? {
        if let Some(file) = module.file {
            let path = format!("modules/{}.ko", module.name);
            entries.push(entry(&path, 0o644, Content::File(file)));
        }
        order.push_str(&module.name);
        order.push('\n');
    }
    let order = Content::Bytes(order.into_bytes());
    entries.push(entry("modules/order", 0o644, order));
    Ok(entries)
}

/// Moves the modules of the kernel to the system, with their index.
fn add_modules(kernel: &Path, tree: &Path) -> Result<()> {
    let from = modules_of(kernel)?;
    let to = tree.join("usr/lib/modules");
    fs::create_dir_all(&to)?;
    for entry in fs::read_dir(&from)? {
        let version = entry?.file_name();
        fs::rename(from.join(&version), to.join(&version)).context("move the modules")?;
        run_quietly(
            Command::new("chroot")
                .arg(tree)
                .arg("/usr/sbin/depmod")
                .arg(&version),
        )?;
    }
    Ok(())
}

/// All files of the disk: those of the packages without what is left out, and ours.
fn root_file_system(parts: &Path, tree: &Path) -> Result<Vec<Entry>> {
    let left_out = list(&parts.join("left-out.txt"))?;
    let mut entries = BTreeMap::new();
    for mut entry in Entry::from_directory(tree)? {
        if left_out
            .iter()
            .any(|pattern| is_below(&entry.path, pattern))
        {
            continue;
        }
        entry.content = settled(tree, &entry)?;
        entries.insert(entry.path.clone(), entry);
    }
    let mut put = |path: &str, mode, content| {
        for (at, _) in path.match_indices('/') {
            let parent = path.get(..at).unwrap_or_default();
            entries
                .entry(parent.to_owned())
                .or_insert_with(|| ours(parent, 0o755, Content::Directory));
        }
        entries.insert(path.to_owned(), ours(path, mode, content));
    };
    for (name, place, mode) in FILES {
        put(place, mode, Content::File(parts.join(name)));
    }
    for line in list(&parts.join("links.txt"))? {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [place, target] = words[..] else {
            anyhow::bail!("links.txt: {line:?} is not a place and a target");
        };
        put(place, 0o777, Content::Symlink(target.to_owned()));
    }
    // Empty: every guest gets an identity of its own, and its units are enabled as they are here.
    put("etc/machine-id", 0o444, Content::Bytes(Vec::new()));
    // As old as `/usr`: nothing has to be made anew at the first boot.
    for place in ["etc/.updated", "var/.updated"] {
        put(place, 0o644, Content::Bytes(Vec::new()));
    }
    Ok(entries.into_values().collect())
}

fn ours(path: &str, mode: u32, content: Content) -> Entry {
    Entry {
        path: path.to_owned(),
        mode,
        owner: Owner::ROOT,
        content,
    }
}

/// Whether a path is one of a list, or in a directory of it. A pattern that ends with `/` keeps the directory.
fn is_below(path: &str, pattern: &str) -> bool {
    let (name, keeps) = match pattern.strip_suffix('/') {
        Some(name) => (name, true),
        None => (pattern, false),
    };
    path.strip_prefix(name).is_some_and(|rest| match rest {
        "" => !keeps,
        rest => rest.starts_with('/'),
    })
}

/// A content that depends on no other file, nor on times.
fn settled(tree: &Path, entry: &Entry) -> Result<Content> {
    Ok(match &entry.content {
        Content::HardLink(target) => Content::File(tree.join(target)),
        Content::File(path) if path.extension().is_some_and(|kind| kind == "pyc") => {
            let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
            Content::Bytes(unchecked(bytes).with_context(|| format!("in {}", path.display()))?)
        }
        other => other.clone(),
    })
}

/// Compiled Python that is used whatever the time and content of its source: all times on the disk are the same.
fn unchecked(mut bytes: Vec<u8>) -> Result<Vec<u8>> {
    /// After the format's number: flags, and eight bytes that identify the source.
    const FLAGS: std::ops::Range<usize> = 4..16;
    /// Identified by a hash that is not checked.
    const UNCHECKED: u8 = 1;
    let header = bytes.get_mut(FLAGS);
    let header = header.context("compiled Python without a header")?;
    header.fill(0);
    if let Some(flags) = header.first_mut() {
        *flags = UNCHECKED;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_files_exist() {
        let parts = root().join("deploy/images/debian");
        for (name, _, _) in FILES {
            assert!(parts.join(name).is_file(), "{name}");
        }
    }

    #[test]
    fn paths_are_left_out_with_what_is_in_them() {
        for (path, pattern, expected) in [
            ("usr/share/doc", "usr/share/doc", true),
            ("usr/share/doc/x/y", "usr/share/doc", true),
            ("usr/share/docs", "usr/share/doc", false),
            ("var/cache", "var/cache/", false),
            ("var/cache/apt", "var/cache/", true),
        ] {
            assert_eq!(is_below(path, pattern), expected, "{path} {pattern}");
        }
    }

    #[test]
    fn compiled_python_is_never_compared_with_its_source() {
        let bytes = unchecked((0..20).collect()).unwrap();
        assert_eq!(bytes[..8], [0, 1, 2, 3, 1, 0, 0, 0]);
        assert_eq!(bytes[8..], [&[0; 8], &[16, 17, 18, 19][..]].concat());
        unchecked(vec![0; 15]).unwrap_err();
    }
}
