//! Sockets in a directory whose path may be longer than an address of a socket can be.

use std::{io, os::fd::AsRawFd as _, path::Path};

use rustix::fs::{Mode, OFlags};
use tokio::net::{UnixListener, UnixStream};

/// The kubelet's own socket.
pub const KUBELET_SOCKET: &str = "kubelet.sock";

/// Listens at `name` in `dir`, in place of a socket that an earlier process left there. Only root
/// may connect.
pub fn bind(dir: &Path, name: &str) -> io::Result<UnixListener> {
    let held = open(dir)?;
    match rustix::fs::unlinkat(&held, name, rustix::fs::AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(err) => return Err(err.into()),
    }
    let listener = UnixListener::bind(short(&held, name)?)?;
    rustix::fs::chmodat(
        &held,
        name,
        Mode::RUSR | Mode::WUSR,
        rustix::fs::AtFlags::empty(),
    )?;
    Ok(listener)
}

/// Connects to the socket `name` in `dir`.
pub async fn connect(dir: &Path, name: &str) -> io::Result<UnixStream> {
    let held = open(dir)?;
    UnixStream::connect(short(&held, name)?).await
}

fn open(dir: &Path) -> io::Result<rustix::fd::OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, Mode::empty())?)
}

fn short(dir: &rustix::fd::OwnedFd, name: &str) -> io::Result<String> {
    if name.is_empty() || name.contains('/') || name == "." || name == ".." {
        let message = format!("{name:?} is no name of a socket in this directory");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))
}
