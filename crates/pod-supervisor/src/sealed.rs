//! The helpers run from a sealed copy of this program in memory.
//!
//! A helper's process becomes a process of the container, where the container's own processes, or the
//! program that it starts by the name `/proc/self/exe`, can get hold of the file that it runs. That file
//! must not be the program on the host's disk, which root in a container could overwrite
//! (CVE-2019-5736).

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::process::CommandExt as _,
    },
    process::Command,
};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};

const NAME: &str = "pod-supervisor";
/// How often a copy is sealed while something else still holds its pages, such as the kernel's reclaim of
/// memory. The kernel waits for that some hundred milliseconds itself.
const SEAL_ATTEMPTS: usize = 20;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SealError {
    #[error("open this program")]
    Open {
        #[source]
        source: io::Error,
    },
    #[error("copy this program to memory: is the host out of memory?")]
    Copy {
        #[source]
        source: io::Error,
    },
    #[error("execute this program from memory: the kernel setting vm.memfd_noexec must be below 2")]
    Execute {
        #[source]
        source: io::Error,
    },
}

/// Starts this program again from a sealed copy with the same arguments, unless it runs from one. This
/// process must have no other thread.
pub(crate) fn ensure() -> Result<(), SealError> {
    let program = File::open("/proc/self/exe").map_err(|source| SealError::Open { source })?;
    if is_sealed(&program) {
        return Ok(());
    }
    let copy = copy(program)?;
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| NAME.into());
    // The descriptor closes on this call, after the kernel has opened the file.
    let source = Command::new(format!("/proc/self/fd/{}", copy.as_raw_fd()))
        .arg0(name)
        .args(arguments)
        .exec();
    Err(SealError::Execute { source })
}

/// Whether the file can never be written to.
fn is_sealed(file: &File) -> bool {
    // Only files in memory have seals.
    fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::WRITE))
}

fn copy(mut program: File) -> Result<OwnedFd, SealError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let copied = memfd_create(NAME, flags | MemfdFlags::EXEC)
        .or_else(|error| match error {
            // Before Linux 6.3 every such file can be executed.
            rustix::io::Errno::INVAL => memfd_create(NAME, flags),
            error => Err(error),
        })
        .map_err(|errno| SealError::Execute {
            source: errno.into(),
        })?;
    let failed = |source| SealError::Copy { source };
    let mut copied = File::from(copied);
    io::copy(&mut program, &mut copied).map_err(failed)?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    for _ in 1..SEAL_ATTEMPTS {
        match fcntl_add_seals(&copied, seals) {
            Err(rustix::io::Errno::BUSY) => {}
            Err(errno) => return Err(failed(errno.into())),
            Ok(()) => return Ok(copied.into()),
        }
    }
    let sealed = fcntl_add_seals(&copied, seals).map_err(|errno| failed(errno.into()));
    sealed.map(|()| copied.into())
}
