//! The server's tap: sends and receives frames on the bridge.

#![expect(unsafe_code, reason = "tap devices have no safe wrappers")]

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::{fd::AsRawFd as _, unix::fs::OpenOptionsExt as _},
};

use tokio::io::{Interest, unix::AsyncFd};

use super::{
    frame::{ICMP, UDP},
    settings::Mac,
};

const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const TUNATTACHFILTER: libc::Ioctl = 0x4010_54d5;

const IFF_TAP: i16 = 0x0002;
const IFF_NO_PI: i16 = 0x1000;

/// `struct ifreq` as TUNSETIFF reads it.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: i16,
    rest: [u8; 22],
}

/// A tap that exists, made for the user of this process.
#[derive(Debug)]
pub(super) struct Tap {
    device: AsyncFd<File>,
}

impl Tap {
    /// Opens it for frames of this client that a server may have to answer. The kernel drops others, so that they cost
    /// nothing here.
    pub(super) fn open(name: &str, client: Mac) -> io::Result<Self> {
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")?;
        let mut request = Request {
            name: [0; 16],
            flags: IFF_TAP | IFF_NO_PI,
            rest: [0; 22],
        };
        // The last byte stays zero.
        if name.is_empty() || name.len() >= request.name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in request.name.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        call(&device, TUNSETIFF, &mut request)?;
        let mut steps = filter(client);
        let mut program = libc::sock_fprog {
            len: u16::try_from(steps.len()).map_err(io::Error::other)?,
            filter: steps.as_mut_ptr(),
        };
        call(&device, TUNATTACHFILTER, &mut program)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        // SAFETY: the file owns its descriptor, which stays open with the same number until the file is dropped.
        let device = unsafe { AsyncFd::register_with_interest(device, interest) }?;
        Ok(Self { device })
    }

    /// Returns the length of the frame; a longer one than the buffer is truncated.
    pub(super) async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.device
            .async_io(Interest::READABLE, |mut device| device.read(buffer))
            .await
    }

    pub(super) async fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.device
            .async_io(Interest::WRITABLE, |mut device| device.write(frame))
            .await
            .map(drop)
    }
}

fn call<T>(device: &File, number: libc::Ioctl, argument: &mut T) -> io::Result<()> {
    // SAFETY: both calls read, and one writes, a structure whose layout `T` has; what it points to and the
    // reference are valid for the call.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), number, std::ptr::from_mut(argument)) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// A program for the kernel that passes frames from this address with a packet of IPv6, of ICMP or UDP.
fn filter(client: Mac) -> Vec<libc::sock_filter> {
    const WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
    const BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, k: u32, skip: (u8, u8)| libc::sock_filter {
        code: u16::try_from(code).unwrap_or(u16::MAX),
        jt: skip.0,
        jf: skip.1,
        k,
    };
    let part = |at: usize| u32::from(u16::from_be_bytes([client[at], client[at + 1]]));
    vec![
        step(WORD, 6, (0, 0)),
        step(EQUAL, part(0) << 16 | part(2), (0, 8)),
        step(HALF, 10, (0, 0)),
        step(EQUAL, part(4), (0, 6)),
        step(HALF, 12, (0, 0)),
        step(EQUAL, 0x86dd, (0, 4)),
        step(BYTE, 20, (0, 0)),
        step(EQUAL, ICMP.into(), (1, 0)),
        step(EQUAL, UDP.into(), (0, 1)),
        step(RETURN, u32::MAX, (0, 0)),
        step(RETURN, 0, (0, 0)),
    ]
}
