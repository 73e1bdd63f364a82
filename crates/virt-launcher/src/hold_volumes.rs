//! The mode of a pod that only mounts volumes, for the guest of another pod.
//!
//! virt-handler finds the pod's processes by the socket, and takes the volumes from their mount namespace.

use std::fs;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Listens and keeps the pod's volumes mounted until the pod is deleted.
pub(crate) fn run(socket: &Path) -> io::Result<()> {
    // Left behind by a container that was restarted.
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    loop {
        // A connection is only a question for the peer's identity.
        drop(listener.accept()?);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn socket_of_an_earlier_process_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("hp.sock");
        drop(UnixListener::bind(&socket).unwrap());
        assert!(UnixStream::connect(&socket).is_err());
        let path = socket.clone();
        std::thread::spawn(move || run(&path));
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while UnixStream::connect(&socket).is_err() {
            assert!(std::time::Instant::now() < deadline, "nobody listens");
            std::thread::yield_now();
        }
    }
}
