//! libvirtd's listening socket, which outlives libvirtd.

use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// The name under which `virsh` and other tools look for a socket of libvirt's QEMU driver, as in
/// pods of `KubeVirt`.
const DRIVER_SOCKET: &str = "virtqemud-sock";

/// Listens at that path, and makes the same socket available under the driver's name beside it.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    remove(path)?;
    let listener = UnixListener::bind(path)?;
    // libvirtd does not authenticate clients: the socket's mode is the only protection.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    let driver = path.with_file_name(DRIVER_SOCKET);
    remove(&driver)?;
    // Relative, so that it also holds where the directory is mounted elsewhere.
    symlink(path.file_name().unwrap_or_default(), driver)?;
    Ok(listener)
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn both_names_lead_to_the_listener_also_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("libvirt/libvirt-sock");
        for _ in 0..2 {
            let listener = listen(&path).unwrap();
            for name in ["libvirt-sock", "virtqemud-sock"] {
                let _stream = UnixStream::connect(path.with_file_name(name)).unwrap();
                let _accepted = listener.accept().unwrap();
            }
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
