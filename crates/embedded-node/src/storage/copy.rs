//! Copies of directories and files: shared blocks where the file system has them, else the written
//! parts of each file.
//!
//! **Invariants.** A tenant may change the source meanwhile, so every name is opened relative to its
//! directory and never followed if it is a symbolic link. The copy is on disk when a function returns.
//! Devices and sockets are left out: nothing else on a volume depends on the host.

use std::{
    ffi::CStr,
    fs::File,
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::Path,
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{
        AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid,
    },
    io::Errno,
};

/// The part of a file that is read at once; a part of zeros is not written.
const PART: usize = 1 << 16;
/// Deeper trees are refused: each level keeps two descriptors open.
const DEEPEST: u32 = 200;
/// Bounds the names of the extended attributes of a file, as the kernel does.
const ATTRIBUTES: usize = 1 << 16;

/// Whether files below that directory can share blocks.
pub(super) fn can_share(dir: &Path) -> io::Result<bool> {
    let (Some(one), Some(two)) = (tempfile_in(dir)?, tempfile_in(dir)?) else {
        return Ok(false);
    };
    one.write_all_at(&[1; 4096], 0)?;
    match rustix::fs::ioctl_ficlone(&two, &one) {
        Ok(()) => Ok(true),
        Err(error) if is_unsupported(error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A file without a name, if the file system has them.
fn tempfile_in(dir: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(dir, flags, Mode::from_raw_mode(0o600)) {
        Ok(file) => Ok(Some(File::from(file))),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Copies a file to a new name.
pub(super) fn file(from: &Path, to: &Path) -> io::Result<()> {
    let source = open_file(CWD, from)?;
    copy_file(&source, CWD, to)
}

/// Copies a directory and all below it to a new name.
pub(super) fn tree(from: &Path, to: &Path) -> io::Result<()> {
    let source = open_directory(CWD, from)?;
    rustix::fs::mkdir(to, Mode::from_raw_mode(0o700))?;
    let target = open_directory(CWD, to)?;
    copy_directory(&source, &target, 0)
}

fn open_directory(dir: impl AsFd, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, name, flags, Mode::empty())?)
}

fn open_file(dir: impl AsFd, name: impl rustix::path::Arg) -> io::Result<File> {
    // A pipe that took the place of the file would block.
    let flags = OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(dir, name, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("a file was replaced while it was copied"));
    }
    Ok(file)
}

fn copy_directory(source: &OwnedFd, target: &OwnedFd, depth: u32) -> io::Result<()> {
    if depth >= DEEPEST {
        let message = format!("the volume has directories deeper than {DEEPEST} levels");
        return Err(io::Error::other(message));
    }
    for entry in Dir::read_from(source)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        copy_entry(source, target, name, depth)?;
    }
    let stat = rustix::fs::fstat(source)?;
    copy_attributes(source.as_fd(), target.as_fd())?;
    copy_owner(target.as_fd(), &stat)?;
    rustix::fs::fsync(target)?;
    Ok(())
}

fn copy_entry(source: &OwnedFd, target: &OwnedFd, name: &CStr, depth: u32) -> io::Result<()> {
    let stat = match rustix::fs::statat(source, name, AtFlags::SYMLINK_NOFOLLOW) {
        // Removed meanwhile.
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let file = match open_file(source, name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                other => other?,
            };
            copy_file(&file, target.as_fd(), name)
        }
        FileType::Directory => {
            let inner = match open_directory(source, name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                other => other?,
            };
            rustix::fs::mkdirat(target, name, Mode::from_raw_mode(0o700))?;
            let copy = open_directory(target, name)?;
            copy_directory(&inner, &copy, depth + 1)
        }
        FileType::Symlink => {
            let link = rustix::fs::readlinkat(source, name, Vec::new())?;
            rustix::fs::symlinkat(link, target, name)?;
            let (uid, gid) = owner(&stat);
            rustix::fs::chownat(target, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(())
        }
        FileType::Fifo => {
            let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
            rustix::fs::mknodat(target, name, FileType::Fifo, mode, 0)?;
            let (uid, gid) = owner(&stat);
            rustix::fs::chownat(target, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(())
        }
        _ => Ok(()),
    }
}

fn copy_file(source: &File, dir: BorrowedFd<'_>, name: impl rustix::path::Arg) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let target = rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600))?;
    let target = File::from(target);
    match rustix::fs::ioctl_ficlone(&target, source) {
        Ok(()) => {}
        Err(error) if is_unsupported(error) => copy_written(source, &target)?,
        Err(error) => return Err(error.into()),
    }
    let stat = rustix::fs::fstat(source)?;
    copy_attributes(source.as_fd(), target.as_fd())?;
    copy_owner(target.as_fd(), &stat)?;
    target.sync_all()
}

fn is_unsupported(error: Errno) -> bool {
    // A sparse copy fails with the same error if the cause is another one.
    [
        Errno::OPNOTSUPP,
        Errno::XDEV,
        Errno::INVAL,
        Errno::NOTTY,
        Errno::NOSYS,
        Errno::PERM,
        Errno::TXTBSY,
    ]
    .contains(&error)
}

/// Copies the parts of a file that are not holes and not zeros.
fn copy_written(source: &File, target: &File) -> io::Result<()> {
    let size = source.metadata()?.size();
    target.set_len(size)?;
    let mut part = vec![0_u8; PART];
    let mut at = 0;
    while let Some((start, end)) = next_data(source, at, size)? {
        at = start;
        while at < end {
            let left = usize::try_from(end - at).unwrap_or(PART).min(PART);
            let Some(buffer) = part.get_mut(..left) else {
                break;
            };
            let count = source.read_at(buffer, at)?;
            if count == 0 {
                // Truncated meanwhile.
                return Ok(());
            }
            let read = buffer.get(..count).unwrap_or_default();
            if read.iter().any(|byte| *byte != 0) {
                target.write_all_at(read, at)?;
            }
            at += count as u64;
        }
    }
    Ok(())
}

/// The next written range, from `at` on.
fn next_data(file: &File, at: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= size {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // The file system does not know holes.
        Err(Errno::INVAL) => return Ok(Some((at, size))),
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start))?;
    Ok((start < size).then_some((start, end.min(size))))
}

fn owner(stat: &Stat) -> (Option<Uid>, Option<Gid>) {
    (
        Some(Uid::from_raw(stat.st_uid)),
        Some(Gid::from_raw(stat.st_gid)),
    )
}

/// Copies owner, permissions and times.
fn copy_owner(target: BorrowedFd<'_>, stat: &Stat) -> io::Result<()> {
    let (uid, gid) = owner(stat);
    rustix::fs::fchown(target, uid, gid)?;
    // After the owner, whose change clears the bits of set-user-ID.
    rustix::fs::fchmod(target, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    let time = |seconds: i64, nanoseconds: u64| Timespec {
        tv_sec: seconds,
        tv_nsec: i64::try_from(nanoseconds).unwrap_or(0),
    };
    let times = Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    };
    rustix::fs::futimens(target, &times)?;
    Ok(())
}

/// Copies the extended attributes of users and access lists.
fn copy_attributes(source: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    let mut names = vec![0_u8; ATTRIBUTES];
    let count = match rustix::fs::flistxattr(source, &mut names[..]) {
        Ok(count) => count,
        Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let names = names.get(..count).unwrap_or_default();
    let mut value = vec![0_u8; ATTRIBUTES];
    for name in names.split(|byte| *byte == 0) {
        let is_kept = name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_");
        if !is_kept {
            continue;
        }
        let size = match rustix::fs::fgetxattr(source, name, &mut value[..]) {
            // Removed meanwhile.
            Err(Errno::NODATA) => continue,
            other => other?,
        };
        let value = value.get(..size).unwrap_or_default();
        rustix::fs::fsetxattr(target, name, value, rustix::fs::XattrFlags::empty())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
    };

    use super::*;

    #[test]
    fn tree_is_copied_with_permissions_links_and_holes() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::write(from.join("a/b/file"), "text").unwrap();
        fs::set_permissions(from.join("a"), fs::Permissions::from_mode(0o2775)).unwrap();
        fs::set_permissions(from.join("a/b/file"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("/etc/passwd", from.join("link")).unwrap();
        let sparse = File::create(from.join("disk.img")).unwrap();
        sparse.set_len(64 << 20).unwrap();
        sparse.write_all_at(b"start", 0).unwrap();
        sparse.write_all_at(b"middle", 33 << 20).unwrap();
        tree(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("a/b/file")).unwrap(), "text");
        let mode = |path: &str| fs::metadata(to.join(path)).unwrap().mode() & 0o7777;
        assert_eq!((mode("a"), mode("a/b/file")), (0o2775, 0o640));
        let link = fs::read_link(to.join("link")).unwrap();
        assert_eq!(link, Path::new("/etc/passwd"));
        let copy = fs::read(to.join("disk.img")).unwrap();
        assert!(copy == fs::read(from.join("disk.img")).unwrap());
        let blocks = fs::metadata(to.join("disk.img")).unwrap().blocks();
        assert!(blocks * 512 < 1 << 20, "{blocks}");
        let kept = fs::metadata(from.join("a/b/file")).unwrap();
        let copied = fs::metadata(to.join("a/b/file")).unwrap();
        assert_eq!(kept.mtime(), copied.mtime());
    }

    #[test]
    fn links_are_not_followed_and_names_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("secret"), "secret").unwrap();
        symlink(path("secret"), path("disk")).unwrap();
        file(&path("disk"), &path("copy")).unwrap_err();
        tree(&path("disk"), &path("tree")).unwrap_err();
        fs::write(path("there"), "there").unwrap();
        file(&path("secret"), &path("there")).unwrap_err();
        assert_eq!(fs::read_to_string(path("there")).unwrap(), "there");
    }

    #[test]
    fn deep_trees_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let deep: std::path::PathBuf = std::iter::repeat_n("d", 300).collect();
        fs::create_dir_all(dir.path().join("from").join(deep)).unwrap();
        let error = tree(&dir.path().join("from"), &dir.path().join("to")).unwrap_err();
        assert!(error.to_string().contains("deeper"), "{error}");
    }

    #[test]
    fn shared_blocks_are_probed_without_leftovers() {
        let dir = tempfile::tempdir().unwrap();
        can_share(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
