//! The disk of the machine: Debian packages, our service that runs scenarios, and beside it the kernel, which
//! QEMU loads by itself.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::{
    cache::{Cache, Inputs},
    debian::{PackageList, Variant},
    printer::Printer,
    workspace::{root, run_quietly},
};

/// Changed whenever the code below makes another disk of the same files.
const RECIPE: &str = "machine 1";
/// Most of it is a hole in the file.
const DISK_GIB: u64 = 8;
/// Files of `deploy/machine/image` and their places on the disk.
const FILES: [(&str, &str, u32); 3] = [
    ("run", "usr/lib/machine/run", 0o755),
    (
        "machine.service",
        "etc/systemd/system/machine.service",
        0o644,
    ),
    (
        "autologin.conf",
        "etc/systemd/system/serial-getty@ttyS0.service.d/autologin.conf",
        0o644,
    ),
];

/// The parts that QEMU takes. They are never written to.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) disk: PathBuf,
    pub(super) kernel: PathBuf,
    pub(super) initrd: PathBuf,
}

/// The image, made if it is not in the cache.
pub(super) fn ready(printer: &Printer) -> Result<Image> {
    let files = root().join("deploy/machine/image");
    let inputs = Inputs::default().text(RECIPE).path(&files)?;
    let made = Cache::open()?.thing("machine", &inputs, |draft| {
        printer.line("making the test machine's disk (a minute or two)");
        make(&files, draft)
    })?;
    Ok(Image {
        disk: made.join("disk.raw"),
        kernel: made.join("vmlinuz"),
        initrd: made.join("initrd"),
    })
}

fn make(files: &Path, draft: &Path) -> Result<()> {
    let tree = draft.join("tree");
    PackageList::read(&files.join("packages.txt"))?.install(Variant::MinBase, &tree)?;
    for (name, place, mode) in FILES {
        let place = tree.join(place);
        let parent = place.parent().context("a file in a directory")?;
        fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
        fs::copy(files.join(name), &place).with_context(|| format!("copy {name}"))?;
        fs::set_permissions(&place, fs::Permissions::from_mode(mode))?;
    }
    let wanted = tree.join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wanted)?;
    symlink("../machine.service", wanted.join("machine.service"))?;
    fs::write(tree.join("etc/hostname"), "machine\n")?;
    for (prefix, name) in [("vmlinuz-", "vmlinuz"), ("initrd.img-", "initrd")] {
        let file = with_prefix(&tree.join("boot"), prefix)?;
        fs::copy(&file, draft.join(name)).with_context(|| format!("copy {}", file.display()))?;
    }
    let disk = draft.join("disk.raw");
    fs::File::create(&disk)?.set_len(DISK_GIB << 30)?;
    run_quietly(
        Command::new("mkfs.ext4")
            .args(["-q", "-F", "-d"])
            .args([&tree, &disk]),
    )?;
    fs::remove_dir_all(&tree).context("remove the unpacked packages")
}

/// The only file of a directory whose name begins so.
fn with_prefix(directory: &Path, prefix: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(directory)
        .with_context(|| format!("list {}", directory.display()))?
        .collect::<std::io::Result<Vec<_>>>()?;
    let mut found = entries
        .iter()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    let first = found.next();
    let first = first.with_context(|| format!("no {prefix}* in {}", directory.display()))?;
    anyhow::ensure!(
        found.next().is_none(),
        "several {prefix}* in {}",
        directory.display()
    );
    Ok(first.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_files_exist() {
        for (name, _, _) in FILES {
            assert!(
                root().join("deploy/machine/image").join(name).is_file(),
                "{name}"
            );
        }
    }

    #[test]
    fn one_kernel_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        with_prefix(directory.path(), "vmlinuz-").unwrap_err();
        fs::write(at("vmlinuz-1"), "").unwrap();
        fs::write(at("config-1"), "").unwrap();
        assert_eq!(
            with_prefix(directory.path(), "vmlinuz-").unwrap(),
            at("vmlinuz-1")
        );
        fs::write(at("vmlinuz-2"), "").unwrap();
        with_prefix(directory.path(), "vmlinuz-").unwrap_err();
    }
}
