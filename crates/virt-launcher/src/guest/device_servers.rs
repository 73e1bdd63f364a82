//! Programs in the pod that serve one device of the guest each, and outlive this launcher.
//!
//! Such a process carries the name of its device, so that the next launcher finds it without a record.

#![expect(unsafe_code, reason = "no safe wrapper waits for a descriptor of ours")]

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A process, also after its number was given to another one.
#[derive(Debug)]
pub(super) struct Helper(OwnedFd);

impl Helper {
    pub(super) fn open(pid: Pid) -> io::Result<Self> {
        Ok(Self(pidfd_open(pid, PidfdFlags::NONBLOCK)?))
    }

    /// Completes when the process has ended.
    pub(super) async fn ended(self) {
        // SAFETY: the descriptor is owned, valid and never replaced.
        let registered = unsafe { AsyncFd::register_with_interest(self.0, Interest::READABLE) };
        let ended = match registered {
            Ok(process) => process.readable().await.map(drop),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "failed to watch a process of the pod");
            std::future::pending::<()>().await;
        }
    }
}

/// The name of the process of a program that serves that device. It looks like a path with the program
/// at its end, because passt becomes another program if its name contains `pasta`.
pub(super) fn process_name(program: &str, device: &str) -> String {
    format!("{program}@{device}/{program}")
}

/// The process of that program that serves that device.
pub(super) fn find(program: &str, device: &str) -> Option<Helper> {
    let mut all = running(program).into_iter();
    all.find(|(name, _)| name == device).map(|(_, found)| found)
}

pub(super) fn kill_all(program: &str) {
    for (name, Helper(process)) in running(program) {
        if let Err(error) = pidfd_send_signal(&process, Signal::KILL) {
            tracing::debug!(program, name, %error, "the process has ended already");
        }
    }
}

/// All processes of a program, with the names of their devices.
fn running(program: &str) -> Vec<(String, Helper)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let (prefix, suffix) = (format!("{program}@"), format!("/{program}"));
    let of = |entry: fs::DirEntry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        // Opened first, so that the name is that of this process or of none.
        let process = Helper::open(pid).ok()?;
        let arguments = fs::read(entry.path().join("cmdline")).ok()?;
        let first = arguments.split(|byte| *byte == 0).next()?;
        let name = std::str::from_utf8(first).ok()?.strip_prefix(&prefix)?;
        let name = name.strip_suffix(&suffix)?;
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        is_of_this_namespace(&status).then(|| (name.to_owned(), process))
    };
    entries.flatten().filter_map(of).collect()
}

/// Whether the process has one number only. Where this program runs outside of a pod, as in tests, it
/// also sees the processes of pods, which have a second number there.
fn is_of_this_namespace(status: &str) -> bool {
    let mut lines = status.lines();
    let numbers = lines.find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_none_or(|numbers| numbers.split_whitespace().count() == 1)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::process::Command;

    use super::*;

    #[tokio::test]
    async fn process_is_found_by_its_device_and_its_end_is_noticed() {
        // Unique, since tests run in parallel processes of one host.
        let device = format!("test-{}", std::process::id());
        let mut command = Command::new("/bin/sh");
        command.arg0(process_name("helper-test", &device));
        command.args(["-c", "echo; read x"]);
        command.stdin(std::process::Stdio::piped());
        command.stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        // For a moment, a new process has no name.
        child.stdout.take().unwrap().read_u8().await.unwrap();
        let found = find("helper-test", &device).unwrap();
        assert!(find("helper-test", "another").is_none());
        drop(child.stdin.take());
        found.ended().await;
        child.wait().await.unwrap();
        assert!(find("helper-test", &device).is_none());
    }

    #[test]
    fn processes_of_inner_namespaces_are_of_others() {
        assert!(is_of_this_namespace("Name:\tpasst\nNSpid:\t12\n"));
        assert!(!is_of_this_namespace("Name:\tpasst\nNSpid:\t4711\t12\n"));
        assert!(is_of_this_namespace("Name:\tpasst\n"));
    }
}
