//! Loads a device filter into the kernel and attaches it to a cgroup.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    path::Path,
};

use rustix::process::{Resource, Rlimit, setrlimit};

use super::program::Instruction;

const PROGRAM_LOAD: libc::c_int = 5;
const PROGRAM_ATTACH: libc::c_int = 8;
/// The type of a program that decides about devices, and where it is attached.
const CGROUP_DEVICE_PROGRAM: u32 = 15;
const CGROUP_DEVICE: u32 = 6;
/// Groups below may have programs as well; all of them must allow an access.
const ALLOW_MORE: u32 = 2;

/// The first members of `union bpf_attr`; the kernel takes the missing ones as zero.
#[repr(C)]
#[derive(Default)]
struct Load {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

#[repr(C)]
struct Attach {
    target: i32,
    program: i32,
    kind: u32,
    flags: u32,
}

pub(super) fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    // Kernels before 5.11 count programs as locked memory of the user, here of all containers. Where that
    // matters and this is not permitted, loading the program fails.
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    let _raised = setrlimit(Resource::Memlock, unlimited);
    let mut name = [0; 16];
    name[..10].copy_from_slice(b"pod_device");
    let attributes = Load {
        program_type: CGROUP_DEVICE_PROGRAM,
        instruction_count: u32::try_from(program.len()).map_err(io::Error::other)?,
        instructions: address(program.as_ptr()),
        license: address(c"Apache-2.0".as_ptr()),
        name,
        ..Load::default()
    };
    let descriptor = call(PROGRAM_LOAD, &attributes)?;
    // SAFETY: the kernel returned a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// The program stays attached until the cgroup is removed.
pub(super) fn attach(program: &OwnedFd, cgroup: &Path) -> io::Result<()> {
    let cgroup = File::open(cgroup)?;
    let attributes = Attach {
        target: cgroup.as_raw_fd(),
        program: program.as_raw_fd(),
        kind: CGROUP_DEVICE,
        flags: ALLOW_MORE,
    };
    call(PROGRAM_ATTACH, &attributes).map(drop)
}

fn address<T>(pointer: *const T) -> u64 {
    // A pointer has at most 64 bits.
    u64::try_from(pointer.addr()).unwrap_or_default()
}

fn call<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    // SAFETY: the attributes have the layout that the command reads, with their size; what they point to
    // outlives the call, and the kernel only reads it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    libc::c_int::try_from(result).map_err(io::Error::other)
}
