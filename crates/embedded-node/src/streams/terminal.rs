//! The terminal of a running container, by the socket of the process that keeps it.

use std::{fs::File, io, os::fd::AsRawFd as _, path::Path};

use pod_supervisor::{
    layout,
    terminal::{Frame, MAX_FRAME, frame},
};
use tokio::{
    io::AsyncWriteExt as _,
    net::{UnixStream, unix::OwnedWriteHalf},
};

/// Whether that run of a container was given a terminal.
pub(super) fn is_there(pod_dir: &Path, (container, attempt): (&str, u32)) -> bool {
    let socket = pod_dir.join(layout::terminal_socket(container, attempt));
    socket.exists()
}

/// Connects to the terminal of that run of a container.
pub(super) async fn connect(
    pod_dir: &Path,
    (container, attempt): (&str, u32),
) -> io::Result<UnixStream> {
    let socket = pod_dir.join(layout::terminal_socket(container, attempt));
    let (Some(directory), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(io::Error::other("no socket"));
    };
    // A socket address holds about 100 bytes; the path of a state directory may be longer.
    let directory = File::open(directory)?;
    let near = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string());
    UnixStream::connect(near.join(name)).await
}

/// Sends input of any length.
pub(super) async fn send_input(to: &mut OwnedWriteHalf, bytes: &[u8]) -> io::Result<()> {
    for part in bytes.chunks(MAX_FRAME) {
        to.write_all(&frame(Frame::Input, part)).await?;
    }
    Ok(())
}
