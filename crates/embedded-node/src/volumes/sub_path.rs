//! `subPath` of volumes whose content only the node writes. In a volume that a container may write
//! to, a path can be exchanged for a link between check and mount, so there it is refused.

use std::{
    fs::{self, File},
    os::fd::AsRawFd as _,
    path::PathBuf,
};

use pod_supervisor::model::Access;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use crate::Failure;

use super::{FAILED, Volume};

pub(crate) fn sub_path(volume: &Volume, part: &str) -> Result<PathBuf, Failure> {
    if volume.access == Access::ReadWrite {
        let message = format!("subPath {part:?} of a writable volume is not offered on this node");
        return Err(Failure::new(FAILED, message));
    }
    let failed = |error: std::io::Error| {
        Failure::of(
            FAILED,
            &format!("find subPath {part:?} in its volume"),
            &error,
        )
    };
    let root = File::open(&volume.path).map_err(failed)?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let found = openat2(&root, part, flags, Mode::empty(), resolve)
        .map_err(|errno| failed(errno.into()))?;
    fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn path_never_leaves_its_volume() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("..1")).unwrap();
        fs::write(dir.path().join("..1/key"), "").unwrap();
        symlink("..1", dir.path().join("..data")).unwrap();
        symlink("..data/key", dir.path().join("key")).unwrap();
        symlink("/etc/passwd", dir.path().join("evil")).unwrap();
        let volume = |access| Volume {
            path: dir.path().to_owned(),
            access,
        };
        let found = sub_path(&volume(Access::ReadOnly), "key").unwrap();
        assert_eq!(found, fs::canonicalize(dir.path().join("..1/key")).unwrap());
        for part in ["evil", "../x", "missing"] {
            assert!(sub_path(&volume(Access::ReadOnly), part).is_err(), "{part}");
        }
        assert!(sub_path(&volume(Access::ReadWrite), "key").is_err());
    }
}
