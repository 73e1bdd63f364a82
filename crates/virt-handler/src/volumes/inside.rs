//! Reaching the guest's disks inside the pod, as the container sees them.
//!
//! The container's user owns much of what is there and may exchange it at any moment. So every
//! step is taken from a descriptor, over no link, and what was opened is looked at before it is
//! touched. At worst a tenant has us give them a file that is theirs already.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
};

use domain_xml::DirectIo;
use kubevirt_api::RUNTIME_USER;
use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid},
    io::Errno,
};

use crate::launcher::Peer;

/// Within the container's root, over its own links: `/var/run` is one in many images.
const IN_ROOT: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);
const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);
/// Rights of an image: of the guest's user and, for helpers, of its group.
const IMAGE_MODE: u32 = 0o660;
const READ_AND_WRITE: u32 = 0o6;

/// What the guest does with an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Reads it. Whether it is there, the launcher finds out.
    Read,
    /// Reads and writes it. Whether it is there, the launcher finds out.
    Write,
    /// Reads and writes it. The launcher makes a missing one; where it may not, an empty one is
    /// made for it.
    Create,
}

impl Use {
    /// Rights that are needed, as an octal digit.
    fn rights(self) -> u32 {
        match self {
            Self::Read => 0o4,
            Self::Write | Self::Create => READ_AND_WRITE,
        }
    }
}

/// The container's view of files.
#[derive(Debug)]
pub(super) struct Inside {
    root: OwnedFd,
}

impl Inside {
    pub(super) fn of(peer: &Peer) -> io::Result<Self> {
        Ok(Self { root: peer.root()? })
    }

    /// The directory of a volume's image.
    pub(super) fn disk_directory(&self, volume: &str) -> io::Result<OwnedFd> {
        let private = domain_xml::paths::PRIVATE.trim_start_matches('/');
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = rustix::fs::openat2(&self.root, private, flags, Mode::empty(), IN_ROOT)?;
        let below = format!("vmi-disks/{volume}");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat2(&base, below, flags, Mode::empty(), CONFINED)?;
        Ok(opened)
    }

    /// Lets the guest's user open a device of its container.
    pub(super) fn give_device(&self, volume: &str) -> io::Result<()> {
        let path = domain_xml::paths::device(volume);
        let path = path.trim_start_matches('/');
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = IN_ROOT | ResolveFlags::NO_SYMLINKS;
        let device = rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve)?;
        let stat = rustix::fs::fstat(&device)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
            return Err(wrong("its device is no block device"));
        }
        if has_rights(&stat, READ_AND_WRITE) {
            return Ok(());
        }
        give(&device, &stat)
    }
}

/// Lets the guest's user do with an image what its guest does.
pub(super) fn give_image(directory: &OwnedFd, name: &str, wanted: Use) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(directory, name, flags, Mode::empty(), CONFINED);
    let image = match opened {
        Ok(image) => image,
        Err(Errno::NOENT) if wanted == Use::Create => return make_empty(directory, name),
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    let stat = rustix::fs::fstat(&image)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(wrong("its image is no file"));
    }
    if has_rights(&stat, wanted.rights()) {
        return Ok(());
    }
    if stat.st_nlink != 1 {
        return Err(wrong("its image has other names, so it is not given away"));
    }
    match give(&image, &stat) {
        // The launcher finds out whether it can read it, which is all that it will do.
        Err(err) if err.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(()),
        given => given,
    }
}

/// Whether files in the directory can be opened past the page cache.
pub(super) fn direct_io(directory: &OwnedFd, name: &str) -> DirectIo {
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(directory, name, flags, Mode::empty(), CONFINED);
    let opened = match opened {
        Err(Errno::NOENT) => {
            let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
            rustix::fs::openat(directory, ".", unnamed, Mode::RUSR | Mode::WUSR)
        }
        opened => opened,
    };
    match opened {
        Ok(_closed) => DirectIo::Supported,
        Err(_) => DirectIo::Unsupported,
    }
}

