//! Connections to and from guests of this host over the vsock, which need no network.

use std::{
    fs::File,
    io,
    mem::size_of,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, listen, socket_with},
};
use tokio::{io::unix::AsyncFd, net::UnixStream, time::timeout};

/// The kernel gives up after two seconds; a guest may be slow to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Lower addresses are those of the hypervisor, of the loopback and of the host itself.
const FIRST_GUEST: u32 = 3;
/// The address of the host itself.
const HOST: u32 = 2;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;
/// Opening it loads the module of the kernel.
const DEVICE: &str = "/dev/vhost-vsock";

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

/// Accepts connections of guests to a port of the host.
#[derive(Debug)]
pub struct VsockListener {
    socket: AsyncFd<OwnedFd>,
}

impl VsockListener {
    /// Fails on a host that offers guests no vsock.
    pub async fn bind(port: u32) -> io::Result<Self> {
        let opened = tokio::task::spawn_blocking(|| File::open(DEVICE).map(drop)).await;
        opened.map_err(io::Error::other)??;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::VSOCK, SocketType::STREAM, flags, None)?;
        bind(&socket, HOST, port)?;
        listen(&socket, BACKLOG)?;
        // SAFETY: an `OwnedFd` has the same descriptor as long as it lives, and keeps it open.
        let socket = unsafe { AsyncFd::register(socket) }?;
        Ok(Self { socket })
    }

    /// The next connection, with the address of its guest.
    pub async fn accept(&self) -> io::Result<(UnixStream, u32)> {
        loop {
            let mut ready = self.socket.readable().await?;
            if let Ok(accepted) = ready.try_io(|socket| accept(socket.get_ref())) {
                let (socket, address) = accepted?;
                return Ok((UnixStream::from_std(socket.into())?, address));
            }
        }
    }
}

fn accept(listener: &OwnedFd) -> io::Result<(OwnedFd, u32)> {
    let mut from = address_of(0, 0);
    let mut length = address_length()?;
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the address and its length are initialised and outlive the call, which writes no more than that length.
    let accepted: RawFd = unsafe {
        libc::accept4(
            listener.as_raw_fd(),
            std::ptr::from_mut(&mut from).cast(),
            &raw mut length,
            flags,
        )
    };
    if accepted < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it, and nothing else knows it.
    let socket = unsafe { OwnedFd::from_raw_fd(accepted) };
    Ok((socket, from.svm_cid))
}

fn bind(socket: &OwnedFd, address: u32, port: u32) -> io::Result<()> {
    let (at, length) = (address_of(address, port), address_length()?);
    // SAFETY: the address is initialised, is as long as stated, and outlives the call.
    let done = unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&at).cast(), length) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn address_of(address: u32, port: u32) -> libc::sockaddr_vm {
    libc::sockaddr_vm {
        svm_family: AddressFamily::VSOCK.as_raw(),
        svm_reserved1: 0,
        svm_port: port,
        svm_cid: address,
        svm_zero: [0; 4],
    }
}

fn address_length() -> io::Result<u32> {
    u32::try_from(size_of::<libc::sockaddr_vm>()).map_err(io::Error::other)
}

fn connect(socket: &OwnedFd, address: u32, port: u32) -> io::Result<()> {
    let (to, length) = (address_of(address, port), address_length()?);
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

    /// Where the kernel has a vsock for guests, a port is taken once; elsewhere, not at all.
    #[tokio::test]
    async fn port_of_the_host_is_taken_once() {
        let port = 0x7fff_0000 + std::process::id();
        let Ok(first) = VsockListener::bind(port).await else {
            return;
        };
        let error = VsockListener::bind(port).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        VsockListener::bind(port).await.unwrap();
    }
}
