//! Signals as a pollable descriptor, and the reset of signal handling for started programs.

use std::{
    io, mem,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    ptr,
};

use error_chain::error_chain;
use rustix::process::{Pid, Signal, kill_process};

use crate::report::report;

/// A descriptor for SIGCHLD and the signals that request termination.
pub(crate) fn descriptor() -> io::Result<OwnedFd> {
    let mut set = empty_set();
    for signal in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: the set is initialised and the signal number is valid.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    // SAFETY: the set is initialised; no old set is requested.
    if unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the set is initialised; -1 requests a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The next signal that arrived, if any.
pub(crate) fn next(descriptor: &OwnedFd) -> Option<i32> {
    // SAFETY: all bytes zero is a valid value of this plain structure.
    let mut info: libc::signalfd_siginfo = unsafe { mem::zeroed() };
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: `size` is the length of the buffer.
    let got = unsafe { libc::read(descriptor.as_raw_fd(), (&raw mut info).cast(), size) };
    (usize::try_from(got) == Ok(size)).then(|| info.ssi_signo.cast_signed())
}

/// Undoes the changes of the supervisor and of Rust's runtime, before a program is executed.
pub(crate) fn reset() -> io::Result<()> {
    let set = empty_set();
    // SAFETY: the set is initialised; no old set is requested.
    if unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the default action needs no handler.
    if unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Kills a process for which there is no pidfd.
pub(crate) fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid)
        && let Err(error) = kill_process(pid, Signal::KILL)
    {
        let number = pid.as_raw_nonzero();
        report(&format!("failed to kill {number}: {}", error_chain(&error)));
    }
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: all bytes zero is a valid value of this plain structure.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: the pointer is to the set above.
    unsafe { libc::sigemptyset(&raw mut set) };
    set
}
