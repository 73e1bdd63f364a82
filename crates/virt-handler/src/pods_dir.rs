//! Opening what lies in a pod's volumes, safely.
//!
//! A volume's content belongs to the tenant: below the volume's own directory every step is taken
//! with `openat2`, beneath that directory, and never over a symbolic link, so that nothing placed
//! there can lead us elsewhere. The directories above belong to the kubelet (or `embedded-node`)
//! and are trusted.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use tokio::net::UnixStream;

/// UID of a pod, as Kubernetes writes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodUid(String);

/// A pod UID that could lead out of the pods' directory.
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

    /// Where an `emptyDir` of that pod is, whether it exists yet or not.
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

/// A volume whose content is not to be trusted.
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
                format!("{path} is no socket"),
            ));
        }
        // The link in /proc leads to the very file that was opened, whatever is at its name now.
        UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd())).await
    }

    /// Places a file in the volume, owned by `owner` (who may replace it), replacing nothing.
    /// Directories on the way are made. A file that is there already stays as it is.
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
        let _gone = rustix::fs::unlinkat(parent, &part, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat2(parent, &part, flags, Mode::from_raw_mode(0o600), CONFINED)?;
        let mut file = std::fs::File::from(file);
        io::Write::write_all(&mut file, content)?;
        let (uid, gid) = owner_of(owner);
        rustix::fs::fchown(&file, uid, gid)?;
        rustix::fs::renameat(parent, &part, parent, name)?;
        Ok(())
    }

    /// Makes a directory in the volume, and those on the way, owned by `owner`.
    pub fn make_dir(&self, path: &str, owner: u32) -> io::Result<()> {
        self.make_dirs(Path::new(path), owner).map(drop)
    }

    fn make_dirs(&self, path: &Path, owner: u32) -> io::Result<Option<OwnedFd>> {
        let mut at: Option<OwnedFd> = None;
        for step in path.components() {
            let parent = at.as_ref().unwrap_or(&self.dir);
            let made = rustix::fs::mkdirat(parent, step.as_os_str(), Mode::from_raw_mode(0o770));
            match made {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(err) => return Err(err.into()),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let next =
                rustix::fs::openat2(parent, step.as_os_str(), flags, Mode::empty(), CONFINED)?;
            if made.is_ok() {
                let (uid, gid) = owner_of(owner);
                rustix::fs::fchown(&next, uid, gid)?;
            }
            at = Some(next);
        }
        Ok(at)
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
    fn a_uid_that_leads_elsewhere_is_refused() {
        for bad in ["", "../x", "a/b", ".", "x\0y"] {
            assert!(PodUid::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_file_is_placed_once_and_then_left_alone() {
        let (_root, pods, uid) = volume();
        let dir = pods.open(&uid, "private").unwrap();
        dir.place("a/b/file", b"first", 107).unwrap();
        dir.place("a/b/file", b"second", 107).unwrap();
        let placed = pods.empty_dir(&uid, "private").join("a/b/file");
        assert_eq!(std::fs::read(&placed).unwrap(), b"first");
        // libvirtd writes its cache anew when it does not fit the image, and must be able to.
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&placed.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_directory_that_the_tenant_made_a_link_is_not_followed() {
        let (root, pods, uid) = volume();
        let outside = root.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        symlink(&outside, pods.empty_dir(&uid, "private").join("a")).unwrap();
        let dir = pods.open(&uid, "private").unwrap();
        assert!(dir.place("a/file", b"x", 107).is_err());
        assert!(std::fs::read_dir(outside).unwrap().next().is_none());
    }

    #[test]
    fn a_link_left_where_we_write_first_is_replaced_not_followed() {
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

    #[tokio::test]
    async fn a_socket_behind_a_link_is_not_connected_to() {
        let (root, pods, uid) = volume();
        let elsewhere = root.path().join("sock");
        let _listener = std::os::unix::net::UnixListener::bind(&elsewhere).unwrap();
        symlink(&elsewhere, pods.empty_dir(&uid, "private").join("sock")).unwrap();
        let dir = pods.open(&uid, "private").unwrap();
        assert!(dir.connect("sock").await.is_err());
    }

    #[tokio::test]
    async fn a_socket_in_the_volume_is_reached_however_long_its_path() {
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
