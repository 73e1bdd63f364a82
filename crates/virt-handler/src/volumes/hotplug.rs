//! Volumes that a running guest gets from another pod: the attachment pod mounts them, and a copy of
//! each mount is moved into the launcher pod.
//!
//! Both pods are the tenant's. A mount is copied only from the mount namespace of a process in the
//! attachment pod that virt-controller has published, and only if it is the mount of a volume there; it
//! is moved only onto a directory in the launcher's own mount namespace. Every path is resolved from
//! the root of the container without following links, so a pod can only redirect to what it has.
//!
//! **Invariant**: namespaces are entered on a thread that ends right after. A volume is unmounted without
//! force: it stays as long as QEMU has it open.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use domain_xml::{Provisioning, VolumeFacts, VolumeMode};
use launcher_channel::{
    BACKUP_DRAFT, BACKUP_MANIFEST, BACKUP_SOCKET, DUMP_SUFFIX, SAVED_SUFFIX, backup_file,
};
use model::paths;
use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags},
    io::Errno,
    mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount},
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe},
};
use tokio::sync::oneshot;

use super::{
    blocks,
    inside::{self, Existing, Use},
};
use crate::launcher::Peer;

/// Within the container's root, following its symbolic links: `/var/run` is one in many images.
const IN_ROOT: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);
const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// How many files of a volume are looked at: a tenant may make any number.
const MAX_ENTRIES: usize = 4096;

/// How the guest uses a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// A missing image is created.
    Write,
}

/// The volumes in a launcher pod that came from other pods.
#[derive(Debug)]
pub(crate) struct Plugs {
    directory: OwnedFd,
    namespace: OwnedFd,
}

