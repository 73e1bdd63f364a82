//! The other processes of a launcher's container: process 1, and its children.

use std::io;

use rustix::{
    fs::{CWD, Mode, OFlags},
    process::{Pid, Resource, Rlimit, prlimit},
};

use super::Peer;
use super::peer::{READ_LIMIT, read_bounded};

/// Priority up to which the guest's user may make its threads realtime threads.
const REALTIME_PRIORITY: u64 = 1;

/// A right that processes of the container lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    /// Lock any amount of memory.
    LockMemory,
    /// Make threads realtime threads of the lowest priority.
    Realtime,
}

impl Peer {
    /// The CPUs that the container may use, as the kernel writes them. Those of process 1, since the
    /// launcher may have limited itself to some of them.
    pub(crate) fn allowed_cpus(&self) -> io::Result<String> {
        let status = read_file(self.first_process()?, "status")?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let line = line.ok_or_else(|| wrong("its status names no CPUs"))?;
        Ok(line.trim().to_owned())
    }

    /// The variables that the container was started with: those of process 1, which the pod's processes control.
    pub(crate) fn variables(&self) -> io::Result<Vec<(String, String)>> {
        variables(&read_file(self.first_process()?, "environ")?)
    }

    /// Gives a right to all processes of the container, which pass it on to those that they start.
    pub(crate) fn grant(&self, right: Right) -> io::Result<()> {
        for pid in [self.first_process()?].into_iter().chain(self.children()?) {
            match right.grant_to(pid) {
                // It ended meanwhile; its successor inherits the right from process 1.
                Err(rustix::io::Errno::SRCH) => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// The children of process 1.
    pub(super) fn children(&self) -> io::Result<Vec<Pid>> {
        let first = self.first_process()?;
        let path = format!("task/{}/children", first.as_raw_nonzero());
        let children = read_file(first, &path)?;
        let children = children.split_whitespace().filter_map(|pid| {
            let pid: i32 = pid.parse().ok()?;
            Pid::from_raw(pid)
        });
        Ok(children.collect())
    }

    /// The launcher's parent, which must be in the same container.
    fn first_process(&self) -> io::Result<Pid> {
        let stat = self.read("stat")?;
        let parent = parent_of(&stat).ok_or_else(|| wrong("its parent is unknown"))?;
        if read_file(parent, "cgroup")? == self.read("cgroup")? {
            Ok(parent)
        } else {
            Err(wrong("its parent is not in its container"))
        }
    }
}

impl Right {
    fn grant_to(self, pid: Pid) -> rustix::io::Result<()> {
        let (resource, most) = match self {
            Self::LockMemory => (Resource::Memlock, None),
            Self::Realtime => (Resource::Rtprio, Some(REALTIME_PRIORITY)),
        };
        let limit = Rlimit {
            current: most,
            maximum: most,
        };
        prlimit(Some(pid), resource, limit).map(|_before| ())
    }
}

/// Every variable, or none of them.
fn variables(environ: &str) -> io::Result<Vec<(String, String)>> {
    if u64::try_from(environ.len()).is_ok_and(|length| length >= READ_LIMIT) {
        return Err(wrong("its variables are too long"));
    }
    let all = environ.split('\0').filter_map(|one| one.split_once('='));
    Ok(all
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}

/// The second field behind the name, which may contain anything.
fn parent_of(stat: &str) -> Option<Pid> {
    let (_, fields) = stat.rsplit_once(')')?;
    let parent: i32 = fields.split_whitespace().nth(1)?.parse().ok()?;
    // `from_raw` takes no negative number.
    (parent > 0).then(|| Pid::from_raw(parent)).flatten()
}

pub(super) fn read_file(pid: Pid, name: &str) -> io::Result<String> {
    let path = format!("/proc/{}/{name}", pid.as_raw_nonzero());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    read_bounded(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

fn wrong(what: &'static str) -> io::Error {
    let message = format!("inspect the launcher's process: {what}");
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_is_read_behind_any_name() {
        let parent = |stat| parent_of(stat).map(|pid| pid.as_raw_nonzero().get());
        assert_eq!(parent("7 (virt-launcher) S 5 7 7 0"), Some(5));
        assert_eq!(parent("7 (a) S 9) S 5 7"), Some(5));
        for bad in [
            "",
            "7 (a",
            "7 (a) S",
            "7 (a) S 0",
            "7 (a) S x",
            "7 (a) S -4",
        ] {
            assert_eq!(parent(bad), None, "{bad}");
        }
    }

    #[test]
    fn variables_are_read_completely_or_not_at_all() {
        let read = variables("A=b\0PATH=/x=y\0odd\0E=\0").unwrap();
        let pairs: Vec<_> = read
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        assert_eq!(pairs, [("A", "b"), ("PATH", "/x=y"), ("E", "")]);
        let limit = usize::try_from(READ_LIMIT).unwrap();
        variables(&"A".repeat(limit)).unwrap_err();
    }

    #[test]
    fn own_parent_is_in_another_container_or_readable() {
        let own = rustix::process::getpid();
        let status = read_file(own, "status").unwrap();
        assert!(status.contains("Cpus_allowed_list:"), "{status}");
    }
}
