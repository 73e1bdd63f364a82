//! `subPath`: one directory or file of a volume instead of all of it.
//!
//! **Invariant.** A container that may write to the volume can replace a path by a link at any
//! time. So the path is resolved beneath the volume once, and the opened descriptor is mounted at a
//! path outside the volume.

use std::{
    fs::{self, File},
    io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    path::{Component, Path, PathBuf},
};

use pod_supervisor::model::Access;
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, chmod, fstat, mkdirat, openat2},
    io::Errno,
    mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount},
};

use crate::Failure;

use super::{Content, FAILED, Volume};

/// The kernel returns `EAGAIN` while directories are renamed.
const MAX_ATTEMPTS: u32 = 32;

/// Mounts that part of the volume at `target` and returns `target`.
pub(crate) fn sub_path(volume: &Volume, part: &str, target: &Path) -> Result<PathBuf, Failure> {
    if volume.content == Content::Device {
        let message = format!("subPath {part:?} of a block volume: use volumeDevices");
        return Err(Failure::new(FAILED, message));
    }
    let failed = |error: io::Error| {
        let tried = format!("find subPath {part:?} in its volume");
        Failure::of(FAILED, &tried, &error)
    };
    let root: OwnedFd = File::open(&volume.path).map_err(failed)?.into();
    let found = match open(&root, Path::new(part)) {
        Err(error)
            if error.kind() == io::ErrorKind::NotFound && volume.access == Access::ReadWrite =>
        {
            make(&root, Path::new(part)).map_err(failed)?
        }
        other => other.map_err(failed)?,
    };
    mount_at(&found, target).map_err(failed)?;
    Ok(target.to_owned())
}

fn open(root: &OwnedFd, part: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..MAX_ATTEMPTS {
        match openat2(root, part, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            other => return Ok(other?),
        }
    }
    Err(Errno::AGAIN.into())
}

/// Makes the missing directories of the path, with the mode of the volume.
fn make(root: &OwnedFd, part: &Path) -> io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(fstat(root)?.st_mode & 0o7777);
    let mut so_far = PathBuf::new();
    let mut parent = root.try_clone()?;
    for component in part.components() {
        let Component::Normal(name) = component else {
            continue;
        };
        so_far.push(name);
        parent = match open(root, &so_far) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match mkdirat(&parent, name, mode) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno.into()),
                }
                let made = open(root, &so_far)?;
                // `mkdirat` applied the umask of this process.
                chmod(format!("/proc/self/fd/{}", made.as_raw_fd()), mode)?;
                made
            }
            other => other?,
        };
    }
    Ok(parent)
}

fn mount_at(found: &OwnedFd, target: &Path) -> io::Result<()> {
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    let is_dir = FileType::from_raw_mode(fstat(found)?.st_mode) == FileType::Directory;
    // An earlier attempt may have left a mount.
    match unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    match fs::symlink_metadata(target) {
        Ok(metadata) if metadata.is_dir() != is_dir => remove(target, &metadata)?,
        _ => {}
    }
    if is_dir {
        fs::create_dir_all(target)?;
    } else {
        File::options()
            .create(true)
            .append(true)
            .open(target)
            .map(drop)?;
    }
    let tree = open_tree(
        found.as_fd(),
        "",
        OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE,
    )?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(move_mount(tree.as_fd(), "", CWD, target, flags)?)
}

fn remove(path: &Path, metadata: &fs::Metadata) -> io::Result<()> {
    if metadata.is_dir() {
        fs::remove_dir(path)
    } else {
        fs::remove_file(path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::volumes::mounts;

    struct Fixture {
        dir: tempfile::TempDir,
        access: Access,
    }

    impl Fixture {
        fn new(access: Access) -> Self {
            let dir = tempfile::Builder::new()
                .prefix("embedded-node-sub-path")
                .tempdir()
                .unwrap();
            let volume = dir.path().join("volume");
            fs::create_dir_all(volume.join("..1")).unwrap();
            fs::set_permissions(&volume, fs::Permissions::from_mode(0o777)).unwrap();
            fs::write(volume.join("..1/key"), "value").unwrap();
            symlink("..1", volume.join("..data")).unwrap();
            symlink("..data/key", volume.join("key")).unwrap();
            symlink("/etc", volume.join("evil")).unwrap();
            Self { dir, access }
        }

        fn sub_path(&self, part: &str) -> Result<PathBuf, Failure> {
            let volume = Volume {
                path: self.dir.path().join("volume"),
                access: self.access,
                content: Content::Files,
            };
            sub_path(&volume, part, &self.dir.path().join("target/0"))
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            mounts::unmount_all(self.dir.path()).unwrap();
        }
    }

    #[test]
    fn sub_path_is_remounted() {
        let fixture = Fixture::new(Access::ReadOnly);
        for part in ["key", "..1", "key"] {
            let found = fixture.sub_path(part).unwrap();
            let file = if found.is_dir() {
                found.join("key")
            } else {
                found
            };
            assert_eq!(fs::read_to_string(file).unwrap(), "value", "{part}");
        }
    }

    #[test]
    fn path_stays_in_its_volume() {
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let fixture = Fixture::new(access);
            for part in ["evil/passwd", "../x", "/etc", "evil/new"] {
                assert!(fixture.sub_path(part).is_err(), "{part}");
            }
        }
        assert!(!Path::new("/etc/new").exists());
    }

    #[test]
    fn missing_directories_are_made_in_writable_volumes() {
        assert!(Fixture::new(Access::ReadOnly).sub_path("a/b").is_err());
        let fixture = Fixture::new(Access::ReadWrite);
        let found = fixture.sub_path("a/b").unwrap();
        fs::write(found.join("file"), "").unwrap();
        let made = fixture.dir.path().join("volume/a/b");
        assert!(made.join("file").exists());
        assert_eq!(
            fs::metadata(made).unwrap().permissions().mode() & 0o777,
            0o777
        );
        let device = Volume {
            path: "/dev/null".into(),
            access: Access::ReadWrite,
            content: Content::Device,
        };
        assert!(sub_path(&device, "a", Path::new("/nowhere")).is_err());
    }
}
