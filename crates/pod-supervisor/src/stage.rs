//! The files of a container in a pod with users of its own.
//!
//! Root in such a pod is an ordinary user of the host, who can neither search the pod's directory nor write files of
//! the host's root. So everything that the container sees is mounted once more, with the owners of files mapped,
//! below a directory that everybody can search. The mounts are in the helper's own mount namespace.

use std::{
    fs, io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::chown,
    },
    path::{Path, PathBuf},
};

use rustix::mount::{MountFlags, mount};

use crate::{
    model::{ContainerSpec, User},
    users::{self, IDS, MountCopy},
};

/// Exists on every host, and nothing in it lasts.
const STAGE: &str = "/dev/shm";

#[derive(Debug, thiserror::Error)]
pub(crate) enum StageError {
    #[error(
        "user or group {id} does not exist in this pod: with `hostUsers: false` they are 0 to {}",
        IDS - 1
    )]
    NoSuchId { id: u32 },
    #[error("find the pod's user namespace")]
    Users {
        #[source]
        source: io::Error,
    },
    #[error(
        "mount {} for a pod with `hostUsers: false`: the kernel or this file system has no mounts with mapped \
         users",
        path.display()
    )]
    Mapped {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("prepare {}", path.display())]
    Prepare {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Mounts the image, the volumes, the devices and the file of the termination message for the users of the pod, whose
/// root is `first`, and puts their new places in place of the old ones. Returns the user namespace.
pub(crate) fn of_own_users(
    spec: &mut ContainerSpec,
    termination_file: &mut PathBuf,
    upper: &Path,
    first: u32,
) -> Result<OwnedFd, StageError> {
    check(&spec.user)?;
    let users = users::of_this_pod().map_err(|source| StageError::Users { source })?;
    let volumes = spec.mounts.iter_mut().map(|mount| &mut mount.source);
    let files = [&mut spec.image_root, termination_file];
    let files = files.into_iter().chain(volumes);
    let devices = spec.devices.iter_mut().map(|device| &mut device.host_path);
    // All before the stage is mounted, which may hide some.
    let mut all = Vec::new();
    for path in files {
        let copied = MountCopy::of(path).and_then(|copy| copy.map_owners(users.as_fd()));
        let copy = copied.map_err(|source| StageError::Mapped {
            path: path.clone(),
            source,
        })?;
        all.push((path, copy));
    }
    for path in devices {
        let copy = MountCopy::of(path).map_err(prepare(path))?;
        all.push((path, copy));
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("tmpfs", STAGE, "tmpfs", flags, c"mode=0711")
        .map_err(|errno| prepare(Path::new(STAGE))(errno.into()))?;
    for (number, (path, copy)) in all.into_iter().enumerate() {
        let at = Path::new(STAGE).join(number.to_string());
        copy.attach(&at).map_err(prepare(&at))?;
        *path = at;
    }
    chown(upper, Some(first), Some(first)).map_err(prepare(upper))?;
    Ok(users)
}

/// A new directory for the root of the container.
pub(crate) fn root() -> Result<PathBuf, StageError> {
    let root = Path::new(STAGE).join("root");
    fs::create_dir(&root).map_err(prepare(&root))?;
    Ok(root)
}

fn check(user: &User) -> Result<(), StageError> {
    let ids = [user.uid, user.gid]
        .into_iter()
        .chain(user.groups.iter().copied());
    match ids.into_iter().find(|id| *id >= IDS) {
        Some(id) => Err(StageError::NoSuchId { id }),
        None => Ok(()),
    }
}

fn prepare(path: &Path) -> impl FnOnce(io::Error) -> StageError {
    let path = path.to_owned();
    move |source| StageError::Prepare { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_are_not_mapped_are_refused() {
        for (uid, gid, groups, refused) in [
            (0, 0, vec![], None),
            (107, 65_535, vec![4000], None),
            (65_536, 0, vec![], Some(65_536)),
            (0, 70_000, vec![], Some(70_000)),
            (0, 0, vec![1, 1 << 30], Some(1 << 30)),
        ] {
            let found = match check(&User { uid, gid, groups }) {
                Err(StageError::NoSuchId { id }) => Some(id),
                _ => None,
            };
            assert_eq!(found, refused);
        }
    }
}
