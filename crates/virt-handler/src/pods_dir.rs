//! Safe access to files in a pod's volumes.
//!
//! A volume's content is controlled by the tenant: below the volume's directory every path is
//! resolved by `openat2` beneath that directory and without symbolic links, so that the tenant cannot
//! redirect an access. The directories above belong to the kubelet (or `embedded-node`) and are
//! trusted.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use tokio::net::{UnixListener, UnixStream};

/// A pod's UID that is safe as a path component.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodUid(String);

/// A pod UID that is not safe as a path component.
#[derive(Debug, thiserror::Error)]
#[error("malformed pod UID {0:?}")]
pub struct MalformedUid(String);

impl PodUid {
    pub fn parse(uid: &str) -> Result<Self, MalformedUid> {
        let plain = uid
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if plain && !uid.is_empty() && uid.len() <= 64 {
            Ok(Self(uid.to_owned()))
        } else {
            Err(MalformedUid(uid.to_owned()))
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The kubelet's directory of pods.
#[derive(Debug, Clone)]
pub struct PodsDir {
    root: PathBuf,
}

impl PodsDir {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The path of an `emptyDir` of the pod, whether it exists or not.
    pub fn empty_dir(&self, pod: &PodUid, volume: &str) -> PathBuf {
        self.root
            .join(pod.as_str())
            .join("volumes/kubernetes.io~empty-dir")
            .join(volume)
    }

    /// Opens a volume for safe access below it.
    pub fn open(&self, pod: &PodUid, volume: &str) -> io::Result<VolumeDir> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(CWD, self.empty_dir(pod, volume), flags, Mode::empty())?;
        Ok(VolumeDir { dir })
    }
}

/// A volume with untrusted content.
#[derive(Debug)]
pub struct VolumeDir {
    dir: OwnedFd,
}

const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

impl VolumeDir {
    /// Connects to a unix socket in the volume.
    pub async fn connect(&self, path: &str) -> io::Result<UnixStream> {
        let socket = self.open_beneath(path, OFlags::PATH)?;
        let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&socket)?.st_mode);
        if kind != rustix::fs::FileType::Socket {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{path} is not a socket"),
            ));
        }
        // The link in /proc refers to the opened file, whatever is at its path now.
        UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd())).await
    }

    /// Listens at a unix socket in the volume, which belongs to `owner`. Whatever had that name is
    /// removed.
    pub fn listen(&self, name: &str, owner: u32) -> io::Result<UnixListener> {
        let dir = &self.dir;
        match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        // Binding creates the name, and follows no link.
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))?;
        let (uid, gid) = owner_of(owner);
        rustix::fs::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(listener)
    }

    /// Creates a file in the volume, owned by `owner` (who may replace it), with its parent
    /// directories. An existing file is left unchanged.
    pub fn place(&self, path: &str, content: &[u8], owner: u32) -> io::Result<()> {
        let path = Path::new(path);
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = self.make_dirs(path.parent().unwrap_or(Path::new("")), owner)?;
        let parent = parent.as_ref().unwrap_or(&self.dir);
        if rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Ok(());
        }
        let mut part = name.to_owned();
        part.push(".part");
        let _missing = rustix::fs::unlinkat(parent, &part, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat2(parent, &part, flags, Mode::from_raw_mode(0o600), CONFINED)?;
        let mut file = std::fs::File::from(file);
        io::Write::write_all(&mut file, content)?;
        let (uid, gid) = owner_of(owner);
        rustix::fs::fchown(&file, uid, gid)?;
        rustix::fs::renameat(parent, &part, parent, name)?;
        Ok(())
    }

    /// Creates a directory in the volume with its parents, owned by `owner`.
    pub fn make_dir(&self, path: &str, owner: u32) -> io::Result<()> {
        self.make_dirs(Path::new(path), owner).map(drop)
    }

    fn make_dirs(&self, path: &Path, owner: u32) -> io::Result<Option<OwnedFd>> {
        let mut current: Option<OwnedFd> = None;
        for step in path.components() {
            let parent = current.as_ref().unwrap_or(&self.dir);
            let created = rustix::fs::mkdirat(parent, step.as_os_str(), Mode::from_raw_mode(0o770));
            match created {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let next =
                rustix::fs::openat2(parent, step.as_os_str(), flags, Mode::empty(), CONFINED)?;
            if created.is_ok() {
                let (uid, gid) = owner_of(owner);
                rustix::fs::fchown(&next, uid, gid)?;
            }
            current = Some(next);
        }
        Ok(current)
    }

    fn open_beneath(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        Ok(rustix::fs::openat2(
            &self.dir,
            path,
            flags,
            Mode::empty(),
            CONFINED,
        )?)
    }
}

