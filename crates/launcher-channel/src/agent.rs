//! What the guest's agent tells. All of it comes from inside the guest: the launcher bounds it,
//! and nobody believes it.

use serde::{Deserialize, Serialize};

/// What is asked again and again while the agent is connected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Agent {
    /// Commands that are needed and that this agent lacks.
    pub missing: Vec<String>,
    pub os: Option<AgentOs>,
    pub interfaces: Vec<AgentInterface>,
    /// `frozen` while file systems are held still.
    pub freeze: Option<String>,
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

/// What is asked of the agent on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AgentQuestion {
    /// All there is.
    Everything,
    Users,
    FileSystems,
    /// File systems are written out and held still until [`Self::Thaw`], or for so many seconds.
    /// Again while they are is fine, and changes how long.
    #[serde(rename_all = "camelCase")]
    Freeze {
        thaw_after_seconds: Option<u64>,
    },
    /// Again is fine.
    Thaw,
}

/// The answer; what was not asked for is empty.
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
