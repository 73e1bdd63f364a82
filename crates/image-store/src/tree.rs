//! Writes below one directory only, for any input path.
//!
//! **Invariant**: the kernel resolves every path with the tree's root as `/` (`RESOLVE_IN_ROOT`, no
//! magic links), and the last component is never followed. So an absolute link points into the
//! tree, a link to `../../..` stops at its root, and a link with the name of a later entry is
//! replaced, not written through.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid,
    XattrFlags,
};
use rustix::io::Errno;

/// A directory that entries are written into.
#[derive(Debug)]
pub(crate) struct Tree {
    root: OwnedFd,
}

/// Owner, mode and modification time of an entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
    pub(crate) mtime: i64,
}

/// A path below the root: no empty, `.` or `..` component, no leading slash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TreePath(PathBuf);

impl TreePath {
    /// `None` when the path has `..`, which valid images do not.
    pub(crate) fn parse(path: &Path) -> Option<Self> {
        let mut clean = PathBuf::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => clean.push(name),
                Component::RootDir | Component::CurDir => {}
                Component::ParentDir | Component::Prefix(_) => return None,
            }
        }
        Some(Self(clean))
    }

    /// Parent and last component; `None` for the root itself.
    pub(crate) fn split(&self) -> Option<(Self, &OsStr)> {
        let parent = self.0.parent()?;
        Some((Self(parent.to_owned()), self.0.file_name()?))
    }

    pub(crate) fn join(&self, name: &OsStr) -> Self {
        Self(self.0.join(name))
    }

    pub(crate) fn starts_with(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    fn or_dot(&self) -> &Path {
        if self.0.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &self.0
        }
    }
}

