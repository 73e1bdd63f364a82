//! The namespaces that all containers of the pod share; the supervisor itself is in them.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    path::PathBuf,
};

use rustix::{
    system::sethostname,
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space},
};

use crate::{
    error::SupervisorError,
    links,
    model::{NetworkMode, Sandbox},
    users,
};

/// Creates the namespaces of a new pod and enters them.
pub(crate) fn create(sandbox: &Sandbox) -> Result<(), SupervisorError> {
    let failed = |source: io::Error| SupervisorError::Namespaces { source };
    if let Some(first) = sandbox.first_user {
        users::with_namespaces(first, enter).map_err(|source| SupervisorError::Users { source })?;
    } else {
        let mut flags = UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
        if sandbox.network == NetworkMode::Pod {
            flags |= UnshareFlags::NEWNET;
        }
        // SAFETY: this process has one thread and shares no descriptor table.
        unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(|errno| failed(errno.into()))?;
    }
    sethostname(sandbox.hostname.as_bytes()).map_err(|errno| failed(errno.into()))?;
    if sandbox.network == NetworkMode::Pod {
        links::loopback_up().map_err(failed)?;
    }
    for (name, value) in &sandbox.sysctls {
        let path = PathBuf::from("/proc/sys").join(file_of(name));
        fs::write(path, value).map_err(|source| SupervisorError::Sysctl {
            name: name.clone(),
            value: value.clone(),
            source,
        })?;
    }
    Ok(())
}

/// The file of a kernel setting. Its name has dots between the parts, and a slash stands for a dot inside
/// of one.
fn file_of(name: &str) -> String {
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        c => c,
    };
    name.chars().map(swap).collect()
}

/// Enters the namespaces of an existing pod through a process of one of its containers.
pub(crate) fn join(pid: i32) -> Result<(), SupervisorError> {
    enter(pid).map_err(|source| SupervisorError::Namespaces { source })
}

fn enter(pid: i32) -> io::Result<()> {
    for (name, kind) in [
        ("net", LinkNameSpaceType::Network),
        ("ipc", LinkNameSpaceType::InterProcessCommunication),
        ("uts", LinkNameSpaceType::HostNameAndNISDomainName),
    ] {
        let namespace: OwnedFd = File::open(format!("/proc/{pid}/ns/{name}"))?.into();
        move_into_link_name_space(namespace.as_fd(), Some(kind))?;
    }
    Ok(())
}

pub(crate) fn network_namespace() -> Result<u64, SupervisorError> {
    let metadata = fs::metadata("/proc/self/ns/net")
        .map_err(|source| SupervisorError::Namespaces { source })?;
    Ok(metadata.ino())
}
