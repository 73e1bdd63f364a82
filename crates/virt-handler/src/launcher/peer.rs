//! Authentication of the process at the other end of a launcher's socket.

use std::{
    io::{self, Read},
    os::fd::OwnedFd,
    path::Path,
};

use rustix::fs::{CWD, FsWord, Mode, OFlags, ResolveFlags};
use tokio::net::UnixStream;

use crate::pods_dir::PodUid;

/// A process that belongs to a pod. It is identified by an open directory in `/proc`, so that a reused
/// process id cannot be mistaken for it.
#[derive(Debug)]
pub struct Peer {
    proc: OwnedFd,
}

/// Why a peer was rejected.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error("the launcher's socket is held by a process of user {uid}")]
    WrongUser { uid: u32 },
    #[error("the launcher's socket is held by a process outside pod {pod}")]
    WrongPod { pod: String },
    #[error("inspect the launcher's process")]
    Proc(#[from] io::Error),
}

/// Limit on the size of a file read from a pod.
pub(super) const READ_LIMIT: u64 = 64 << 10;

/// Magic numbers of the cgroup file systems, version 1 and 2.
const CGROUP: FsWord = 0x0027_e0eb;
const CGROUP2: FsWord = 0x6367_7270;

impl Peer {
    /// Identifies the process that listens on `stream`.
    pub fn of(stream: &UnixStream, pod: &PodUid) -> Result<Self, PeerError> {
        let credentials = rustix::net::sockopt::socket_peercred(stream).map_err(io::Error::from)?;
        let uid = credentials.uid.as_raw();
        if uid != kubevirt_api::RUNTIME_USER && uid != 0 {
            return Err(PeerError::WrongUser { uid });
        }
        let path = format!("/proc/{}", credentials.pid.as_raw_nonzero());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(io::Error::from)?;
        let peer = Self { proc };
        if in_pod(&peer.read("cgroup")?, pod) {
            Ok(peer)
        } else {
            Err(PeerError::WrongPod {
                pod: pod.as_str().to_owned(),
            })
        }
    }

    #[cfg(test)]
    pub(crate) fn this_process() -> Self {
        let proc = std::fs::File::open("/proc/self").unwrap().into();
        Self { proc }
    }

    /// The network namespace of the pod.
    pub fn network_namespace(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(
            &self.proc,
            "ns/net",
            flags,
            Mode::empty(),
        )?)
    }

    /// The mount namespace of the container.
    pub fn mount_namespace(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(
            &self.proc,
            "ns/mnt",
            flags,
            Mode::empty(),
        )?)
    }

    /// The root directory of the container. Everything below it is controlled by the tenant.
    pub fn root(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(&self.proc, "root", flags, Mode::empty())?;
        Ok(root)
    }

    /// The pod's `/etc/resolv.conf`, resolved within the container's root, with a size limit.
    pub fn resolv_conf(&self) -> io::Result<String> {
        let root = self.root()?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let file = rustix::fs::openat2(&root, "etc/resolv.conf", flags, Mode::empty(), resolve)?;
        read_bounded(file)
    }

    /// Whether the kernel's OOM killer has killed a process of the launcher's container. False if
    /// the counters cannot be read.
    pub fn was_out_of_memory(&self) -> bool {
        let cgroups = self.read("cgroup").unwrap_or_default();
        let inside = self.root().map_or(0, |root| kills_in_container(&root));
        out_of_memory_kills(&cgroups, Path::new("/sys/fs/cgroup")) + inside > 0
    }

    pub(super) fn read(&self, name: &str) -> io::Result<String> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        read_bounded(rustix::fs::openat(&self.proc, name, flags, Mode::empty())?)
    }
}

/// Whether the process at the other end of `stream` belongs to the pod.
pub(crate) fn check_peer(stream: &UnixStream, pod: &PodUid) -> Result<(), PeerError> {
    Peer::of(stream, pod).map(drop)
}

pub(super) fn read_bounded(file: OwnedFd) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::from(file)
        .take(READ_LIMIT)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// OOM kills counted by the cgroups in `/proc/<pid>/cgroup`, of both cgroup versions.
