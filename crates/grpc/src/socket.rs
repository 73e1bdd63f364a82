//! Unix sockets in a directory whose path may exceed the length limit of a socket address.

use std::{io, os::fd::AsRawFd as _, path::Path};

use rustix::fs::{Mode, OFlags};
use tokio::net::{UnixListener, UnixStream};

/// Listens at `name` in `dir`, replacing a socket left by an earlier process. Only its owner may connect.
pub fn bind(dir: &Path, name: &str) -> io::Result<UnixListener> {
    let directory = open(dir)?;
    match rustix::fs::unlinkat(&directory, name, rustix::fs::AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let listener = UnixListener::bind(short_path(&directory, name)?)?;
    rustix::fs::chmodat(
        &directory,
        name,
        Mode::RUSR | Mode::WUSR,
        rustix::fs::AtFlags::empty(),
    )?;
    Ok(listener)
}

/// Connects to the socket `name` in `dir`.
pub async fn connect(dir: &Path, name: &str) -> io::Result<UnixStream> {
    let directory = open(dir)?;
    UnixStream::connect(short_path(&directory, name)?).await
}

fn open(dir: &Path) -> io::Result<rustix::fd::OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, Mode::empty())?)
}

fn short_path(dir: &rustix::fd::OwnedFd, name: &str) -> io::Result<String> {
    if name.is_empty() || name.contains('/') || name == "." || name == ".." {
        let message = format!("{name:?} is not a valid socket name");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))
}
