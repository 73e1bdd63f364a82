//! The start of a supervisor: owns the pod's directory, enters its cgroup and namespaces, and adopts
//! the containers of an earlier supervisor.

use std::{
    fs::{self, File},
    io,
    os::unix::{fs::PermissionsExt, net::UnixListener},
    path::Path,
};

use error_chain::error_chain;
use rustix::{
    fs::{FlockOperation, Mode, flock},
    process::set_child_subreaper,
};

use super::Supervisor;
use crate::{
    cgroup,
    container::Container,
    error::SupervisorError,
    layout,
    model::{ContainerSpec, Sandbox},
    oom,
    report::report,
    sandbox, signals,
    status::{self, Process, State},
};

impl Supervisor {
    pub(super) fn begin(pod_dir: &Path) -> Result<Self, SupervisorError> {
        let in_dir = |source: io::Error| SupervisorError::Directory {
            dir: pod_dir.to_owned(),
            source,
        };
        std::env::set_current_dir(pod_dir).map_err(in_dir)?;
        rustix::process::umask(Mode::WGRP | Mode::WOTH);
        let lock = File::create(layout::LOCK_FILE).map_err(in_dir)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(SupervisorError::AlreadyOwned {
                dir: pod_dir.to_owned(),
            });
        }
        // An own session: no terminal, and no signals for the node's process group. The call fails
        // where this process leads a group already, which is as good.
        if let Err(errno) = rustix::process::setsid()
            && errno != rustix::io::Errno::PERM
        {
            return Err(SupervisorError::Wait {
                source: errno.into(),
            });
        }
        set_child_subreaper(Some(rustix::process::getpid())).map_err(|errno| {
            SupervisorError::Wait {
                source: errno.into(),
            }
        })?;
        // It is inherited from the node, which ranks below all supervisors.
        if let Err(error) = oom::adjust(oom::SUPERVISOR) {
            report(&format!("failed to set the OOM score: {error}"));
        }
        let signals = signals::descriptor().map_err(|source| SupervisorError::Wait { source })?;

        let file = pod_dir.join(layout::SANDBOX_FILE);
        let bytes = fs::read(layout::SANDBOX_FILE).map_err(in_dir)?;
        let sandbox: Sandbox = serde_json::from_slice(&bytes)
            .map_err(|source| SupervisorError::Malformed { file, source })?;
        let previous = status::read(Path::new(".")).map_err(in_dir)?;

        let own_group = format!("{}/supervisor", sandbox.cgroup);
        cgroup::enter(&own_group).map_err(|source| SupervisorError::Cgroup {
            path: own_group,
            source,
        })?;
        failpoints::after("pod-supervisor/enter-cgroup");
        let running = previous
            .iter()
            .flat_map(|status| &status.containers)
            .find_map(|one| match one.state {
                State::Running { process, .. } if process.is_alive() => Some(process.pid),
                _ => None,
            });
        if let Some(pid) = running {
            sandbox::join(pid)?;
        } else {
            sandbox::create(&sandbox)?;
            failpoints::after("pod-supervisor/create-sandbox");
        }

        let process = Process::of(i32::try_from(std::process::id()).unwrap_or_default())
            .ok_or_else(|| SupervisorError::Wait {
                source: io::Error::other("no /proc"),
            })?;
        let mut supervisor = Self {
            process,
            boot_id: status::boot_id().map_err(in_dir)?,
            network_namespace: sandbox::network_namespace()?,
            containers: Vec::new(),
            listener: listen().map_err(|source| SupervisorError::Listen { source })?,
            signals,
            clients: Vec::new(),
            stopping: None,
            unclaimed: Vec::new(),
            changed: true,
            sandbox,
            _lock: lock,
        };
        let containers = previous.map(|status| status.containers);
        for status in containers.unwrap_or_default() {
            match read_spec(&status.name) {
                Ok(spec) => {
                    let mut container = Container::new(&spec);
                    container.adopt(&supervisor.sandbox, status);
                    supervisor.containers.push(container);
                }
                Err(error) => report(&format!(
                    "failed to adopt {}: {}",
                    status.name,
                    error_chain(&error)
                )),
            }
        }
        supervisor.publish()?;
        Ok(supervisor)
    }
}

fn listen() -> io::Result<UnixListener> {
    match fs::remove_file(layout::CONTROL_SOCKET) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A relative path, as the absolute one may be too long for a socket address.
    let listener = UnixListener::bind(layout::CONTROL_SOCKET)?;
    fs::set_permissions(layout::CONTROL_SOCKET, PermissionsExt::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn read_spec(container: &str) -> io::Result<ContainerSpec> {
    Ok(serde_json::from_slice(&fs::read(layout::spec_file(
        container,
    ))?)?)
}
