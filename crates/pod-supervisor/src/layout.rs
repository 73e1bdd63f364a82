//! Where things lie in a pod's directory. The node and the supervisor share this and nothing else.

use std::path::PathBuf;

/// The sandbox, written by the node.
pub const SANDBOX_FILE: &str = "pod.json";
/// The status, written by the supervisor.
pub const STATUS_FILE: &str = "status.json";
pub const CONTROL_SOCKET: &str = "control.sock";
/// Held locked by the living supervisor, so that there is never a second one.
pub const LOCK_FILE: &str = "supervisor.lock";
/// What the supervisor has to say for itself.
pub const SUPERVISOR_LOG: &str = "supervisor.log";

/// All of these are relative to the pod's directory.
pub fn container_dir(container: &str) -> PathBuf {
    PathBuf::from("containers").join(container)
}

pub fn spec_file(container: &str) -> PathBuf {
    container_dir(container).join("spec.json")
}

/// Writable layer, pipes and bundle of one attempt.
pub fn attempt_dir(container: &str, attempt: u32) -> PathBuf {
    container_dir(container).join(attempt.to_string())
}

pub fn log_file(container: &str, attempt: u32) -> PathBuf {
    PathBuf::from("logs")
        .join(container)
        .join(format!("{attempt}.log"))
}

/// The older half of a log that grew past its bound.
pub fn rotated_log_file(container: &str, attempt: u32) -> PathBuf {
    PathBuf::from("logs")
        .join(container)
        .join(format!("{attempt}.log.1"))
}

/// One more program in a container: what is asked for and what became of it.
pub fn exec_dir(id: &str) -> PathBuf {
    PathBuf::from("exec").join(id)
}

pub(crate) fn termination_file(container: &str) -> PathBuf {
    container_dir(container).join("termination-log")
}
