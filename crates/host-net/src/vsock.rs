//! Connections to guests of this host over the vsock, which need no network.

use std::{
    io,
    mem::size_of,
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
};
use tokio::{net::UnixStream, time::timeout};

/// The kernel gives up after two seconds; a guest may be slow to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Lower addresses are those of the hypervisor, of the loopback and of the host itself.
const FIRST_GUEST: u32 = 3;

/// Connects to a port of the guest with this address.
pub async fn connect_vsock(address: u32, port: u32) -> io::Result<UnixStream> {
    if address < FIRST_GUEST {
        let message = format!("vsock address {address} is not that of a guest");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::VSOCK, SocketType::STREAM, flags, None)?;
    let is_connecting = match connect(&socket, address, port) {
        Ok(()) => false,
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INPROGRESS) => true,
        Err(error) => return Err(error),
    };
    // Only reads, writes and shutdowns follow, which are the same for streams of all families.
    let stream = UnixStream::from_std(socket.into())?;
    if is_connecting {
        let connected = timeout(TIMEOUT, connected(&stream)).await;
        connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    }
    Ok(stream)
}

fn connect(socket: &OwnedFd, address: u32, port: u32) -> io::Result<()> {
    let to = libc::sockaddr_vm {
        svm_family: AddressFamily::VSOCK.as_raw(),
        svm_reserved1: 0,
        svm_port: port,
        svm_cid: address,
        svm_zero: [0; 4],
    };
    let length = u32::try_from(size_of::<libc::sockaddr_vm>()).map_err(io::Error::other)?;
    // SAFETY: the address is initialised, is as long as stated, and outlives the call.
    let done = unsafe { libc::connect(socket.as_raw_fd(), std::ptr::from_ref(&to).cast(), length) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Waits until the connection is made.
async fn connected(stream: &UnixStream) -> io::Result<()> {
    stream.writable().await?;
    stream.take_error()?.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn host_itself_is_no_guest() {
        for address in [0, 1, 2] {
            let error = connect_vsock(address, 22).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{address}");
        }
    }

    /// Also where the kernel has no vsock.
    #[tokio::test]
    async fn guest_that_does_not_exist_is_an_error() {
        connect_vsock(0x7fff_fff0, 22).await.unwrap_err();
    }
}
