//! Reports of the guest agent. They come from inside the guest: the launcher bounds their size, and no
//! component trusts them.

use serde::{Deserialize, Serialize};

/// Values that the launcher polls while the agent is connected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Agent {
    /// Required commands that this agent does not support.
    pub missing: Vec<String>,
    pub os: Option<AgentOs>,
    pub interfaces: Vec<AgentInterface>,
    /// `frozen` while file systems are frozen.
    pub freeze: Option<String>,
    /// Whether the guest has its keys and passwords; `None` if there are none for the agent.
    pub credentials: Option<AgentCredentials>,
}

/// The end of the last attempt to set keys and passwords.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AgentCredentials {
    Set,
    /// With a sentence for users.
    Failed(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentOs {
    pub name: Option<String>,
    pub kernel_release: Option<String>,
    pub version: Option<String>,
    pub pretty_name: Option<String>,
    pub version_id: Option<String>,
    pub kernel_version: Option<String>,
    pub machine: Option<String>,
    pub id: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentInterface {
    pub name: String,
    pub mac: Option<String>,
    pub addresses: Vec<String>,
}

/// A query or command for the agent, on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AgentQuestion {
    /// The whole report.
    Everything,
    Users,
    FileSystems,
    /// Flushes and freezes file systems until [`Self::Thaw`] or the timeout. Idempotent; a repeated
    /// freeze sets a new timeout.
    #[serde(rename_all = "camelCase")]
    Freeze {
        thaw_after_seconds: Option<u64>,
    },
    /// Idempotent.
    Thaw,
}

/// The response; parts that were not requested are empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentReport {
    pub version: Option<String>,
    pub commands: Vec<AgentCommand>,
    pub host_name: Option<String>,
    pub os: Option<AgentOs>,
    pub timezone: Option<String>,
    pub users: Vec<AgentUser>,
    pub file_systems: Vec<AgentFileSystem>,
    pub freeze: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentCommand {
    pub name: String,
    pub enabled: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentUser {
    pub name: String,
    pub domain: Option<String>,
    pub login_time: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentFileSystem {
    pub device: String,
    pub mount_point: String,
    pub kind: String,
    pub used_bytes: i64,
    pub total_bytes: i64,
    pub disks: Vec<AgentDisk>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentDisk {
    pub serial: Option<String>,
    pub bus: String,
}
