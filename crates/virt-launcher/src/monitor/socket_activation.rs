//! Handing libvirtd a socket that is already listening.
//!
//! libvirtd takes descriptor 3 if `LISTEN_PID` is its own process ID, which is unknown before the
//! process exists. So process 1 starts this program once more, with the socket as standard input;
//! that process moves the socket to descriptor 3, sets the variable and executes libvirtd.

use std::error::Error;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

use crate::settings::Paths;
use crate::signals;

/// The argument that selects this mode.
pub(crate) const START_LIBVIRTD: &str = "start-libvirtd";
/// An absolute path: libvirtd validates its cache by the time of its own file.
const LIBVIRTD: &str = "/usr/sbin/libvirtd";
const FIRST_PASSED: i32 = 3;

/// The command that executes libvirtd.
pub(crate) fn libvirtd_command(own_program: &Path, paths: &Paths, listener: OwnedFd) -> Command {
    let mut command = Command::new(own_program);
    command
        .arg(START_LIBVIRTD)
        .env_clear()
        .envs(paths.libvirtd_environment())
        .stdin(Stdio::from(listener));
    command
}

/// Executes libvirtd; returns only on failure.
pub(crate) fn start_libvirtd(paths: &Paths) -> Result<ExitCode, Box<dyn Error>> {
    let passed = fcntl_dupfd_cloexec(io::stdin(), FIRST_PASSED)?;
    if passed.as_raw_fd() != FIRST_PASSED {
        return Err("pass the socket to libvirtd: descriptor 3 is in use".into());
    }
    fcntl_setfd(&passed, FdFlags::empty())?;
    // It has to stay open across the exec.
    let _passed = passed.into_raw_fd();
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    signals::unblock()?;
    let failed = Command::new(LIBVIRTD)
        .env_clear()
        .envs(paths.libvirtd_environment())
        .env("LISTEN_FDS", "1")
        .env("LISTEN_FDNAMES", "libvirtd.socket")
        .env("LISTEN_PID", std::process::id().to_string())
        .exec();
    Err(format!("run {LIBVIRTD}: {failed}").into())
}
