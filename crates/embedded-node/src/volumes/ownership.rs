//! `fsGroup`: everything in a volume belongs to the pod's group and is open to it.
//!
//! **Invariant.** What is in the volume was written by containers, which may be writing still: no
//! path is followed, every name is opened beneath its directory's descriptor, links as such.

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

/// Deeper trees are left as they are below this: they cost a descriptor a level.
const DEEPEST: u32 = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    group: u32,
    when: When,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    /// Only when the volume's own directory is not right yet.
    RootDiffers,
}

impl Owner {
    /// The group, and the pod's `fsGroupChangePolicy`.
    pub(crate) fn new(group: u32, change: Option<&str>) -> Self {
        let when = match change {
            Some("OnRootMismatch") => When::RootDiffers,
            _ => When::Always,
        };
        Self { group, when }
    }

    pub(crate) fn group(self) -> u32 {
        self.group
    }
}

pub(crate) fn give(root: &Path, owner: Owner) -> io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(CWD, root, flags, Mode::empty())?;
    let stat = fstat(&dir)?;
    let right = stat.st_gid == owner.group && wanted(&stat) == stat.st_mode & 0o7777;
    if owner.when == When::RootDiffers && right {
        return Ok(());
    }
    below(&dir, owner.group, DEEPEST)?;
    // Last, so that a pass that was cut off does not look finished.
    change(dir.as_fd(), &stat, owner.group)
}

fn below(dir: &OwnedFd, group: u32, depth: u32) -> io::Result<()> {
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
            // Links, sockets and pipes: the name itself belongs to the group, no more.
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
            // Taken away or exchanged for something else between the two looks.
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => continue,
            other => other?,
        };
        let stat = fstat(&opened)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => below(&opened, group, depth - 1)?,
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
    let mode = wanted(stat);
    if mode != stat.st_mode & 0o7777 || stat.st_gid != group {
        // A descriptor opened as a path takes no other way.
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        chmod(own, Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

/// The mode that lets the group do what the owner may do.
fn wanted(stat: &Stat) -> u32 {
    let mode = stat.st_mode & 0o7777;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        mode | 0o2770
    } else {
        // Rights that came with the old group are not handed to the new one.
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
    fn everything_inside_is_given_and_nothing_outside() {
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
            give(&root, Owner::new(107, None)).unwrap();
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
    fn right_root_spares_the_rest_when_asked_to() {
        let dir = tempfile::tempdir().unwrap();
        let lazy = Owner::new(107, Some("OnRootMismatch"));
        give(dir.path(), lazy).unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        std::os::unix::fs::chown(&file, None, Some(0)).unwrap();
        give(dir.path(), lazy).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().gid(), 0);
        give(dir.path(), Owner::new(107, Some("Always"))).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().gid(), 107);
    }
}