impl Tree {
    /// Makes the directory `path`, which must not exist.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        rustix::fs::mkdir(path, Mode::from_raw_mode(0o755))?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        // Independent of the process's umask.
        rustix::fs::fchmod(&root, Mode::from_raw_mode(0o755))?;
        Ok(Self { root })
    }

    /// Flushes everything to the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.root)?)
    }

    /// Creates a file, replacing an existing entry.
    pub(crate) fn create_file(&self, path: &TreePath) -> io::Result<File> {
        let (parent, name) = self.clear(path)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(
            parent,
            name,
            flags | OFlags::NOFOLLOW,
            Mode::from_raw_mode(0o600),
        )?;
        Ok(File::from(file))
    }

    /// Sets a file's attributes; extended ones last, as changing the owner clears capabilities.
    pub(crate) fn finish_file(
        file: &File,
        attributes: Attributes,
        extended: &[(String, Vec<u8>)],
    ) -> io::Result<()> {
        rustix::fs::fchown(file, Some(attributes.uid()), Some(attributes.gid()))?;
        rustix::fs::fchmod(file, attributes.mode())?;
        for (name, value) in extended {
            rustix::fs::fsetxattr(file, name.as_str(), value, XattrFlags::empty())?;
        }
        Ok(rustix::fs::futimens(file, &attributes.times())?)
    }

    /// Creates a directory, or sets the attributes of an existing one.
    pub(crate) fn make_directory(&self, path: &TreePath, attributes: Attributes) -> io::Result<()> {
        if let Some((parent, name)) = path.split() {
            let parent = self.open_or_make(&parent)?;
            if kind_of(&parent, name)? != Some(FileType::Directory) {
                remove(&parent, name)?;
                rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o700))?;
            }
        }
        let directory = self.open_directory(path, OFlags::RDONLY | OFlags::NOFOLLOW)?;
        rustix::fs::fchown(&directory, Some(attributes.uid()), Some(attributes.gid()))?;
        Ok(rustix::fs::fchmod(&directory, attributes.mode())?)
    }

    /// Sets a directory's time after its last write. A removed directory is ignored.
    pub(crate) fn stamp_directory(&self, path: &TreePath, mtime: i64) -> io::Result<()> {
        let times = Attributes {
            uid: 0,
            gid: 0,
            mode: 0,
            mtime,
        }
        .times();
        match self.open_directory(path, OFlags::RDONLY | OFlags::NOFOLLOW) {
            Ok(directory) => Ok(rustix::fs::futimens(directory, &times)?),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn make_symlink(
        &self,
        path: &TreePath,
        target: &Path,
        attributes: Attributes,
    ) -> io::Result<()> {
        let (parent, name) = self.clear(path)?;
        rustix::fs::symlinkat(target, &parent, name)?;
        let (uid, gid) = (Some(attributes.uid()), Some(attributes.gid()));
        rustix::fs::chownat(&parent, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        let times = attributes.times();
        Ok(rustix::fs::utimensat(
            &parent,
            name,
            &times,
            AtFlags::SYMLINK_NOFOLLOW,
        )?)
    }

    pub(crate) fn make_hard_link(&self, path: &TreePath, target: &TreePath) -> io::Result<()> {
        let Some((target_parent, target_name)) = target.split() else {
            return Err(Errno::ISDIR.into());
        };
        if path == target {
            return Ok(());
        }
        let target_parent = self.open_directory(&target_parent, OFlags::PATH)?;
        // Before the old entry is removed, as the target may be below it.
        rustix::fs::statat(&target_parent, target_name, AtFlags::SYMLINK_NOFOLLOW)?;
        let (parent, name) = self.clear(path)?;
        Ok(rustix::fs::linkat(
            target_parent,
            target_name,
            parent,
            name,
            AtFlags::empty(),
        )?)
    }

    pub(crate) fn make_fifo(&self, path: &TreePath, attributes: Attributes) -> io::Result<()> {
        let (parent, name) = self.clear(path)?;
        let mode = attributes.mode();
        rustix::fs::mknodat(&parent, name, FileType::Fifo, mode, 0)?;
        let (uid, gid) = (Some(attributes.uid()), Some(attributes.gid()));
        rustix::fs::chownat(&parent, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(rustix::fs::chmodat(&parent, name, mode, AtFlags::empty())?)
    }

    /// Removes an entry and everything below it, if there is one.
    pub(crate) fn remove(&self, path: &TreePath) -> io::Result<()> {
        let Some((parent, name)) = path.split() else {
            return Ok(());
        };
        match self.open_directory(&parent, OFlags::PATH) {
            Ok(parent) => Ok(remove(&parent, name)?),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The names in a directory; empty if there is no such directory.
    pub(crate) fn names(&self, path: &TreePath) -> io::Result<Vec<std::ffi::OsString>> {
        match self.open_directory(path, OFlags::RDONLY) {
            Ok(directory) => Ok(names_in(directory)?),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the parent directory of `path` and removes the entry at `path`.
    fn clear<'p>(&self, path: &'p TreePath) -> io::Result<(OwnedFd, &'p OsStr)> {
        let (parent, name) = path.split().ok_or(Errno::ISDIR)?;
        let parent = self.open_or_make(&parent)?;
        remove(&parent, name)?;
        Ok((parent, name))
    }

    fn open_or_make(&self, path: &TreePath) -> rustix::io::Result<OwnedFd> {
        match self.open_directory(path, OFlags::PATH) {
            Err(Errno::NOENT) => {}
            other => return other,
        }
        let (parent, name) = path.split().ok_or(Errno::NOENT)?;
        let parent = self.open_or_make(&parent)?;
        rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755))?;
        let directory = self.open_directory(path, OFlags::RDONLY | OFlags::NOFOLLOW)?;
        rustix::fs::fchmod(&directory, Mode::from_raw_mode(0o755))?;
        Ok(directory)
    }

    fn open_directory(&self, path: &TreePath, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        rustix::fs::openat2(
            &self.root,
            path.or_dot(),
            flags | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
        )
    }
}

impl Attributes {
    fn uid(self) -> Uid {
        Uid::from_raw(self.uid)
    }

    fn gid(self) -> Gid {
        Gid::from_raw(self.gid)
    }

    fn mode(self) -> Mode {
        Mode::from_raw_mode(self.mode & 0o7777)
    }

    fn times(self) -> Timestamps {
        let time = Timespec {
            tv_sec: self.mtime,
            tv_nsec: 0,
        };
        Timestamps {
            last_access: time,
            last_modification: time,
        }
    }
}

fn kind_of(parent: &OwnedFd, name: &OsStr) -> rustix::io::Result<Option<FileType>> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn remove(parent: impl AsFd, name: &OsStr) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR) => {}
        Err(error) => return Err(error),
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(&parent, name, flags, Mode::empty())?;
    for child in names_in(directory.try_clone().map_err(|_| Errno::MFILE)?)? {
        remove(&directory, &child)?;
    }
    rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)
}

fn names_in(directory: OwnedFd) -> rustix::io::Result<Vec<std::ffi::OsString>> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut names = Vec::new();
    for entry in Dir::new(directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

impl std::fmt::Display for TreePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "/{}", self.0.display())
    }
}

/// Reads a small text file of a tree; links are followed inside the root only.
pub(crate) fn read_text(root: &Path, path: &str) -> io::Result<String> {
    use std::io::Read as _;
    const MAX: u64 = 1 << 20;
    let directory = rustix::fs::openat(
        CWD,
        root,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let file = rustix::fs::openat2(
        directory,
        path,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK,
        Mode::empty(),
        ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
    )?;
    let mut text = String::new();
    File::from(file).take(MAX).read_to_string(&mut text)?;
    Ok(text)
}
