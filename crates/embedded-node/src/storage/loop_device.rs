//! Files as block devices, by the kernel's loop devices.
//!
//! Stateless: the kernel knows the file of each device, so a device made by an earlier process is
//! found by the name of its file.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd as _, RawFd},
        unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

const CONTROL: &str = "/dev/loop-control";
const GET_FREE: libc::Ioctl = 0x4C82;
const CONFIGURE: libc::Ioctl = 0x4C0A;
const CLEAR: libc::Ioctl = 0x4C01;
/// The kernel's major number of loop devices.
const MAJOR: u32 = 7;
/// Another process may take the free device before we configure it.
const MAX_ATTEMPTS: u32 = 64;

/// A loop device and its backing file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attached {
    pub(crate) device: PathBuf,
    pub(crate) file: PathBuf,
}

/// The kernel's `struct loop_config`, which sets a device up atomically.
#[repr(C)]
struct Config {
    fd: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

#[repr(C)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// The loop device of `file`; sets one up if there is none.
pub(crate) fn attach(file: &Path) -> io::Result<PathBuf> {
    let file = fs::canonicalize(file)?;
    if let Some(found) = attached()?.into_iter().find(|one| one.file == file) {
        return Ok(found.device);
    }
    let backing = OpenOptions::new().read(true).write(true).open(&file)?;
    let control = OpenOptions::new().read(true).write(true).open(CONTROL)?;
    for _ in 0..MAX_ATTEMPTS {
        // SAFETY: this request takes no argument.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), GET_FREE) };
        let number = u32::try_from(number).map_err(|_| io::Error::last_os_error())?;
        let path = node(number)?;
        match configure(&path, &backing) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            done => return done.map(|()| path),
        }
    }
    Err(io::Error::other(
        "other processes took every free loop device",
    ))
}

/// Detaches the device from its file, at the latest when its last user closes it.
pub(crate) fn detach(device: &Path) -> io::Result<()> {
    let file = open(device)?;
    // SAFETY: this request takes no argument.
    match unsafe { libc::ioctl(file.as_raw_fd(), CLEAR) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENXIO) => Ok(()),
            error => Err(error),
        },
    }
}

/// Every device with a backing file below `dir`.
pub(crate) fn attached_below(dir: &Path) -> io::Result<Vec<Attached>> {
    let dir = match fs::canonicalize(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut all = attached()?;
    all.retain(|one| one.file.starts_with(&dir));
    Ok(all)
}

fn attached() -> io::Result<Vec<Attached>> {
    let devices = match fs::read_dir("/sys/block") {
        // A kernel without block devices has no loop devices either.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in devices {
        let entry = entry?;
        let name = entry.file_name();
        if !name.as_bytes().starts_with(b"loop") {
            continue;
        }
        // This file exists only while a backing file is attached.
        let Ok(text) = fs::read(entry.path().join("loop/backing_file")) else {
            continue;
        };
        let text = text.trim_ascii_end();
        let file = text.strip_suffix(b" (deleted)").unwrap_or(text);
        found.push(Attached {
            device: Path::new("/dev").join(name),
            file: PathBuf::from(OsStr::from_bytes(file)),
        });
    }
    Ok(found)
}

/// The device node of that number, made if the host has no udev that makes it.
fn node(number: u32) -> io::Result<PathBuf> {
    let path = PathBuf::from(format!("/dev/loop{number}"));
    if !path.exists() {
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP;
        match mknodat(
            CWD,
            &path,
            FileType::BlockDevice,
            mode,
            makedev(MAJOR, number),
        ) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(path)
}

fn open(device: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC)
        .open(device)
}

fn configure(device: &Path, backing: &File) -> io::Result<()> {
    let device = open(device)?;
    let config = Config {
        fd: descriptor(backing.as_raw_fd())?,
        block_size: 0,
        info: Info {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: 0,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: the kernel reads one structure of this layout, which lives until the call returns.
    match unsafe { libc::ioctl(device.as_raw_fd(), CONFIGURE, &raw const config) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn descriptor(fd: RawFd) -> io::Result<u32> {
    u32::try_from(fd).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn file_is_attached_once_and_found_by_name() {
        let dir = tempfile::Builder::new()
            .prefix("loop device ")
            .tempdir()
            .unwrap();
        let file = dir.path().join("disk");
        let mut content = b"hello".to_vec();
        content.resize(1 << 20, 0);
        fs::write(&file, &content).unwrap();
        let device = attach(&file).unwrap();
        assert_eq!(attach(&file).unwrap(), device);
        let found = attached_below(dir.path()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].device, device);
        let mut opened = open(&device).unwrap();
        let mut read = vec![0; 5];
        opened.read_exact(&mut read).unwrap();
        assert_eq!(read, b"hello");
        opened.write_all(b"!").unwrap();
        opened.sync_all().unwrap();
        drop(opened);
        detach(&device).unwrap();
        assert_eq!(attached_below(dir.path()).unwrap(), []);
        detach(&device).unwrap();
        assert_eq!(&fs::read(&file).unwrap()[..6], b"hello!");
        assert_eq!(attached_below(Path::new("/no/such/dir")).unwrap(), []);
    }
}
