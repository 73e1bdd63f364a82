//! Waiting for signals without a handler.
//!
//! Process 1 blocks the signals it handles and takes them one by one. Children inherit the mask:
//! signals stay pending until the child is ready and calls [`unblock`], so none is lost between a
//! start and the installation of a handler.

#![expect(
    unsafe_code,
    reason = "no safe wrapper covers signal masks and waiting for signals"
)]

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// The signals that process 1 acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    ChildEnded,
    /// The pod is asked to terminate.
    Terminate,
}

const HANDLED: [libc::c_int; 4] = [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGQUIT];

/// From now on handled signals wait for [`next`].
pub(crate) fn block() -> io::Result<()> {
    change(libc::SIG_BLOCK)
}

/// Handled signals act as usual again.
pub(crate) fn unblock() -> io::Result<()> {
    change(libc::SIG_UNBLOCK)
}

/// The next handled signal, or `None` after `timeout`.
pub(crate) fn next(timeout: Duration) -> Option<Signal> {
    let set = handled();
    let limit = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
    };
    // SAFETY: both pointers are to live values, and a null pointer for the details is allowed.
    let number =
        unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const limit) };
    match number {
        libc::SIGCHLD => Some(Signal::ChildEnded),
        libc::SIGTERM | libc::SIGINT | libc::SIGQUIT => Some(Signal::Terminate),
        _ => None,
    }
}

fn change(how: libc::c_int) -> io::Result<()> {
    let set = handled();
    // SAFETY: `set` is a live, initialised set, and a null pointer for the old mask is allowed.
    let code = unsafe { libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) };
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(code))
    }
}

fn handled() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the pointer is to memory for a set, which the call initialises.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: initialised by the line before.
    let mut set = unsafe { set.assume_init() };
    for signal in HANDLED {
        // SAFETY: `set` is initialised, and every number in the table is a signal.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}