fn out_of_memory_kills(cgroups: &str, root: &Path) -> u64 {
    let files = cgroups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?);
        let group = group.trim_start_matches('/');
        // A group outside of this cgroup namespace has no meaningful path.
        if group.split('/').any(|step| step == "..") {
            return None;
        }
        match controllers {
            "" => Some(root.join(group).join("memory.events")),
            all if all.split(',').any(|name| name == "memory") => {
                Some(root.join("memory").join(group).join("memory.oom_control"))
            }
            _ => None,
        }
    });
    files
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .filter_map(|text| kills(&text))
        .sum()
}

/// The same counters from within the container, where the runtime mounts the container's own group.
/// Needed when virt-handler itself runs in a pod and has access to its own groups only.
fn kills_in_container(root: &OwnedFd) -> u64 {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    let read = |name: &str| {
        let file = rustix::fs::openat2(root, name, flags, Mode::empty(), resolve).ok()?;
        // Only a file of the cgroup file system is trusted: others are the tenant's.
        let found = rustix::fs::fstatfs(&file).ok()?.f_type;
        let from_kernel = [CGROUP, CGROUP2].contains(&found);
        kills(&read_bounded(file).ok().filter(|_| from_kernel)?)
    };
    let files = [
        "sys/fs/cgroup/memory.events",
        "sys/fs/cgroup/memory/memory.oom_control",
    ];
    files.into_iter().filter_map(read).sum()
}

fn kills(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("oom_kill "))?;
    line.trim().parse().ok()
}

/// Whether a line of `/proc/<pid>/cgroup` is within the pod's cgroup. The systemd driver writes the
/// UID with underscores.
fn in_pod(cgroups: &str, pod: &PodUid) -> bool {
    let dashed = format!("pod{}", pod.as_str());
    let underscored = dashed.replace('-', "_");
    cgroups.lines().any(|line| {
        line.split('/').any(|step| {
            let step = step.strip_suffix(".slice").unwrap_or(step);
            let step = step
                .rsplit_once("-pod")
                .map_or(step, |(_, tail)| &step[step.len() - tail.len() - 3..]);
            step == dashed || step == underscored
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_is_identified_by_its_cgroup_of_both_drivers() {
        let uid = PodUid::parse("1a-2b").unwrap();
        for inside in [
            "4:memory:/kubepods/burstable/pod1a-2b/abc\n",
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1a_2b.slice/x\n",
            "0::/kubepods.slice/kubepods-pod1a_2b.slice\n",
        ] {
            assert!(in_pod(inside, &uid), "{inside}");
        }
        for outside in [
            "0::/\n",
            "4:memory:/kubepods/pod1a-2bc/x\n",
            "0::/user/notpod1a-2b\n",
            "",
        ] {
            assert!(!in_pod(outside, &uid), "{outside}");
        }
    }

    #[test]
    fn oom_kills_are_counted_in_both_cgroup_versions() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "memory/a/poda/memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        );
        write(
            "b/poda/memory.events",
            "low 0\noom 4\noom_kill 3\noom_group_kill 0\n",
        );
        let inside = rustix::fs::open(root.path(), OFlags::PATH, Mode::empty()).unwrap();
        write("sys/fs/cgroup/memory.events", "oom_kill 3\n");
        assert_eq!(kills_in_container(&inside), 0, "a file of the tenant");
        for (cgroups, kills) in [
            ("4:cpu,memory:/a/poda\n0::/\n", 2),
            ("0::/b/poda\n", 3),
            ("0::/../b/poda\n", 0),
            ("4:cpu:/a/poda\n", 0),
            ("nonsense\n", 0),
        ] {
            assert_eq!(
                out_of_memory_kills(cgroups, root.path()),
                kills,
                "{cgroups}"
            );
        }
    }

    /// The class of CVE-2026-13208.
    #[tokio::test]
    async fn listener_outside_the_pod_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sock");
        let _listener = tokio::net::UnixListener::bind(&path).unwrap();
        let stream = UnixStream::connect(&path).await.unwrap();
        let error = Peer::of(&stream, &PodUid::parse("1a-2b").unwrap()).unwrap_err();
        assert!(matches!(error, PeerError::WrongPod { .. }), "{error}");
    }
}
