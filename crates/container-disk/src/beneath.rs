//! Opening what others have put into a directory, without being led out of it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

/// No link is followed at all.
const NO_LINKS: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);
/// Nor is anything that is mounted there taken for what others have put there.
const OWN_FILES: ResolveFlags = NO_LINKS.union(ResolveFlags::NO_XDEV);
/// Links that stay in the directory are: a kubelet writes config maps and secrets so.
const OWN_LINKS: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Opens a directory that the pod's own specification names.
pub fn directory(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Opens a file for reading. Not blocking: somebody may have left a pipe.
pub fn read(root: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(openat2(root, path, flags, Mode::empty(), NO_LINKS)?)
}

/// Opens a file that an image itself holds, for reading. Not blocking, as above.
pub fn read_own(root: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(openat2(root, path, flags, Mode::empty(), OWN_FILES)?)
}

/// Opens a directory that an image itself holds.
pub fn own_directory(root: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat2(root, path, flags, Mode::empty(), OWN_FILES)?)
}

/// Opens a file for reading, over links that lead nowhere else.
pub fn read_over_links(root: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(openat2(root, path, flags, Mode::empty(), OWN_LINKS)?)
}

/// Opens a file for reading and writing, making it if it is missing and `create` says so.
pub fn write(root: impl AsFd, path: &Path, create: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | create;
    let mode = if create.contains(OFlags::CREATE) {
        Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP
    } else {
        Mode::empty()
    };
    Ok(openat2(root, path, flags, mode, NO_LINKS)?)
}
