//! The helper: creates one container and exits, so that the memory this takes is freed.
//!
//! It runs as a child of the supervisor and dies with it. Its mount namespace holds the overlay;
//! the container keeps its own copy. The supervisor is a subreaper and becomes the parent of the
//! container's first process when the helper exits.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::fs::{FileTypeExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
};

use error_chain::error_chain;
use libcontainer::{
    container::builder::ContainerBuilder, error::LibcontainerError, syscall::syscall::SyscallType,
};
use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount_change},
    process::{Signal, set_parent_process_death_signal},
    thread::UnshareFlags,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    capabilities,
    device_filter::{self, FilterError},
    launch::{Launch, ReportTo},
    layout,
    model::{ContainerSpec, Device, Isolation, Sandbox, Stdin, Terminal},
    oci::{self, Context, Node},
    oom,
    overlay::{OverlayError, mount_overlay},
    sealed::{self, SealError},
    signals,
    stage::{self, StageError},
    status::Process,
    terminal::Console,
};

/// The helper's result, one line on its standard output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum HelperResult {
    Started { process: Process },
    Failed { message: String },
}

#[derive(Debug, thiserror::Error)]
enum CreateError {
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error("read {}", file.display())]
    Read {
        file: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("parse {}", file.display())]
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
    #[error("create a mount namespace")]
    Namespace {
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Stage(#[from] StageError),
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
    #[error("create the container")]
    Container(#[from] LibcontainerError),
    #[error("read the OOM score of this process")]
    OomScore {
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    DeviceFilter(#[from] FilterError),
    #[error("create the container: its first process has ended")]
    Gone,
    #[error("give the container a terminal")]
    Terminal {
        #[source]
        source: io::Error,
    },
}

/// Body of `pod-supervisor create <container> <attempt>`, run in the pod's directory.
pub fn run(container: &str, attempt: u32) {
    let result = match create(container, attempt) {
        Ok(process) => HelperResult::Started { process },
        Err(error) => HelperResult::Failed {
            message: error_chain(&error),
        },
    };
    let line = serde_json::to_vec(&result).expect("a result is always JSON");
    // The supervisor notices a missing result by itself.
    drop(io::stdout().write_all(&line));
}

fn create(container: &str, attempt: u32) -> Result<Process, CreateError> {
    sealed::ensure()?;
    isolate()?;
    let sandbox: Sandbox = read(Path::new(layout::SANDBOX_FILE))?;
    let mut spec: ContainerSpec = read(&layout::spec_file(container))?;
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
    check_sources(&spec)?;
    let (upper, work, runtime) = (dir("upper")?, dir("work")?, dir("oci")?);
    let mut termination_file = pod_dir.join(layout::termination_file(container));
    let users = match sandbox.first_user {
        Some(first) => Some(stage::of_own_users(
            &mut spec,
            &mut termination_file,
            &upper,
            first,
        )?),
        None => None,
    };
    let root = match users {
        Some(_) => stage::root()?,
        None => dir("root")?,
    };
    let flags = match spec.security.isolation {
        Isolation::Confined => MountFlags::NODEV,
        Isolation::Privileged => MountFlags::empty(),
    };
    mount_overlay(&spec.image_root, &upper, &work, &root, flags)?;

    let nodes = spec
        .devices
        .iter()
        .map(find_device)
        .collect::<Result<Vec<_>, _>>()?;
    let available = capabilities::bounding_set();
    let cgroup = container_cgroup(&sandbox, container, attempt);
    let user_namespace = users.as_ref().map(path_of);
    let mut rendered = oci::render(
        &spec,
        &nodes,
        &Context {
            root: &root,
            cgroup: &cgroup,
            termination_file: &termination_file,
            user_namespace: user_namespace.as_deref(),
            own_oom_score: oom::own().map_err(|source| CreateError::OomScore { source })?,
            available: &|name| capabilities::contains(available, name),
            // Staged volumes have other paths, by which devices of the host cannot be recognised.
            has_devices: &|source| users.is_none() && has_devices(source),
        },
    );
    let config = attempt_dir.join("config.json");
    write(&config, rendered.to_string().as_bytes())?;

    let no_terminal = |source: io::Error| CreateError::Terminal { source };
    let console = match spec.terminal {
        Terminal::None => None,
        Terminal::Own => Some(Console::prepare(container, attempt).map_err(no_terminal)?),
    };
    let builder = ContainerBuilder::new(format!("{container}-{attempt}"), SyscallType::default())
        .with_root_path(&runtime)?
        .with_executor(Launch {
            security: spec.security.clone(),
            report_to: ReportTo::ContainerLog,
            become_user: None,
        });
    let console_path = console.as_ref().map(|console| console.path(&pod_dir));
    let mut created = with_streams(builder, &spec, &attempt_dir, console_path)?
        .as_init(&attempt_dir)
        .with_systemd(false)
        .with_detach(true)
        .build()?;
    let process = created
        .pid()
        .and_then(|pid| Process::of(pid.as_raw()))
        .ok_or(CreateError::Gone)?;
    if let Some(console) = console {
        let log = pipe(&attempt_dir, "stdout")?;
        let first_user = sandbox.first_user.unwrap_or(0);
        let owner = first_user.saturating_add(spec.user.uid);
        console.keep(process.pid, owner, log).map_err(no_terminal)?;
    }
    if users.is_some() {
        // `exec` requires that this path exists, and the root is visible in this mount namespace only.
        rendered["root"]["path"] = json!(upper);
        write(&config, rendered.to_string().as_bytes())?;
    }
    device_filter::restrict(spec.security.isolation, &cgroup, &nodes)?;
    // Written before the program runs: `find_started` then knows by the name of the process whether
    // the program was started.
    let record = serde_json::to_vec(&process).expect("a process is always JSON");
    write(&attempt_dir.join(INIT_FILE), &record)?;
    created.start()?;
    Ok(process)
}

/// A path of this process, so that its children can open it as well.
fn path_of(opened: &OwnedFd) -> PathBuf {
    let (process, descriptor) = (std::process::id(), opened.as_raw_fd());
    PathBuf::from(format!("/proc/{process}/fd/{descriptor}"))
}

/// The container's standard streams: those of its terminal, or pipes.
fn with_streams(
    builder: ContainerBuilder,
    spec: &ContainerSpec,
    attempt_dir: &Path,
    console: Option<PathBuf>,
) -> Result<ContainerBuilder, CreateError> {
    if console.is_some() {
        return Ok(builder.with_console_socket(console));
    }
    Ok(builder
        .with_stdin(stdin(spec, attempt_dir)?)
        .with_stdout(pipe(attempt_dir, "stdout")?)
        .with_stderr(pipe(attempt_dir, "stderr")?))
}

/// Lets this process end with the supervisor, and gives it a mount namespace of its own.
fn isolate() -> Result<(), CreateError> {
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
    .map_err(|errno| failed(errno.into()))
}

/// Everything of the host that the container needs must be there.
fn check_sources(spec: &ContainerSpec) -> Result<(), CreateError> {
    let missing = spec.mounts.iter().find(|mount| !mount.source.exists());
    if let Some(mount) = missing {
        return Err(CreateError::MissingMount {
            source_path: mount.source.clone(),
        });
    }
    let devices = spec.devices.iter();
    devices
        .map(find_device)
        .try_for_each(|found| found.map(drop))
}

/// Written by the helper to the attempt's directory, for a later supervisor.
pub(crate) const INIT_FILE: &str = "init.json";

pub(crate) fn container_cgroup(sandbox: &Sandbox, container: &str, attempt: u32) -> String {
    format!("{}/{container}-{attempt}", sandbox.cgroup)
}

/// The container's process of an attempt whose helper's result was lost, if it runs its program.
pub(crate) fn find_started(attempt_dir: &Path) -> Option<Process> {
    let process: Process =
        serde_json::from_slice(&fs::read(attempt_dir.join(INIT_FILE)).ok()?).ok()?;
    let name = fs::read_to_string(format!("/proc/{}/comm", process.pid)).ok()?;
    // Until it executes the program, the process has the name that libcontainer set.
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

fn open(path: &Path, options: &OpenOptions) -> Result<File, CreateError> {
    options.open(path).map_err(|source| CreateError::Prepare {
        path: path.to_owned(),
        source,
    })
}

/// Opened for reading and writing, so that the container holds a reader itself and writes do not fail
/// while no supervisor reads.
fn pipe(attempt_dir: &Path, name: &str) -> Result<File, CreateError> {
    open(
        &attempt_dir.join(name),
        OpenOptions::new().read(true).write(true),
    )
}

fn stdin(spec: &ContainerSpec, attempt_dir: &Path) -> Result<File, CreateError> {
    match spec.stdin {
        Stdin::None => open("/dev/null".as_ref(), OpenOptions::new().read(true)),
        // The container is a writer itself, so the pipe never ends.
        Stdin::Open => pipe(attempt_dir, "stdin"),
        // The supervisor is the other end.
        Stdin::Once => open(&attempt_dir.join("stdin"), OpenOptions::new().read(true)),
    }
}

fn find_device(device: &Device) -> Result<Node<'_>, CreateError> {
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
        major: rustix::fs::major(number),
        minor: rustix::fs::minor(number),
    })
}

/// A missing source is reported elsewhere.
fn has_devices(source: &Path) -> bool {
    let Ok(source) = source.canonicalize() else {
        return false;
    };
    let kind = source.metadata().map(|metadata| metadata.file_type());
    source.starts_with("/dev")
        || kind.is_ok_and(|kind| kind.is_block_device() || kind.is_char_device())
}
