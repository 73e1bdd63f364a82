//! Devices of the node in the pod: which ones its kubelet allocated, and access to their nodes.
//!
//! A container runtime makes the nodes for root. The guest's user gets those in the container's own `/dev`,
//! never a node that is mounted from elsewhere, which other pods or the host may use.

use std::{ffi::CStr, io, os::fd::OwnedFd, sync::Arc};

use model::{AllocatedDevices, Binding, Supported};
use rustix::{
    fs::{Dir, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

use super::{
    PrepareError,
    claimed_devices::{self, ClaimedDevice},
};
use crate::{
    launcher::Peer,
    volumes::{READ_AND_WRITE, give, has_rights},
};

const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);
/// Directories below the container's `/dev` with nodes of devices that guests drive themselves.
const DIRECTORIES: [&str; 2] = ["vfio", "bus/usb"];
/// How deep they are: `bus/usb/001/004`.
const DEPTH: usize = 2;
/// The most entries of one of them.
const MAX_ENTRIES: usize = 1024;

/// The devices of the pod. Gives the guest's user access to them. Idempotent.
pub(super) async fn hand_over(
    guest: &Supported<'_>,
    peer: Arc<Peer>,
) -> Result<AllocatedDevices, PrepareError> {
    let wanted = Wanted::of(guest);
    if !wanted.passthrough && !wanted.macvtaps {
        return Ok(AllocatedDevices::default());
    }
    // Files of the pod, whose file system may be slow.
    let work = move || panics::catch(|| wanted.hand_over(&peer));
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(handed_over)) => handed_over,
        Ok(Err(panicked)) => Err(PrepareError::Devices(io::Error::other(panicked))),
        Err(error) => Err(PrepareError::Devices(io::Error::other(error))),
    }
}

/// What a guest needs of the devices of its pod.
#[derive(Debug)]
struct Wanted {
    /// Those of network bindings.
    macvtaps: bool,
    /// Any device of the host.
    passthrough: bool,
    /// Those that the kubelet names in the pod's variables.
    variables: bool,
    claimed: Vec<ClaimedDevice>,
}

impl Wanted {
    fn of(guest: &Supported<'_>) -> Self {
        let mut interfaces = guest.plugged_interfaces();
        Self {
            macvtaps: interfaces.any(|one| matches!(one.binding, Binding::Plugin(_))),
            passthrough: guest.has_passthrough(),
            variables: !guest.host_devices().is_empty(),
            claimed: ClaimedDevice::of(guest),
        }
    }

    fn hand_over(&self, peer: &Peer) -> Result<AllocatedDevices, PrepareError> {
        let root = peer.root().map_err(PrepareError::Devices)?;
        if self.macvtaps {
            give_macvtaps(&root).map_err(PrepareError::Devices)?;
        }
        if !self.passthrough {
            return Ok(AllocatedDevices::default());
        }
        give_nodes(&root).map_err(PrepareError::Devices)?;
        let allocated = if self.variables {
            let variables = peer.variables().map_err(PrepareError::Devices)?;
            let variables = variables.iter();
            AllocatedDevices::of(variables.map(|(name, value)| (name.as_str(), value.as_str())))?
        } else {
            AllocatedDevices::default()
        };
        Ok(claimed_devices::add(allocated, &self.claimed, &root)?)
    }
}

