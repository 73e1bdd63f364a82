//! Persistent tap devices for an unprivileged owner.
//!
//! The device becomes persistent in the last step: after an earlier crash the kernel removes it with
//! its descriptor, so a device that exists is complete.

use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::AsRawFd as _,
};

use net_plan::Tap;

use crate::{
    LinkKind, Net, NetError,
    link::{Settings, check_name, of_kind},
};

const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const TUNSETPERSIST: libc::Ioctl = 0x4004_54cb;
const TUNSETOWNER: libc::Ioctl = 0x4004_54cc;
const TUNSETGROUP: libc::Ioctl = 0x4004_54ce;

const IFF_TAP: i16 = 0x0002;
const IFF_MULTI_QUEUE: i16 = 0x0100;
const IFF_NO_PI: i16 = 0x1000;
const IFF_VNET_HDR: i16 = 0x4000;

/// `struct ifreq` as TUNSETIFF reads it.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: i16,
    rest: [u8; 22],
}

impl Net {
    /// Creates the tap as a port of its bridge and sets it up. The thread must be in the namespace.
    pub fn ensure_tap(&mut self, tap: &Tap) -> Result<(), NetError> {
        let bridge = of_kind(
            self.existing_link(&tap.bridge)?,
            &LinkKind::Bridge,
            "bridge",
        )?;
        if self.link(&tap.name)?.is_none() {
            create(tap).map_err(|source| tap_error(tap, source))?;
        }
        let link = of_kind(self.existing_link(&tap.name)?, &LinkKind::Tun, "tap")?;
        let wanted = Settings {
            mtu: Some(tap.mtu),
            master: Some(bridge.index),
            ..Settings::default()
        };
        self.configure(&link, wanted)
    }
}

fn tap_error(tap: &Tap, source: io::Error) -> NetError {
    let operation = || format!("create tap device {}", tap.name);
    match source.kind() {
        io::ErrorKind::PermissionDenied => NetError::NotPermitted {
            operation: operation(),
        },
        io::ErrorKind::NotFound => NetError::NotSupported {
            operation: operation(),
            feature: "/dev/net/tun".to_owned(),
        },
        _ => NetError::Tap {
            name: tap.name.clone(),
            source,
        },
    }
}

fn create(tap: &Tap) -> io::Result<()> {
    check_name(&tap.name).map_err(io::Error::other)?;
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")?;
    let mut flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    if tap.queues > 1 {
        flags |= IFF_MULTI_QUEUE;
    }
    let mut request = Request {
        name: [0; 16],
        flags,
        rest: [0; 22],
    };
    for (to, from) in request.name.iter_mut().zip(tap.name.bytes()) {
        *to = from;
    }
    attach(&device, &mut request)?;
    let owner = libc::c_ulong::from(tap.owner);
    set(&device, TUNSETOWNER, owner)?;
    set(&device, TUNSETGROUP, owner)?;
    set(&device, TUNSETPERSIST, 1)
}

fn attach(device: &File, request: &mut Request) -> io::Result<()> {
    // SAFETY: the kernel reads and writes one `ifreq`, whose layout and size `Request` has; the
    // reference is valid for the call.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), TUNSETIFF, std::ptr::from_mut(request)) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// For ioctls whose argument is a number.
fn set(device: &File, call: libc::Ioctl, value: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the argument is a number, not a pointer.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), call, value) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
