//! Signals as a descriptor to poll; and a clean slate for what we start.

use std::{
    io, mem,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    ptr,
};

/// SIGCHLD and the signals that ask for an end, readable as a descriptor.
pub(crate) fn descriptor() -> io::Result<OwnedFd> {
    let mut set = empty_set();
    for signal in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: the set is initialised and the signal number is valid.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    // SAFETY: the set is initialised; no old set is asked for.
    if unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the set is initialised; -1 asks for a new descriptor.
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
    // SAFETY: the buffer is as long as said.
    let got = unsafe { libc::read(descriptor.as_raw_fd(), (&raw mut info).cast(), size) };
    (usize::try_from(got) == Ok(size)).then(|| info.ssi_signo.cast_signed())
}

/// Undoes what the supervisor and Rust's runtime changed, for the program we become.
pub(crate) fn reset() -> io::Result<()> {
    let set = empty_set();
    // SAFETY: the set is initialised; no old set is asked for.
    if unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the default action needs no handler.
    if unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: all bytes zero is a valid value of this plain structure.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: the pointer is to the set above.
    unsafe { libc::sigemptyset(&raw mut set) };
    set
}