/// Only where the launcher could not do it itself.
fn make_empty(directory: &OwnedFd, name: &str) -> io::Result<()> {
    let stat = rustix::fs::fstat(directory)?;
    // To make a file takes the right to enter, too.
    if has_rights(&stat, READ_AND_WRITE | 0o1) {
        return Ok(());
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    match rustix::fs::openat2(directory, name, flags, mode, CONFINED) {
        Ok(made) => give(&made, &rustix::fs::fstat(&made)?),
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn give(file: &OwnedFd, stat: &Stat) -> io::Result<()> {
    let owner = (Uid::from_raw(RUNTIME_USER), Gid::from_raw(RUNTIME_USER));
    let (user, group) = (Some(owner.0), Some(owner.1));
    rustix::fs::chownat(file.as_fd(), "", user, group, AtFlags::EMPTY_PATH)?;
    if stat.st_mode & 0o600 != 0o600 {
        // A descriptor that was opened as a path takes no other way.
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::chmod(own, Mode::from_raw_mode(IMAGE_MODE))?;
    }
    Ok(())
}

/// Whether the octal digit that counts for the guest's user has these rights.
fn has_rights(stat: &Stat, rights: u32) -> bool {
    let digit = if stat.st_uid == RUNTIME_USER {
        stat.st_mode >> 6
    } else if stat.st_gid == RUNTIME_USER {
        stat.st_mode >> 3
    } else {
        stat.st_mode
    };
    digit & rights == rights
}

fn wrong(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
        path::Path,
    };

    use super::*;

    fn open(path: &Path) -> OwnedFd {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        rustix::fs::open(path, flags, Mode::empty()).unwrap()
    }

    fn is_root() -> bool {
        rustix::process::getuid().is_root()
    }

    #[test]
    fn an_image_is_given_to_the_guests_user_once() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.img");
        fs::write(&image, "data").unwrap();
        fs::set_permissions(&image, fs::Permissions::from_mode(0o400)).unwrap();
        if !is_root() {
            return;
        }
        give_image(&open(dir.path()), "disk.img", Use::Read).unwrap();
        let found = fs::metadata(&image).unwrap();
        assert_eq!(
            (found.uid(), found.gid(), found.mode() & 0o777),
            (107, 107, 0o660)
        );
        assert_eq!(fs::read(&image).unwrap(), b"data");
    }

    #[test]
    fn an_image_that_may_only_be_read_is_given_to_who_writes_and_not_to_who_reads() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.img");
        fs::write(&image, "data").unwrap();
        fs::set_permissions(&image, fs::Permissions::from_mode(0o644)).unwrap();
        if !is_root() {
            return;
        }
        for (wanted, owner) in [(Use::Read, 0), (Use::Write, 107)] {
            give_image(&open(dir.path()), "disk.img", wanted).unwrap();
            assert_eq!(fs::metadata(&image).unwrap().uid(), owner, "{wanted:?}");
        }
    }

    #[test]
    fn a_missing_image_is_made_only_where_the_launcher_may_not() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.img");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        give_image(&open(dir.path()), "disk.img", Use::Create).unwrap();
        assert!(!image.exists());
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        give_image(&open(dir.path()), "disk.img", Use::Write).unwrap();
        assert!(!image.exists());
        if !is_root() {
            return;
        }
        give_image(&open(dir.path()), "disk.img", Use::Create).unwrap();
        let found = fs::metadata(&image).unwrap();
        assert_eq!((found.len(), found.uid()), (0, 107));
    }

    #[test]
    fn what_is_no_image_or_has_other_names_is_not_given() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
        let owner = fs::metadata(&victim).unwrap().uid();
        symlink(&victim, dir.path().join("link")).unwrap();
        fs::hard_link(&victim, dir.path().join("second")).unwrap();
        fs::create_dir(dir.path().join("directory")).unwrap();
        if owner == RUNTIME_USER {
            return;
        }
        for name in ["link", "second", "directory", "../victim"] {
            let given = give_image(&open(dir.path()), name, Use::Create);
            assert!(given.is_err(), "{name}");
        }
        assert_eq!(fs::metadata(&victim).unwrap().uid(), owner);
    }

    #[test]
    fn rights_are_those_of_the_guests_user() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "").unwrap();
        for (mode, usable) in [
            (0o600, false),
            (0o660, false),
            (0o606, true),
            (0o604, false),
        ] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let stat = rustix::fs::stat(&file).unwrap();
            if stat.st_uid != RUNTIME_USER && stat.st_gid != RUNTIME_USER {
                assert_eq!(has_rights(&stat, READ_AND_WRITE), usable, "{mode:o}");
            }
        }
    }
}
