//! The layout of a pod's directory, which node and supervisor share.

use std::path::PathBuf;

/// The sandbox, written by the node.
pub const SANDBOX_FILE: &str = "pod.json";
/// The status, written by the supervisor.
pub const STATUS_FILE: &str = "status.json";
pub const CONTROL_SOCKET: &str = "control.sock";
/// Locked by the running supervisor, so that there is never a second one.
pub const LOCK_FILE: &str = "supervisor.lock";
/// The supervisor's own log.
pub const SUPERVISOR_LOG: &str = "supervisor.log";

/// The directory of a container; like all paths here it is relative to the pod's directory.
pub fn container_dir(container: &str) -> PathBuf {
    PathBuf::from("containers").join(container)
}

pub fn spec_file(container: &str) -> PathBuf {
    container_dir(container).join("spec.json")
}

/// The pipe to the standard input of one attempt, if the container has one.
pub fn stdin_pipe(container: &str, attempt: u32) -> PathBuf {
    attempt_dir(container, attempt).join("stdin")
}

/// The socket of one attempt by which clients use the container's terminal, if it has one.
pub fn terminal_socket(container: &str, attempt: u32) -> PathBuf {
    attempt_dir(container, attempt).join("terminal.sock")
}

/// The writable layer, pipes and OCI bundle of one attempt.
pub fn attempt_dir(container: &str, attempt: u32) -> PathBuf {
    container_dir(container).join(attempt.to_string())
}

pub fn log_file(container: &str, attempt: u32) -> PathBuf {
    PathBuf::from("logs")
        .join(container)
        .join(format!("{attempt}.log"))
}

/// The older half of a rotated log.
pub fn rotated_log_file(container: &str, attempt: u32) -> PathBuf {
    PathBuf::from("logs")
        .join(container)
        .join(format!("{attempt}.log.1"))
}

/// The directory of an exec: its request and outcome.
pub fn exec_dir(id: &str) -> PathBuf {
    PathBuf::from("exec").join(id)
}

pub(crate) fn termination_file(container: &str) -> PathBuf {
    container_dir(container).join("termination-log")
}