fn owner_of(id: u32) -> (Option<rustix::fs::Uid>, Option<rustix::fs::Gid>) {
    (
        Some(rustix::fs::Uid::from_raw(id)),
        Some(rustix::fs::Gid::from_raw(id)),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn volume() -> (tempfile::TempDir, PodsDir, PodUid) {
        let root = tempfile::tempdir().unwrap();
        let pods = PodsDir::new(root.path());
        let uid = PodUid::parse("2ab3").unwrap();
        std::fs::create_dir_all(pods.empty_dir(&uid, "private")).unwrap();
        (root, pods, uid)
    }

    #[test]
    fn uid_that_is_not_a_path_component_is_refused() {
        for bad in ["", "../x", "a/b", ".", "x\0y"] {
            assert!(PodUid::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn existing_file_is_left_unchanged() {
        let (_root, pods, uid) = volume();
        let dir = pods.open(&uid, "private").unwrap();
        dir.place("a/b/file", b"first", 107).unwrap();
        dir.place("a/b/file", b"second", 107).unwrap();
        let placed = pods.empty_dir(&uid, "private").join("a/b/file");
        assert_eq!(std::fs::read(&placed).unwrap(), b"first");
        // libvirtd must be able to rewrite a cache that does not match its image.
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&placed.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn symlink_in_place_of_a_directory_is_not_followed() {
        let (root, pods, uid) = volume();
        let outside = root.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        symlink(&outside, pods.empty_dir(&uid, "private").join("a")).unwrap();
        let dir = pods.open(&uid, "private").unwrap();
        assert!(dir.place("a/file", b"x", 107).is_err());
        assert!(std::fs::read_dir(outside).unwrap().next().is_none());
    }

    /// The class of CVE-2026-13218.
    #[test]
    fn symlink_at_the_temporary_file_is_replaced() {
        let (root, pods, uid) = volume();
        let victim = root.path().join("victim");
        std::fs::write(&victim, b"precious").unwrap();
        symlink(&victim, pods.empty_dir(&uid, "private").join("file.part")).unwrap();
        pods.open(&uid, "private")
            .unwrap()
            .place("file", b"x", 107)
            .unwrap();
        assert_eq!(std::fs::read(victim).unwrap(), b"precious");
    }

    /// The classes of CVE-2025-64437, CVE-2026-7374 (the console's socket) and CVE-2026-13201 (that of
    /// notifications): every socket of a pod is opened by this function.
    #[tokio::test]
    async fn socket_behind_a_symlink_is_not_connected_to() {
        let (root, pods, uid) = volume();
        let elsewhere = root.path().join("sock");
        let _listener = std::os::unix::net::UnixListener::bind(&elsewhere).unwrap();
        symlink(&elsewhere, pods.empty_dir(&uid, "private").join("sock")).unwrap();
        let dir = pods.open(&uid, "private").unwrap();
        assert!(dir.connect("sock").await.is_err());
    }

    #[tokio::test]
    async fn socket_with_a_long_path_is_reachable() {
        let (_root, pods, uid) = volume();
        let deep = pods.empty_dir(&uid, "private").join("d".repeat(60));
        std::fs::create_dir(&deep).unwrap();
        std::env::current_dir().unwrap();
        let dir = rustix::fs::open(&deep, OFlags::PATH, Mode::empty()).unwrap();
        let short = format!("/proc/self/fd/{}/sock", dir.as_raw_fd());
        let _listener = std::os::unix::net::UnixListener::bind(short).unwrap();
        let volume = pods.open(&uid, "private").unwrap();
        volume
            .connect(&format!("{}/sock", "d".repeat(60)))
            .await
            .unwrap();
    }
}
