//! `fsGroup`: everything in a volume belongs to the pod's group and is open to it.
//!
//! **Invariant.** Containers may change the volume at the same time: no path is followed; every
//! name is opened relative to its directory's descriptor, and links are never followed.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, chmod, chownat, fstat, openat, statat,
    },
    io::Errno,
};

/// Deeper directories are not changed: each level costs a descriptor.
const MAX_DEPTH: u32 = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    group: u32,
    when: When,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    /// Only when the volume's own directory has another group or mode.
    OnRootMismatch,
}

impl Owner {
    /// The group, and the pod's `fsGroupChangePolicy`.
    pub(crate) fn new(group: u32, change: Option<&str>) -> Self {
        let when = match change {
            Some("OnRootMismatch") => When::OnRootMismatch,
            _ => When::Always,
        };
        Self { group, when }
    }

    pub(crate) fn group(self) -> u32 {
        self.group
    }
}

/// Changes group and mode of everything in the volume.
pub(crate) fn apply(root: &Path, owner: Owner) -> io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(CWD, root, flags, Mode::empty())?;
    let stat = fstat(&dir)?;
    let matches = stat.st_gid == owner.group && group_mode(&stat) == stat.st_mode & 0o7777;
    if owner.when == When::OnRootMismatch && matches {
        return Ok(());
    }
    apply_below(&dir, owner.group, MAX_DEPTH)?;
    // Last, so that an interrupted change does not look complete.
    change(dir.as_fd(), &stat, owner.group)
}

fn apply_below(dir: &OwnedFd, group: u32, depth: u32) -> io::Result<()> {
    if depth == 0 {
        return Ok(());
    }
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_bytes() == b"." || name.to_bytes() == b".." {
            continue;
        }
        let kind = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            other => FileType::from_raw_mode(other?.st_mode),
        };
        let flags = match kind {
            FileType::Directory => OFlags::DIRECTORY | OFlags::NOFOLLOW,
            FileType::RegularFile => OFlags::PATH | OFlags::NOFOLLOW,
            // Links, sockets and pipes get the group only.
            _ => {
                match chownat(
                    dir,
                    name,
                    None,
                    Some(Gid::from_raw(group)),
                    AtFlags::SYMLINK_NOFOLLOW,
                ) {
                    Ok(()) | Err(Errno::NOENT) => continue,
                    Err(errno) => return Err(errno.into()),
                }
            }
        };
        let opened = match openat(dir, name, flags | OFlags::CLOEXEC, Mode::empty()) {
            // Removed or replaced since `statat`.
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => continue,
            other => other?,
        };
        let stat = fstat(&opened)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => apply_below(&opened, group, depth - 1)?,
            FileType::RegularFile => {}
            _ => continue,
        }
        change(opened.as_fd(), &stat, group)?;
    }
    Ok(())
}

fn change(file: BorrowedFd<'_>, stat: &Stat, group: u32) -> io::Result<()> {
    if stat.st_gid != group {
        chownat(
            file,
            "",
            None,
            Some(Gid::from_raw(group)),
            AtFlags::EMPTY_PATH,
        )?;
    }
    let mode = group_mode(stat);
    if mode != stat.st_mode & 0o7777 || stat.st_gid != group {
        // `fchmod` refuses descriptors opened with `O_PATH`.
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        chmod(own, Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

/// The mode that gives the group the rights of the owner.
fn group_mode(stat: &Stat) -> u32 {
    let mode = stat.st_mode & 0o7777;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        mode | 0o2770
    } else {
        // The set-ID bits of the old group must not pass to the new one.
        (mode | 0o660) & !0o6000
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    };

    use super::*;

    #[test]
    fn group_applies_inside_the_volume_only() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(&outside, "").unwrap();
        fs::write(root.join("a/b/file"), "").unwrap();
        fs::set_permissions(root.join("a/b/file"), fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&outside, root.join("a/link")).unwrap();
        let before = fs::metadata(&outside).unwrap();
        for _ in 0..2 {
            apply(&root, Owner::new(107, None)).unwrap();
            for (name, mode) in [("", 0o2775), ("a", 0o2775), ("a/b/file", 0o660)] {
                let found = fs::metadata(root.join(name)).unwrap();
                let mode = mode & 0o2770;
                assert_eq!((found.gid(), found.mode() & 0o2770), (107, mode), "{name}");
            }
            let link = fs::symlink_metadata(root.join("a/link")).unwrap();
            assert_eq!(link.gid(), 107);
            let after = fs::metadata(&outside).unwrap();
            assert_eq!((after.gid(), after.mode()), (before.gid(), before.mode()));
        }
    }

    #[test]
    fn matching_root_skips_the_contents_on_root_mismatch_policy() {
        let dir = tempfile::tempdir().unwrap();
        let lazy = Owner::new(107, Some("OnRootMismatch"));
        apply(dir.path(), lazy).unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        std::os::unix::fs::chown(&file, None, Some(0)).unwrap();
        apply(dir.path(), lazy).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().gid(), 0);
        apply(dir.path(), Owner::new(107, Some("Always"))).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().gid(), 107);
    }
}