impl Plugs {
    pub(crate) fn of(launcher: &Peer) -> io::Result<Self> {
        let root = launcher.root()?;
        let path = paths::HOTPLUG_DISKS.trim_start_matches('/');
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            directory: rustix::fs::openat2(&root, path, flags, Mode::empty(), IN_ROOT)?,
            namespace: launcher.mount_namespace()?,
        })
    }

    pub(crate) fn has(&self, volume: &str) -> io::Result<bool> {
        match self.open(volume) {
            Ok(opened) => is_mount(&opened),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Moves a copy of a mount of the attachment pod here, unless the volume is here already.
    pub(crate) async fn mount(&self, attachment: &Peer, volume: &str) -> io::Result<()> {
        if self.has(volume)? {
            return Ok(());
        }
        let source = open_attached(&attachment.root()?, volume)?;
        let from = attachment.mount_namespace()?;
        match rustix::fs::mkdirat(&self.directory, volume, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let target = self.open(volume)?;
        let to = self.namespace.try_clone()?;
        on_own_thread(move || {
            enter(&from)?;
            let flags = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_EMPTY_PATH;
            let copy = open_tree(&source, "", flags)?;
            enter(&to)?;
            let flags =
                MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
            Ok(move_mount(&copy, "", &target, "", flags)?)
        })
        .await
    }

    /// Gives the guest's user the image of a mounted volume, and returns facts about it.
    pub(crate) fn hand_over(
        &self,
        volume: &str,
        access: Access,
        provisioning: Provisioning,
    ) -> io::Result<VolumeFacts> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            rustix::fs::openat2(&self.directory, volume, flags, Mode::empty(), CONFINED)?;
        let wanted = match access {
            Access::Read => Use::Read,
            Access::Write => Use::Create,
        };
        let image = paths::CLAIM_IMAGE;
        inside::give_image(&directory, image, wanted, Existing::Give)?;
        Ok(VolumeFacts {
            mode: VolumeMode::Filesystem,
            direct_io: inside::direct_io(&directory, image),
            blocks: blocks::of_files(&directory),
            provisioning,
            allocation: inside::allocation(&directory, image),
        })
    }

    /// Makes room for a memory dump, and an empty file for it where the launcher may not make one.
    pub(crate) fn prepare_dump(&self, volume: &str, file: &str) -> io::Result<()> {
        self.remove_dumps(volume, file)?;
        let directory = self.open_to_read(volume)?;
        inside::give_image(&directory, file, Use::Create, Existing::Give)
    }

    /// Removes all memory dumps and saved states of a volume but this one.
    pub(crate) fn remove_dumps(&self, volume: &str, kept: &str) -> io::Result<()> {
        let directory = self.open_to_read(volume)?;
        let entries = Dir::read_from(&directory)?.take(MAX_ENTRIES);
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let is_dump = [DUMP_SUFFIX, SAVED_SUFFIX]
                .iter()
                .any(|suffix| name.ends_with(suffix.as_bytes()));
            if is_dump && name != kept.as_bytes() {
                match rustix::fs::unlinkat(&directory, entry.file_name(), AtFlags::empty()) {
                    // A directory is no dump.
                    Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        Ok(())
    }

    /// Makes the directory of a backup where the launcher may not make one.
    pub(crate) fn prepare_backup(&self, volume: &str, name: &str) -> io::Result<()> {
        let directory = self.open_to_read(volume)?;
        inside::give_directory(&directory, name)
    }

    /// Removes the files of a backup that was not completed, and its directory unless others have put files
    /// there.
    pub(crate) fn remove_backup(&self, volume: &str, name: &str) -> io::Result<()> {
        let parent = self.open_to_read(volume)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match rustix::fs::openat2(&parent, name, flags, Mode::empty(), CONFINED) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        remove_file(&directory, BACKUP_MANIFEST)?;
        let suffix = backup_file("");
        for entry in Dir::read_from(&directory)?.take(MAX_ENTRIES) {
            let entry = entry?;
            let file = entry.file_name();
            let is_own = file.to_bytes().ends_with(suffix.as_bytes())
                || [BACKUP_DRAFT, BACKUP_SOCKET].contains(&file.to_string_lossy().as_ref());
            if is_own {
                remove_file(&directory, file)?;
            }
        }
        match rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn open_to_read(&self, volume: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat2(&self.directory, volume, flags, Mode::empty(), CONFINED)?;
        if !is_mount(&opened)? {
            return Err(wrong("the volume is not mounted in the launcher pod"));
        }
        Ok(opened)
    }

    /// Unmounts a volume, if it is here. Fails while a process has it open. `held` is dropped when the thread
    /// ends that unmounts it, which may hang with the storage.
    pub(crate) async fn unmount(&self, volume: &str, held: impl Send + 'static) -> io::Result<()> {
        if self.has(volume)? {
            let (directory, to) = (self.directory.try_clone()?, self.namespace.try_clone()?);
            let name = volume.to_owned();
            on_own_thread(move || {
                let _held = held;
                enter(&to)?;
                rustix::process::fchdir(&directory)?;
                Ok(unmount(name, UnmountFlags::NOFOLLOW)?)
            })
            .await?;
        }
        match rustix::fs::unlinkat(&self.directory, volume, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn open(&self, volume: &str) -> io::Result<OwnedFd> {
        open_directory(&self.directory, volume)
    }
}

/// A directory is no file of ours.
fn remove_file(directory: &OwnedFd, name: impl rustix::path::Arg) -> io::Result<()> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The mount of a volume in an attachment pod.
fn open_attached(root: &OwnedFd, volume: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let all = paths::ATTACHED_VOLUMES.trim_start_matches('/');
    let all = rustix::fs::openat2(root, all, flags, Mode::empty(), CONFINED)?;
    let opened = open_directory(&all, volume)?;
    if is_mount(&opened)? {
        Ok(opened)
    } else {
        Err(wrong("the attachment pod does not mount the volume"))
    }
}

fn open_directory(parent: &OwnedFd, volume: &str) -> io::Result<OwnedFd> {
    if volume.is_empty() || volume.contains('/') || volume.starts_with('.') {
        return Err(wrong("the name of the volume is not a file name"));
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(parent, volume, flags, Mode::empty(), CONFINED)?;
    Ok(opened)
}

/// Whether something is mounted exactly there.
fn is_mount(opened: &OwnedFd) -> io::Result<bool> {
    // The server of a network file system, which may not answer, is not asked.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(opened, "", flags, StatxFlags::TYPE)?;
    if !found
        .stx_attributes_mask
        .contains(StatxAttributes::MOUNT_ROOT)
    {
        return Err(wrong("the kernel does not tell mounts from directories"));
    }
    Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

fn enter(namespace: &OwnedFd) -> io::Result<()> {
    let kind = Some(LinkNameSpaceType::Mount);
    Ok(move_into_link_name_space(namespace.as_fd(), kind)?)
}

/// Runs the closure on a thread whose root and working directory are its own.
async fn on_own_thread<F>(work: F) -> io::Result<()>
where
    F: FnOnce() -> io::Result<()> + Send + 'static,
{
    let (sender, result) = oneshot::channel();
    let isolated = move || {
        unshare_file_system()?;
        work()
    };
    std::thread::Builder::new()
        .name("mountns".to_owned())
        .spawn(move || {
            if sender.send(panics::catch_io(isolated)).is_err() {
                tracing::debug!("the caller stopped waiting for work in a mount namespace");
            }
        })?;
    result
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

#[expect(unsafe_code, reason = "the thread gets a root directory of its own")]
fn unshare_file_system() -> io::Result<()> {
    // SAFETY: an own root and working directory do not affect memory safety, and no descriptor is
    // closed.
    Ok(unsafe { unshare_unsafe(UnshareFlags::FS) }?)
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

    use rustix::mount::{MountFlags, mount};

    use super::*;

    fn open(path: &Path) -> OwnedFd {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        rustix::fs::open(path, flags, Mode::empty()).unwrap()
    }

    struct Pod {
        root: tempfile::TempDir,
    }

    impl Pod {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let volumes = root.path().join(paths::ATTACHED_VOLUMES.trim_matches('/'));
            fs::create_dir_all(volumes.join("data")).unwrap();
            Self { root }
        }

        fn volumes(&self) -> std::path::PathBuf {
            self.root
                .path()
                .join(paths::ATTACHED_VOLUMES.trim_matches('/'))
        }
    }

    /// The class of CVE-2026-13218: the pod chooses what is at the path of its volume.
    #[test]
    fn only_the_mount_of_a_volume_is_taken() {
        let pod = Pod::new();
        let root = open(pod.root.path());
        let opened = open_attached(&root, "data").unwrap_err();
        assert!(opened.to_string().contains("does not mount"), "{opened}");
        symlink("/proc", pod.volumes().join("link")).unwrap();
        for name in ["link", "..", "data/..", "../..", "", "missing"] {
            assert!(open_attached(&root, name).is_err(), "{name}");
        }
    }

    #[tokio::test]
    async fn mount_is_moved_and_taken_back() {
        if !rustix::process::getuid().is_root() {
            return;
        }
        let pod = Pod::new();
        let source = pod.volumes().join("data");
        mount("test", &source, "tmpfs", MountFlags::empty(), None).unwrap();
        fs::write(source.join("disk.img"), "content").unwrap();
        let launcher = tempfile::tempdir().unwrap();
        let plugs = Plugs {
            directory: open(launcher.path()),
            namespace: open_namespace(),
        };
        assert!(!plugs.has("data").unwrap());
        let target = launcher.path().join("data");
        let attached = open_attached(&open(pod.root.path()), "data").unwrap();
        fs::create_dir(&target).unwrap();
        let to = open(&target);
        let (from, here) = (open_namespace(), open_namespace());
        on_own_thread(move || {
            enter(&from)?;
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::AT_EMPTY_PATH;
            let copy = open_tree(&attached, "", flags)?;
            enter(&here)?;
            let flags =
                MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
            Ok(move_mount(&copy, "", &to, "", flags)?)
        })
        .await
        .unwrap();
        assert!(plugs.has("data").unwrap());
        assert_eq!(fs::read(target.join("disk.img")).unwrap(), b"content");
        // The source may go.
        unmount(&source, UnmountFlags::empty()).unwrap();
        // The launcher may not create files there.
        fs::set_permissions(&target, fs::Permissions::from_mode(0o755)).unwrap();
        let half = target.join("half.saved");
        fs::write(&half, "half").unwrap();
        let other = "old.memory.dump";
        fs::write(target.join(other), "old").unwrap();
        fs::create_dir(target.join("directory.memory.dump")).unwrap();
        plugs.prepare_dump("data", "new.memory.dump").unwrap();
        let new = fs::metadata(target.join("new.memory.dump")).unwrap();
        assert_eq!((new.len(), new.uid()), (0, kubevirt_api::RUNTIME_USER));
        assert!(!target.join(other).exists() && !half.exists());
        assert!(target.join("disk.img").exists());
        plugs.remove_dumps("data", "").unwrap();
        assert!(!target.join("new.memory.dump").exists());
        check_backup(&plugs, &target);
        let busy = fs::File::open(target.join("disk.img")).unwrap();
        assert!(plugs.unmount("data", ()).await.is_err());
        drop(busy);
        plugs.unmount("data", ()).await.unwrap();
        plugs.unmount("data", ()).await.unwrap();
        assert!(!target.exists());
    }

    fn check_backup(plugs: &Plugs, target: &Path) {
        let directory = target.join("b");
        for _ in 0..2 {
            plugs.prepare_backup("data", "b").unwrap();
        }
        assert_eq!(
            fs::metadata(&directory).unwrap().uid(),
            kubevirt_api::RUNTIME_USER
        );
        let files = [BACKUP_MANIFEST, BACKUP_SOCKET, "root.qcow2", "mine"];
        for file in files {
            fs::write(directory.join(file), "x").unwrap();
        }
        plugs.remove_backup("data", "b").unwrap();
        let left: Vec<_> = fs::read_dir(&directory).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        fs::remove_file(directory.join("mine")).unwrap();
        for _ in 0..2 {
            plugs.remove_backup("data", "b").unwrap();
            assert!(!directory.exists());
        }
        // A link leads nowhere.
        symlink("/etc", &directory).unwrap();
        assert!(plugs.prepare_backup("data", "b").is_err());
        assert!(plugs.remove_backup("data", "b").is_err());
        fs::remove_file(&directory).unwrap();
    }

    fn open_namespace() -> OwnedFd {
        fs::File::open("/proc/self/ns/mnt").unwrap().into()
    }
}
