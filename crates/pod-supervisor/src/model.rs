//! The node's input: the sandbox once (`pod.json`), then the containers.
//!
//! Everything is resolved: numeric users, host paths, no references to Kubernetes objects.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

/// The pod itself, which the node writes to `pod.json` before it starts the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sandbox {
    pub uid: String,
    pub hostname: String,
    /// Absolute path inside every cgroup hierarchy; ends in `pod<uid>`.
    pub cgroup: String,
    pub network: NetworkMode,
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// The user of the host that is root in the pod, whose users and groups are those from it on; without it they
    /// are the host's.
    #[serde(default)]
    pub first_user: Option<u32>,
    /// The grace period after a SIGTERM to the supervisor itself.
    pub grace_seconds: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkMode {
    /// An own network namespace, with only the loopback interface.
    Pod,
    Host,
}

/// One container, complete: the supervisor needs nothing else to restart it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerSpec {
    pub name: String,
    pub args: Vec<String>,
    pub env: Vec<String>,
    pub cwd: PathBuf,
    pub user: User,
    /// The unpacked image.
    pub image_root: PathBuf,
    pub root_access: Access,
    pub mounts: Vec<Mount>,
    pub devices: Vec<Device>,
    pub security: Security,
    pub resources: Resources,
    pub rlimits: Vec<Rlimit>,
    /// How early the kernel ends it when the host runs out of memory: from -1000 (never) to 1000.
    #[serde(default)]
    pub oom_score: i32,
    /// The path of the termination message; absolute inside the container.
    pub termination_message_path: PathBuf,
    #[serde(default)]
    pub termination_message: MessageSource,
    pub restart: RestartPolicy,
    #[serde(default)]
    pub stdin: Stdin,
    #[serde(default)]
    pub terminal: Terminal,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    ReadOnly,
    ReadWrite,
}

/// A directory, file or unpacked image of the host, mounted into the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    pub source: PathBuf,
    pub destination: PathBuf,
    pub access: Access,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// Device node on the host; its numbers are read when the container is created.
    pub host_path: PathBuf,
    pub path: PathBuf,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Security {
    pub capabilities: Vec<String>,
    pub escalation: Escalation,
    pub seccomp: Seccomp,
    pub isolation: Isolation,
}

/// Whether programs in the container can gain privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Escalation {
    Allowed,
    Denied,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seccomp {
    RuntimeDefault,
    Unconfined,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Isolation {
    /// Masked kernel files, read-only `/sys`, only the requested devices.
    Confined,
    /// All devices allowed, nothing masked.
    Privileged,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    pub cpu_shares: Option<u64>,
    /// Microseconds per period of 100 ms.
    pub cpu_quota: Option<i64>,
    /// The CPUs on which it starts, such as `0-3,8`; all if `None`.
    #[serde(default)]
    pub cpus: Option<String>,
    pub memory_bytes: Option<i64>,
    pub pids: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rlimit {
    /// As in the OCI specification, for example `RLIMIT_NOFILE`.
    pub kind: String,
    pub soft: u64,
    pub hard: u64,
}

/// The standard input of a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdin {
    /// Empty.
    #[default]
    None,
    /// A pipe that never ends, for any number of writers.
    Open,
    /// A pipe that ends after its first writer.
    Once,
}

/// Whether a program has a terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Terminal {
    #[default]
    None,
    /// A new one, in the container. It is the program's standard input, output and error.
    Own,
}

/// Where the termination message comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MessageSource {
    #[default]
    File,
    /// The file, or the end of the log if the file is empty and the container failed.
    FileOrLog,
}

/// What the supervisor does when the container ends, even while the node is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}
