//! Requirements of the host, checked before anything is created.

use std::{net::SocketAddr, path::Path};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::StatVfsMountFlags;
use tokio::net::TcpListener;

use crate::state_dir::StateDir;

/// Enough for an unpacked launcher image and a few guests.
const FREE_BYTES: u64 = 1 << 30;

/// Checks for root and for the kernel features that containers need.
pub(crate) fn host() -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "ferrovirt creates containers and networks and needs root: run it with sudo"
    );
    let filesystems =
        std::fs::read_to_string("/proc/filesystems").context("read /proc/filesystems")?;
    let overlay = filesystems.split_whitespace().any(|name| name == "overlay");
    ensure!(
        overlay,
        "the kernel has no overlay file system, which containers need: load it with `modprobe overlay`"
    );
    Ok(())
}

/// Checks that the file system of the state directory, which may not exist yet, can be written. A kernel
/// makes it read-only when its disk fails.
pub(crate) fn writable(dir: &Path) -> Result<()> {
    let existing = dir.ancestors().find(|dir| dir.is_dir());
    let Some(existing) = existing else {
        return Ok(());
    };
    let stat = rustix::fs::statvfs(existing)
        .with_context(|| format!("read the file system of {}", existing.display()))?;
    ensure!(
        !stat.f_flag.contains(StatVfsMountFlags::RDONLY),
        "the file system of {} is read-only; guests keep running: look for errors of its disk with \
         `dmesg`, mount it for writing, or give another --state-dir",
        dir.display(),
    );
    Ok(())
}

/// Checks that a first start has enough space. A later one needs hardly any: its guests must come back also on a
/// full disk, on which the node then starts nothing new and removes unused images.
pub(crate) fn free_space(state: &StateDir) -> Result<()> {
    let dir = state.root();
    let stat = rustix::fs::statvfs(dir)
        .with_context(|| format!("read the free space of {}", dir.display()))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    ensure!(
        is_enough(free, state.database().exists()),
        "the disk of {} has only {} MiB left: free 1 GiB or give another --state-dir",
        dir.display(),
        free >> 20,
    );
    Ok(())
}

fn is_enough(free: u64, has_database: bool) -> bool {
    has_database || free >= FREE_BYTES
}

/// Opens the API server's port.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener> {
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(listener),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            bail!(
                "--listen {address}: another program listens there; stop it or give another \
                 address, such as --listen {}:{}",
                address.ip(),
                address.port().saturating_add(1),
            )
        }
        Err(error) => Err(error).with_context(|| format!("--listen {address}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_first_start_needs_space() {
        for (free, has_database, expected) in [
            (FREE_BYTES, false, true),
            (FREE_BYTES - 1, false, false),
            (0, false, false),
            (0, true, true),
        ] {
            assert_eq!(
                is_enough(free, has_database),
                expected,
                "{free} {has_database}"
            );
        }
    }
}
