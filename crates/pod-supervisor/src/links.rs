//! Brings up the loopback interface of the current network namespace.

use std::{io, mem, os::fd::AsRawFd as _};

use rustix::net::{AddressFamily, SocketType, socket};

/// `SIOCSIFFLAGS`, whose type differs between C libraries.
const SET_FLAGS: libc::Ioctl = 0x8914;

pub(crate) fn loopback_up() -> io::Result<()> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: all bytes zero is a valid interface request.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP).expect("the flag is 1");
    // SAFETY: the socket is open and the request names an interface and its flags.
    match unsafe { libc::ioctl(socket.as_raw_fd(), SET_FLAGS, &raw const request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