fn give_nodes(root: &OwnedFd) -> io::Result<()> {
    let dev = directory(root, "dev")?;
    let own = rustix::fs::fstat(&dev)?.st_dev;
    for name in DIRECTORIES {
        match directory(&dev, name) {
            Ok(below) => give_below(&below, own, DEPTH)?,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Gives the nodes of macvtaps, which the device plugin of a network binding added: `tap` with a number.
fn give_macvtaps(root: &OwnedFd) -> io::Result<()> {
    let dev = directory(root, "dev")?;
    let own = rustix::fs::fstat(&dev)?.st_dev;
    for entry in Dir::read_from(&dev)?.take(MAX_ENTRIES) {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_bytes().strip_prefix(b"tap").unwrap_or_default();
        if !number.is_empty() && number.iter().all(u8::is_ascii_digit) {
            give_node(&dev, name, own)?;
        }
    }
    Ok(())
}

/// Gives the nodes in a directory and in those below it.
fn give_below(parent: &OwnedFd, own: u64, depth: usize) -> io::Result<()> {
    let entries = Dir::read_from(parent)?;
    for entry in entries.take(MAX_ENTRIES) {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if entry.file_type() == FileType::Directory {
            if depth > 1 {
                give_below(&directory(parent, name)?, own, depth - 1)?;
            }
            continue;
        }
        give_node(parent, name, own)?;
    }
    Ok(())
}

fn give_node(parent: &OwnedFd, name: &CStr, own: u64) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let node = rustix::fs::openat2(parent, name, flags, Mode::empty(), CONFINED)?;
    let stat = rustix::fs::fstat(&node)?;
    let is_node = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    if is_node && stat.st_dev == own && !has_rights(&stat, READ_AND_WRITE) {
        give(&node, &stat)?;
    }
    Ok(())
}

fn directory(parent: &OwnedFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(parent, name, flags, Mode::empty(), CONFINED)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

    use rustix::fs::{CWD, makedev, mknodat};

    use super::*;

    fn open(path: &Path) -> OwnedFd {
        rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    /// Needs root, as other tests of pods do.
    fn make_node(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mode = Mode::from_raw_mode(mode);
        // The numbers of /dev/null.
        mknodat(CWD, path, FileType::CharacterDevice, mode, makedev(1, 3)).unwrap();
    }

    #[test]
    fn nodes_of_the_container_are_given_to_the_guests_user() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join("dev").join(name);
        let private = ["vfio/12", "bus/usb/001/004"];
        for name in private {
            make_node(&at(name), 0o600);
        }
        make_node(&at("null"), 0o600);
        make_node(&at("vfio/vfio"), 0o666);
        rustix::fs::chmod(at("vfio/vfio"), Mode::from_raw_mode(0o666)).unwrap();
        fs::write(at("vfio/file"), "").unwrap();
        std::os::unix::fs::symlink("../null", at("vfio/link")).unwrap();
        for _twice in 0..2 {
            give_nodes(&open(root.path())).unwrap();
        }
        let owner = |name: &str| fs::symlink_metadata(at(name)).unwrap().uid();
        for name in private {
            assert_eq!(owner(name), kubevirt_api::RUNTIME_USER, "{name}");
        }
        for name in ["null", "vfio/vfio", "vfio/file", "vfio/link"] {
            assert_eq!(owner(name), 0, "{name}");
        }
    }

    #[test]
    fn macvtaps_of_the_container_are_given_to_the_guests_user() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join("dev").join(name);
        for name in ["tap7", "tap", "tape", "vhost-net"] {
            make_node(&at(name), 0o600);
        }
        std::os::unix::fs::symlink("vhost-net", at("tap8")).unwrap();
        for _twice in 0..2 {
            give_macvtaps(&open(root.path())).unwrap();
        }
        let owner = |name: &str| fs::symlink_metadata(at(name)).unwrap().uid();
        assert_eq!(owner("tap7"), kubevirt_api::RUNTIME_USER);
        for name in ["tap", "tape", "vhost-net", "tap8"] {
            assert_eq!(owner(name), 0, "{name}");
        }
    }

    #[test]
    fn nodes_of_another_file_system_keep_their_owner() {
        let root = tempfile::tempdir().unwrap();
        let node = root.path().join("dev/vfio/12");
        make_node(&node, 0o600);
        let below = open(&root.path().join("dev/vfio"));
        let other = rustix::fs::fstat(&below).unwrap().st_dev + 1;
        give_below(&below, other, DEPTH).unwrap();
        assert_eq!(fs::metadata(&node).unwrap().uid(), 0);
    }

    #[test]
    fn pod_without_such_nodes_has_nothing_to_give() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("dev")).unwrap();
        give_nodes(&open(root.path())).unwrap();
        let hidden = root.path().join("elsewhere");
        fs::create_dir(&hidden).unwrap();
        std::os::unix::fs::symlink("../elsewhere", root.path().join("dev/vfio")).unwrap();
        give_nodes(&open(root.path())).unwrap_err();
    }
}
