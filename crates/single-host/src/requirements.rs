//! What the host must offer, checked before anything is made.

use std::{net::SocketAddr, path::Path};

use anyhow::{Context, Result, bail, ensure};
use tokio::net::TcpListener;

/// Room for an unpacked launcher image and some guests.
const FREE_BYTES: u64 = 1 << 30;

/// Root, and a kernel that can do what containers need.
pub(crate) fn host() -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "ferrovirt makes containers and networks and needs root: run it with sudo"
    );
    let filesystems =
        std::fs::read_to_string("/proc/filesystems").context("read /proc/filesystems")?;
    let overlay = filesystems.split_whitespace().any(|word| word == "overlay");
    ensure!(
        overlay,
        "the kernel has no overlay file system, which containers need: load it with `modprobe overlay`"
    );
    Ok(())
}

/// Enough room on the disk of the state directory.
pub(crate) fn room(dir: &Path) -> Result<()> {
    let stat = rustix::fs::statvfs(dir).with_context(|| format!("look at {}", dir.display()))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    ensure!(
        free >= FREE_BYTES,
        "the disk of {} has only {} MiB left: free 1 GiB or give another --state-dir",
        dir.display(),
        free >> 20,
    );
    Ok(())
}

/// The API server's port, taken before anything else is done.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener> {
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(listener),
        Err(err) if err.kind() == std::io::ErrorKind::AddrInUse => {
            bail!(
                "--listen {address}: another program listens there; stop it or give another \
                 address, such as --listen {}:{}",
                address.ip(),
                address.port().saturating_add(1),
            )
        }
        Err(err) => Err(err).with_context(|| format!("--listen {address}")),
    }
}
