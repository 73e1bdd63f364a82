//! Opens files in an untrusted directory without leaving it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

/// No link is followed.
const NO_LINKS: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);
/// Mounts are not crossed either.
const OWN_FILES: ResolveFlags = NO_LINKS.union(ResolveFlags::NO_XDEV);
/// Links inside the directory are followed: a kubelet uses them for config maps and secrets.
const OWN_LINKS: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Opens a directory that the pod's own specification names.
pub fn directory(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Opens a file for reading, non-blocking because it may be a pipe.
pub fn read(root: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(openat2(root, path, flags, Mode::empty(), NO_LINKS)?)
}

/// Opens a file of an image itself for reading, non-blocking because it may be a pipe.
pub fn read_own(root: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(openat2(root, path, flags, Mode::empty(), OWN_FILES)?)
}

/// Opens a directory of an image itself.
pub fn own_directory(root: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat2(root, path, flags, Mode::empty(), OWN_FILES)?)
}

/// Opens a file for reading and follows links inside the directory.
pub fn read_over_links(root: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(openat2(root, path, flags, Mode::empty(), OWN_LINKS)?)
}

/// Opens a file for reading and writing. With `OFlags::CREATE` a missing file is created.
pub fn write(root: impl AsFd, path: &Path, create: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | create;
    let mode = if create.contains(OFlags::CREATE) {
        Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP
    } else {
        Mode::empty()
    };
    Ok(openat2(root, path, flags, mode, NO_LINKS)?)
}
