//! Access to the guest's disks through the container's mount namespace.
//!
//! The container's user owns many of these files and may replace them at any time. So every path is
//! resolved from a descriptor without following symbolic links, and an opened file is inspected before
//! it is changed. At worst a tenant makes us give them a file that they own already. A tenant who names
//! a file of the host gets none that existed before ([`Existing::Keep`]).

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
};

use domain_xml::{Allocation, BlockSizes, DirectIo};
use kubevirt_api::RUNTIME_USER;
use model::paths;
use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid},
    io::Errno,
};

use super::blocks;
use crate::launcher::Peer;

/// Within the container's root, following its symbolic links: `/var/run` is one in many images.
const IN_ROOT: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);
const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);
/// Mode of an image: for the guest's user and, for helper processes, its group.
const IMAGE_MODE: u32 = 0o660;
const DIRECTORY_MODE: u32 = 0o770;
pub(crate) const READ_AND_WRITE: u32 = 0o6;

/// How the guest uses an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Read. The launcher reports a missing image.
    Read,
    /// Read and write. The launcher reports a missing image.
    Write,
    /// Read and write. The launcher creates a missing image; if it lacks the permission, an empty
    /// one is created for it.
    Create,
}

impl Use {
    /// The required permissions, as an octal digit.
    fn rights(self) -> u32 {
        match self {
            Self::Read => 0o4,
            Self::Write | Self::Create => READ_AND_WRITE,
        }
    }
}

/// Whether the owner of an image that exists already may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Existing {
    /// It is in a volume of the tenant.
    Give,
    /// It is in a directory of the host that the tenant named: it may be any file of the host.
    Keep,
}

/// The files of a container.
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
        let private = paths::PRIVATE.trim_start_matches('/');
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = rustix::fs::openat2(&self.root, private, flags, Mode::empty(), IN_ROOT)?;
        let below = format!("vmi-disks/{volume}");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat2(&base, below, flags, Mode::empty(), CONFINED)?;
        Ok(opened)
    }

    /// Gives the guest's user access to a device of its container, and returns its block sizes.
    pub(super) fn give_device(&self, volume: &str) -> io::Result<BlockSizes> {
        let path = paths::device(volume);
        let path = path.trim_start_matches('/');
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = IN_ROOT | ResolveFlags::NO_SYMLINKS;
        let device = rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve)?;
        let stat = rustix::fs::fstat(&device)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
            return Err(wrong("its device is not a block device"));
        }
        if !has_rights(&stat, READ_AND_WRITE) {
            give(&device, &stat)?;
        }
        Ok(blocks::of_device(stat.st_rdev))
    }
}

/// Gives the guest's user the required access to an image, or refuses.
pub(super) fn give_image(
    directory: &OwnedFd,
    name: &str,
    wanted: Use,
    existing: Existing,
) -> io::Result<()> {
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
        return Err(wrong("its image is not a regular file"));
    }
    if has_rights(&stat, wanted.rights()) {
        return Ok(());
    }
    if existing == Existing::Keep {
        return Err(not_owned(name, &stat));
    }
    if stat.st_nlink != 1 {
        return Err(wrong(
            "its image has other hard links, so its owner is not changed",
        ));
    }
    match give(&image, &stat) {
        // The launcher only reads it, and reports if it cannot.
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(()),
        result => result,
    }
}

/// Whether files in the directory support `O_DIRECT`.
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
        Ok(_file) => DirectIo::Supported,
        Err(_) => DirectIo::Unsupported,
    }
}

/// Whether an image has no holes. A file that does not exist yet is created sparse.
pub(super) fn allocation(directory: &OwnedFd, name: &str) -> Allocation {
    /// The unit of `st_blocks`.
    const BLOCK: u64 = 512;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(directory, name, flags, Mode::empty(), CONFINED);
    let Ok(stat) = opened.and_then(rustix::fs::fstat) else {
        return Allocation::Sparse;
    };
    let size = u64::try_from(stat.st_size).unwrap_or_default();
    let allocated = u64::try_from(stat.st_blocks).unwrap_or_default();
    if size > 0 && allocated.saturating_mul(BLOCK) >= size {
        Allocation::Full
    } else {
        Allocation::Sparse
    }
}

