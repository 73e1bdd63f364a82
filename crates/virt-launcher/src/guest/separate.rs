//! CPUs for everything in the pod except the guest's virtual CPUs, so that nothing disturbs them.

use std::{fs, io};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Moves all threads of the pod, which then start QEMU, to these CPUs. libvirt moves QEMU's own
/// threads.
pub(super) fn keep_to(cpus: &[u32]) -> io::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for cpu in cpus {
        let cpu = usize::try_from(*cpu).unwrap_or(usize::MAX);
        if cpu >= CpuSet::MAX_CPU {
            let message = format!("CPU {cpu} is beyond the limit of {}", CpuSet::MAX_CPU);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        set.set(cpu);
    }
    for process in numbers("/proc")? {
        // Process 1 starts a new libvirtd or launcher; virt-handler reads the pod's CPUs from it.
        if process == Pid::INIT {
            continue;
        }
        let tasks = format!("/proc/{}/task", process.as_raw_nonzero());
        for thread in numbers(&tasks).unwrap_or_default() {
            match sched_setaffinity(Some(thread), &set) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    Ok(())
}

fn numbers(directory: &str) -> io::Result<Vec<Pid>> {
    let entries = fs::read_dir(directory)?.flatten();
    let pid = |name: &str| Pid::from_raw(name.parse().ok()?);
    Ok(entries
        .filter_map(|entry| pid(entry.file_name().to_str()?))
        .collect())
}
