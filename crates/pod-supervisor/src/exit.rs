//! Exit statuses: of children by waiting, of adopted processes from data that the kernel keeps.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::process::{WaitOptions, WaitStatus, wait};

use crate::status::{EXIT_CODE, stat_field};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) code: i32,
    pub(crate) signal: Option<i32>,
}

impl Exit {
    fn from_status(status: WaitStatus) -> Option<Self> {
        if let Some(code) = status.exit_status() {
            return Some(Self { code, signal: None });
        }
        let signal = status.terminating_signal()?;
        Some(Self {
            code: 128 + signal,
            signal: Some(signal),
        })
    }

    /// Decodes the kernel's encoding: code in the second byte, signal in the first.
    fn from_raw(raw: i32) -> Self {
        match raw & 0x7f {
            0 => Self {
                code: (raw >> 8) & 0xff,
                signal: None,
            },
            signal => Self {
                code: 128 + signal,
                signal: Some(signal),
            },
        }
    }
}

/// Reaps one child that has ended, if there is one.
pub(crate) fn reap_one() -> Option<(i32, Exit)> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                if let Some(exit) = Exit::from_status(status) {
                    return Some((pid.as_raw_nonzero().get(), exit));
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Ok(None) | Err(_) => return None,
        }
    }
}

/// The exit of a process that is not a child, after its pidfd has signalled the end.
pub(crate) fn of_adopted(pid: i32, pidfd: BorrowedFd<'_>) -> Option<Exit> {
    if stat_field(pid, 0).is_some_and(|state| state == "Z") {
        let raw = stat_field(pid, EXIT_CODE)?.parse().ok()?;
        return Some(Exit::from_raw(raw));
    }
    after_reaping(pidfd)
}

/// Since Linux 6.15 a pidfd keeps the exit status of a process that another process reaped.
fn after_reaping(pidfd: BorrowedFd<'_>) -> Option<Exit> {
    const INFO_EXIT: u64 = 1 << 3;
    const GET_INFO: libc::Ioctl = (3 << 30) | (64 << 16) | (0xff << 8) | 0xb;

    #[repr(C)]
    struct Info {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    let mut info = Info {
        mask: INFO_EXIT,
        cgroup: 0,
        ids: [0; 11],
        exit_code: 0,
    };
    // SAFETY: the descriptor is open, `info` has the 64 bytes that the request number declares, and
    // the kernel writes at most these.
    let result = unsafe { libc::ioctl(pidfd.as_raw_fd(), GET_INFO, &raw mut info) };
    (result == 0 && info.mask & INFO_EXIT != 0).then(|| Exit::from_raw(info.exit_code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_status_is_decoded() {
        assert_eq!(
            Exit::from_raw(0x0300),
            Exit {
                code: 3,
                signal: None
            }
        );
        assert_eq!(
            Exit::from_raw(9),
            Exit {
                code: 137,
                signal: Some(9)
            }
        );
        assert_eq!(
            Exit::from_raw(0x8b),
            Exit {
                code: 139,
                signal: Some(11)
            }
        );
    }
}