/// Creates an empty image, unless the launcher can do it itself.
fn make_empty(directory: &OwnedFd, name: &str) -> io::Result<()> {
    let stat = rustix::fs::fstat(directory)?;
    // Creating a file also requires the execute permission of the directory.
    if has_rights(&stat, READ_AND_WRITE | 0o1) {
        return Ok(());
    }
    let mode = Mode::from_raw_mode(IMAGE_MODE);
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let made = match rustix::fs::openat(directory, ".", flags, mode) {
        // It gets its name with its owner, so that a crash leaves no image that is refused.
        Ok(file) => {
            give(&file, &rustix::fs::fstat(&file)?)?;
            let own = format!("/proc/self/fd/{}", file.as_raw_fd());
            let follow = AtFlags::SYMLINK_FOLLOW;
            rustix::fs::linkat(rustix::fs::CWD, own, directory, name, follow)
        }
        // Not every file system has files without a name.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            match rustix::fs::openat2(directory, name, flags, mode, CONFINED) {
                Ok(file) => return give(&file, &rustix::fs::fstat(&file)?),
                Err(errno) => Err(errno),
            }
        }
        Err(errno) => Err(errno),
    };
    match made {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Gives the guest's user a directory in a directory of its volume, unless the launcher can make one itself.
pub(super) fn give_directory(parent: &OwnedFd, name: &str) -> io::Result<()> {
    let stat = rustix::fs::fstat(parent)?;
    if has_rights(&stat, READ_AND_WRITE | 0o1) {
        return Ok(());
    }
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(DIRECTORY_MODE)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat2(parent, name, flags, Mode::empty(), CONFINED)?;
    if rustix::fs::fstat(&directory)?.st_uid != RUNTIME_USER {
        let (user, group) = (Uid::from_raw(RUNTIME_USER), Gid::from_raw(RUNTIME_USER));
        rustix::fs::fchown(&directory, Some(user), Some(group))?;
    }
    rustix::fs::fsync(parent)?;
    Ok(())
}

pub(crate) fn give(file: &OwnedFd, stat: &Stat) -> io::Result<()> {
    let owner = (Uid::from_raw(RUNTIME_USER), Gid::from_raw(RUNTIME_USER));
    let (user, group) = (Some(owner.0), Some(owner.1));
    rustix::fs::chownat(file.as_fd(), "", user, group, AtFlags::EMPTY_PATH)?;
    if stat.st_mode & 0o600 != 0o600 {
        // `fchmod` does not work on a descriptor opened with O_PATH.
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::chmod(own, Mode::from_raw_mode(IMAGE_MODE))?;
    }
    Ok(())
}

/// Whether the mode grants these permissions to the guest's user.
pub(crate) fn has_rights(stat: &Stat, rights: u32) -> bool {
    let digit = if stat.st_uid == RUNTIME_USER {
        stat.st_mode >> 6
    } else if stat.st_gid == RUNTIME_USER {
        stat.st_mode >> 3
    } else {
        stat.st_mode
    };
    digit & rights == rights
}

/// An image of the host that its administrator did not give to guests.
fn not_owned(name: &str, stat: &Stat) -> io::Error {
    let (owner, mode) = (stat.st_uid, stat.st_mode & 0o7777);
    let why = format!(
        "the existing file {name} belongs to user {owner} with mode {mode:o}: to give it to guests, run \
         `chown {RUNTIME_USER}:{RUNTIME_USER}` on the node"
    );
    io::Error::new(io::ErrorKind::PermissionDenied, why)
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
    fn image_is_given_to_the_guests_user() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.img");
        fs::write(&image, "data").unwrap();
        fs::set_permissions(&image, fs::Permissions::from_mode(0o400)).unwrap();
        if !is_root() {
            return;
        }
        give_image(&open(dir.path()), "disk.img", Use::Read, Existing::Give).unwrap();
        let found = fs::metadata(&image).unwrap();
        assert_eq!(
            (found.uid(), found.gid(), found.mode() & 0o777),
            (107, 107, 0o660)
        );
        assert_eq!(fs::read(&image).unwrap(), b"data");
    }

    #[test]
    fn read_only_image_is_given_only_for_writing() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.img");
        fs::write(&image, "data").unwrap();
        fs::set_permissions(&image, fs::Permissions::from_mode(0o644)).unwrap();
        if !is_root() {
            return;
        }
        for (wanted, owner) in [(Use::Read, 0), (Use::Write, 107)] {
            give_image(&open(dir.path()), "disk.img", wanted, Existing::Give).unwrap();
            assert_eq!(fs::metadata(&image).unwrap().uid(), owner, "{wanted:?}");
        }
    }

    #[test]
    fn image_with_holes_is_sparse() {
        let dir = tempfile::tempdir().unwrap();
        let measure = || allocation(&open(dir.path()), "disk.img");
        assert_eq!(measure(), Allocation::Sparse, "not created yet");
        let image = fs::File::create(dir.path().join("disk.img")).unwrap();
        image.set_len(1 << 20).unwrap();
        assert_eq!(measure(), Allocation::Sparse);
        fs::write(dir.path().join("disk.img"), vec![1; 1 << 20]).unwrap();
        image.sync_all().unwrap();
        assert_eq!(measure(), Allocation::Full);
    }

    #[test]
    fn missing_image_is_created_only_if_the_launcher_cannot() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.img");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        give_image(&open(dir.path()), "disk.img", Use::Create, Existing::Keep).unwrap();
        assert!(!image.exists());
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        give_image(&open(dir.path()), "disk.img", Use::Write, Existing::Keep).unwrap();
        assert!(!image.exists());
        if !is_root() {
            return;
        }
        give_image(&open(dir.path()), "disk.img", Use::Create, Existing::Keep).unwrap();
        let found = fs::metadata(&image).unwrap();
        assert_eq!((found.len(), found.uid()), (0, 107));
    }

    /// The class of CVE-2025-64433.
    #[test]
    fn irregular_or_hard_linked_image_is_not_given() {
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
            for existing in [Existing::Give, Existing::Keep] {
                let given = give_image(&open(dir.path()), name, Use::Create, existing);
                assert!(given.is_err(), "{name}");
            }
        }
        assert_eq!(fs::metadata(&victim).unwrap().uid(), owner);
    }

    /// The class of CVE-2025-64324: a host disk named `/etc/shadow`.
    #[test]
    fn existing_file_of_the_host_keeps_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("shadow");
        fs::write(&file, "secret").unwrap();
        let owner = fs::metadata(&file).unwrap().uid();
        if owner == RUNTIME_USER {
            return;
        }
        for mode in [0o600, 0o640, 0o644, 0o444] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            for wanted in [Use::Write, Use::Create] {
                let given = give_image(&open(dir.path()), "shadow", wanted, Existing::Keep);
                let error = given.unwrap_err().to_string();
                let expected = format!(
                    "the existing file shadow belongs to user {owner} with mode {mode:o}: to give it \
                     to guests, run `chown 107:107` on the node"
                );
                assert_eq!(error, expected);
            }
            let found = fs::metadata(&file).unwrap();
            assert_eq!((found.uid(), found.mode() & 0o777), (owner, mode));
        }
        assert_eq!(fs::read(&file).unwrap(), b"secret");
    }

    #[test]
    fn file_of_the_host_that_guests_own_is_usable() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.img");
        fs::write(&image, "data").unwrap();
        if !is_root() {
            return;
        }
        std::os::unix::fs::chown(&image, Some(107), Some(107)).unwrap();
        fs::set_permissions(&image, fs::Permissions::from_mode(0o600)).unwrap();
        give_image(&open(dir.path()), "disk.img", Use::Write, Existing::Keep).unwrap();
        let found = fs::metadata(&image).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o777), (107, 0o600));
    }

    #[test]
    fn permissions_of_the_guests_user_count() {
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
