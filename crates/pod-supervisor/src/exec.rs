//! The helper that runs a further program in a running container and exits after it.
//!
//! It is a child of its caller, not of the supervisor, and dies with the caller. The program uses the
//! helper's standard streams, or a terminal of its own, whose other end is sent to a socket. The
//! outcome is written to a file.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use error_chain::error_chain;
use libcontainer::{
    container::builder::ContainerBuilder, error::LibcontainerError, syscall::syscall::SyscallType,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Signal, set_parent_process_death_signal},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    SupervisorError, capabilities, exit,
    launch::{BECOMING, BecomeUser, Launch, ReportTo},
    layout,
    model::{ContainerSpec, Sandbox},
    oci, oom, sandbox,
    sealed::{self, SealError},
    signals,
    status::{self, State},
    users,
};

pub use crate::model::Terminal;

/// The request, written by the caller to the program's directory.
pub const REQUEST_FILE: &str = "request.json";
/// A unix socket that receives the terminal; the caller listens on it before it starts the helper.
pub const CONSOLE_SOCKET: &str = "console.sock";
/// The outcome, written by the helper before it exits.
pub const OUTCOME_FILE: &str = "outcome.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecRequest {
    pub container: String,
    pub args: Vec<String>,
    /// It is sent to the console socket.
    pub terminal: Terminal,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    Exited {
        code: i32,
    },
    /// The program was not started.
    Failed {
        message: String,
    },
}

#[derive(Debug, thiserror::Error)]
enum ExecError {
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error("read {}", file.display())]
    Read {
        file: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("container {name:?} is not running")]
    NotRunning { name: String },
    #[error(transparent)]
    Namespaces(#[from] SupervisorError),
    #[error("enter the container")]
    Container(#[from] LibcontainerError),
    #[error("prepare to enter the container")]
    Prepare(#[from] io::Error),
}

/// Body of `pod-supervisor exec <pod directory> <id>`.
pub fn run(pod_dir: &Path, id: &str) -> io::Result<()> {
    // Returns only if it failed, or if this process runs from the copy.
    let sealed = sealed::ensure();
    set_parent_process_death_signal(Some(Signal::TERM))?;
    std::env::set_current_dir(pod_dir)?;
    let dir = layout::exec_dir(id);
    let result = sealed.map_err(ExecError::from).and_then(|()| execute(&dir));
    let outcome = match result {
        Ok(code) => Outcome::Exited { code },
        Err(error) => Outcome::Failed {
            message: error_chain(&error),
        },
    };
    let fresh = dir.join("outcome.new");
    fs::write(&fresh, serde_json::to_vec(&outcome)?)?;
    fs::rename(fresh, dir.join(OUTCOME_FILE))
}

fn execute(dir: &Path) -> Result<i32, ExecError> {
    let request: ExecRequest = read(&dir.join(REQUEST_FILE))?;
    let name = &request.container;
    let spec: ContainerSpec = read(&layout::spec_file(name))?;
    let not_running = || ExecError::NotRunning { name: name.clone() };
    let all = status::read(Path::new("."))?.ok_or_else(not_running)?;
    let found = all.containers.into_iter().find(|one| one.name == *name);
    let (attempt, process) = match found.map(|one| (one.attempt, one.state)) {
        Some((attempt, State::Running { process, .. })) if process.is_alive() => (attempt, process),
        _ => return Err(not_running()),
    };
    let signals = signals::descriptor()?;
    // The container inherited these from the pod, so libcontainer does not enter them.
    sandbox::join(process.pid)?;
    let pod_dir = std::env::current_dir()?;
    let attempt_dir = pod_dir.join(layout::attempt_dir(name, attempt));
    let program = dir.join("process.json");
    let mut described = program_of(&spec, &request, oom::own()?);
    let sandbox: Sandbox = read(Path::new(layout::SANDBOX_FILE))?;
    let become_user = match sandbox.first_user {
        Some(_) => Some(as_root_first(&mut described, &spec)?),
        None => None,
    };
    fs::write(&program, described.to_string())?;

    let console = match request.terminal {
        Terminal::None => None,
        Terminal::Own => Some(pod_dir.join(dir).join(CONSOLE_SOCKET)),
    };
    let pid = ContainerBuilder::new(format!("{name}-{attempt}"), SyscallType::default())
        .with_root_path(attempt_dir.join("oci"))?
        .with_console_socket(console)
        .with_executor(Launch {
            security: spec.security.clone(),
            report_to: ReportTo::Caller,
            become_user,
        })
        .as_tenant()
        .with_process(Some(pod_dir.join(program)))
        .with_detach(true)
        .build()?;
    Ok(wait_for(pid.as_raw(), &signals))
}

/// The container's process with the request's command.
fn program_of(spec: &ContainerSpec, request: &ExecRequest, own_oom_score: i32) -> Value {
    let available = capabilities::bounding_set();
    let mut process = oci::process(spec, own_oom_score, &|name| {
        capabilities::contains(available, name)
    });
    process["args"] = json!(request.args);
    if request.terminal == Terminal::Own {
        oci::add_terminal(&mut process, spec);
    }
    process
}

/// Lets a program start as root of the host, and returns the user of the pod that it has to become.
fn as_root_first(program: &mut Value, spec: &ContainerSpec) -> io::Result<BecomeUser> {
    let none: [&str; 0] = [];
    program["user"] = json!({"uid": 0, "gid": 0});
    program["capabilities"] = json!({
        "bounding": BECOMING,
        "effective": BECOMING,
        "permitted": BECOMING,
        "inheritable": none,
        "ambient": none,
    });
    Ok(BecomeUser {
        namespace: Arc::new(users::of_this_pod()?),
        user: spec.user.clone(),
    })
}

/// Waits for the end of the program, and kills it when this process is asked to terminate.
fn wait_for(pid: i32, signals: &std::os::fd::OwnedFd) -> i32 {
    loop {
        while let Some((ended, exit)) = exit::reap_one() {
            if ended == pid {
                return exit.code;
            }
        }
        match poll(&mut [PollFd::new(signals, PollFlags::IN)], None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => signals::kill(pid),
        }
        while let Some(signal) = signals::next(signals) {
            if signal != libc::SIGCHLD {
                signals::kill(pid);
            }
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(file: &Path) -> Result<T, ExecError> {
    let failed = |source| ExecError::Read {
        file: file.to_owned(),
        source,
    };
    let bytes = fs::read(file).map_err(failed)?;
    serde_json::from_slice(&bytes).map_err(|error| failed(error.into()))
}
