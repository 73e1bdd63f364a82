//! The helper: makes one container and ends, so that nothing of making it stays in memory.
//!
//! It runs as a child of the supervisor and dies with it. Its mount namespace holds the overlay;
//! the container keeps its own copy. The supervisor, being a subreaper, becomes the parent of the
//! container's first process when the helper has ended.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use error_chain::error_chain;
use libcontainer::{
    container::builder::ContainerBuilder,
    error::LibcontainerError,
    oci_spec::runtime::Spec,
    syscall::syscall::SyscallType,
    workload::{Executor, ExecutorError, ExecutorValidationError, default::get_executor},
};
use rustix::{
    mount::{MountPropagationFlags, mount_change},
    process::{Signal, set_parent_process_death_signal},
    thread::UnshareFlags,
};
use serde::{Deserialize, Serialize};

use crate::{
    layout,
    model::{ContainerSpec, Device, Sandbox, Seccomp},
    oci::{self, Node, Place},
    overlay::{OverlayError, mount_overlay},
    signals,
    status::Process,
};

/// The one line the helper answers with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Answer {
    Started { process: Process },
    Failed { message: String },
}

#[derive(Debug, thiserror::Error)]
enum CreateError {
    #[error("read {}", file.display())]
    Read {
        file: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("understand {}", file.display())]
    Parse {
        file: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("prepare {}", path.display())]
    Prepare {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("leave the host's mounts")]
    Namespace {
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Overlay(#[from] OverlayError),
    #[error("device {} is missing on this host", device.display())]
    Device {
        device: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("volume source {} is missing on this host", source_path.display())]
    MissingMount { source_path: PathBuf },
    #[error("make the container")]
    Container(#[from] LibcontainerError),
    #[error("make the container: its first process is gone")]
    Gone,
}

/// Body of `pod-supervisor create <container> <attempt>`, run in the pod's directory.
pub fn run(container: &str, attempt: u32) {
    let answer = match create(container, attempt) {
        Ok(process) => Answer::Started { process },
        Err(error) => Answer::Failed {
            message: error_chain(&error),
        },
    };
    let line = serde_json::to_vec(&answer).expect("an answer is always JSON");
    // Whether anybody still listens is the supervisor's business, not ours.
    drop(io::stdout().write_all(&line));
}

fn create(container: &str, attempt: u32) -> Result<Process, CreateError> {
    let failed = |source: io::Error| CreateError::Namespace { source };
    signals::reset().map_err(failed)?;
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|errno| failed(errno.into()))?;
    // SAFETY: this process has one thread and shares no descriptor table.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }
        .map_err(|errno| failed(errno.into()))?;
    mount_change(
        "/",
        MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC,
    )
    .map_err(|errno| failed(errno.into()))?;

    let sandbox: Sandbox = read(Path::new(layout::SANDBOX_FILE))?;
    let spec: ContainerSpec = read(&layout::spec_file(container))?;
    let pod_dir = std::env::current_dir().map_err(|source| CreateError::Prepare {
        path: ".".into(),
        source,
    })?;
    let attempt_dir = pod_dir.join(layout::attempt_dir(container, attempt));
    let dir = |name: &str| -> Result<PathBuf, CreateError> {
        let path = attempt_dir.join(name);
        fs::create_dir(&path).map_err(|source| CreateError::Prepare {
            path: path.clone(),
            source,
        })?;
        Ok(path)
    };
    let (upper, work, root, runtime) = (dir("upper")?, dir("work")?, dir("root")?, dir("oci")?);
    mount_overlay(&spec.image_root, &upper, &work, &root)?;

    for mount in &spec.mounts {
        if !mount.source.exists() {
            return Err(CreateError::MissingMount {
                source_path: mount.source.clone(),
            });
        }
    }
    let nodes = spec
        .devices
        .iter()
        .map(look_up)
        .collect::<Result<Vec<_>, _>>()?;
    let available = bounding_set();
    let rendered = oci::render(
        &spec,
        &nodes,
        &Place {
            root: &root,
            cgroup: &container_cgroup(&sandbox, container, attempt),
            termination_file: &pod_dir.join(layout::termination_file(container)),
            available: &|name| is_in(available, name),
        },
    );
    write(
        &attempt_dir.join("config.json"),
        rendered.to_string().as_bytes(),
    )?;

    let mut made = ContainerBuilder::new(format!("{container}-{attempt}"), SyscallType::default())
        .with_root_path(&runtime)?
        .with_executor(Launch {
            seccomp: spec.security.seccomp,
            told: Told::Log,
        })
        .with_stdin(open("/dev/null".as_ref(), OpenOptions::new().read(true))?)
        .with_stdout(pipe(&attempt_dir, "stdout")?)
        .with_stderr(pipe(&attempt_dir, "stderr")?)
        .as_init(&attempt_dir)
        .with_systemd(false)
        .with_detach(true)
        .build()?;
    let process = made
        .pid()
        .and_then(|pid| Process::of(pid.as_raw()))
        .ok_or(CreateError::Gone)?;
    // Written before the program runs: whoever finds it can tell by the name of the process
    // whether it was ever told to go.
    let record = serde_json::to_vec(&process).expect("a process is always JSON");
    write(&attempt_dir.join(INIT_FILE), &record)?;
    made.start()?;
    Ok(process)
}

/// Left by the helper in the attempt's directory for a supervisor that comes later.
pub(crate) const INIT_FILE: &str = "init.json";

pub(crate) fn container_cgroup(sandbox: &Sandbox, container: &str, attempt: u32) -> String {
    format!("{}/{container}-{attempt}", sandbox.cgroup)
}

/// The container process of an attempt whose helper nobody could listen to, if it runs its program.
pub(crate) fn find_started(attempt_dir: &Path) -> Option<Process> {
    let process: Process =
        serde_json::from_slice(&fs::read(attempt_dir.join(INIT_FILE)).ok()?).ok()?;
    let name = fs::read_to_string(format!("/proc/{}/comm", process.pid)).ok()?;
    // Until it is told to go, the process bears the name that libcontainer gave it.
    (process.is_alive() && !name.starts_with("youki:")).then_some(process)
}

fn read<T: serde::de::DeserializeOwned>(file: &Path) -> Result<T, CreateError> {
    let bytes = fs::read(file).map_err(|source| CreateError::Read {
        file: file.to_owned(),
        source,
    })?;
    serde_json::from_slice(&bytes).map_err(|source| CreateError::Parse {
        file: file.to_owned(),
        source,
    })
}

fn write(file: &Path, bytes: &[u8]) -> Result<(), CreateError> {
    fs::write(file, bytes).map_err(|source| CreateError::Prepare {
        path: file.to_owned(),
        source,
    })
}

fn open(path: &Path, how: &OpenOptions) -> Result<File, CreateError> {
    how.open(path).map_err(|source| CreateError::Prepare {
        path: path.to_owned(),
        source,
    })
}

/// Opened both ways, so that the container holds a reader of its own and a write never fails while
/// no supervisor is there to read.
fn pipe(attempt_dir: &Path, name: &str) -> Result<File, CreateError> {
    open(
        &attempt_dir.join(name),
        OpenOptions::new().read(true).write(true),
    )
}

fn look_up(device: &Device) -> Result<Node<'_>, CreateError> {
    let metadata = fs::metadata(&device.host_path).map_err(|source| CreateError::Device {
        device: device.host_path.clone(),
        source,
    })?;
    let kind = if metadata.file_type().is_block_device() {
        "b"
    } else {
        "c"
    };
    let number = metadata.rdev();
    Ok(Node {
        device,
        kind,
        major: rustix::fs::major(number).into(),
        minor: rustix::fs::minor(number).into(),
    })
}

/// Capabilities that this process may hand on: asking for another makes container starts fail.
pub(crate) fn bounding_set() -> u64 {
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("CapBnd:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        })
        .unwrap_or(0)
}

/// In the order of the kernel's numbers.
const CAPABILITIES: &[&str] = &[
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// Every capability there is, as `CAP_…`.
pub fn all_capabilities() -> Vec<String> {
    CAPABILITIES
        .iter()
        .map(|name| format!("CAP_{name}"))
        .collect()
}

/// Is the capability of that name in the set?
pub(crate) fn is_in(set: u64, name: &str) -> bool {
    capability_number(name).is_some_and(|number| set >> number & 1 == 1)
}

fn capability_number(name: &str) -> Option<usize> {
    let name = name.strip_prefix("CAP_")?;
    CAPABILITIES.iter().position(|one| *one == name)
}

/// The last steps inside the container, when capabilities are dropped and the start was given.
#[derive(Clone)]
pub(crate) struct Launch {
    pub(crate) seccomp: Seccomp,
    pub(crate) told: Told,
}

/// Who learns that the program cannot be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// The container's own log: nobody else listens any more.
    Log,
    Caller,
}

impl Executor for Launch {
    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        let result = signals::reset()
            .and_then(|()| match self.seccomp {
                // The capability that a filter needs is dropped by now; without it the kernel
                // asks for the promise that nothing started from here gains rights.
                Seccomp::RuntimeDefault => rustix::thread::set_no_new_privs(true)
                    .map_err(io::Error::from)
                    .and_then(|()| crate::seccomp::install()),
                Seccomp::Unconfined => Ok(()),
            })
            .map_err(|error| ExecutorError::Execution(Box::new(error)))
            .and_then(|()| get_executor().exec(spec));
        if let Err(error) = &result
            && self.told == Told::Log
        {
            drop(writeln!(
                io::stderr(),
                "failed to start the program: {}",
                error_chain(error)
            ));
        }
        result
    }

    fn validate(&self, spec: &Spec) -> Result<(), ExecutorValidationError> {
        get_executor().validate(spec)
    }
}
