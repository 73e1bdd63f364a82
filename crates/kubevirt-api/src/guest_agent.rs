//! Reports of the guest agent, as the subresources guestosinfo, userlist and filesystemlist return
//! them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{number, tolerant::null_as_default, vmi_status::VirtualMachineInstanceGuestOsInfo};

/// Everything that the agent reports about its guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceGuestAgentInfo {
    /// Kind of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Group and version of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Version of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_agent_version: Option<String>,
    /// Commands that the agent knows.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub supported_commands: Vec<GuestAgentCommandInfo>,
    /// Host name, as the guest has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The operating system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os: Option<VirtualMachineInstanceGuestOsInfo>,
    /// Time zone with its offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// Users that are logged in.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub user_list: Vec<VirtualMachineInstanceGuestOsUser>,
    /// Filesystems that are mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_info: Option<VirtualMachineInstanceFileSystemInfo>,
    /// frozen while the filesystems are held still for a backup.
    #[serde(rename = "fsFreezeStatus", skip_serializing_if = "Option::is_none")]
    pub fs_freeze_status: Option<String>,
}

/// A command of the agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct GuestAgentCommandInfo {
    /// Name of the command.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// Whether the agent may carry it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// Users that are logged in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceGuestOSUserList {
    /// Kind of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Group and version of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ListMeta>,
    /// The users.
    #[serde(deserialize_with = "null_as_default")]
    pub items: Vec<VirtualMachineInstanceGuestOsUser>,
}

/// A user that is logged in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceGuestOsUser {
    /// Name of the user.
    #[serde(deserialize_with = "null_as_default")]
    pub user_name: String,
    /// Windows domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Seconds since 1970.
    #[serde(
        serialize_with = "number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub login_time: Option<f64>,
}

/// Filesystems that are mounted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceFileSystemInfo {
    /// The filesystems.
    #[serde(deserialize_with = "null_as_default")]
    pub disks: Vec<VirtualMachineInstanceFileSystem>,
}

/// Filesystems that are mounted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceFileSystemList {
    /// Kind of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Group and version of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ListMeta>,
    /// The filesystems.
    #[serde(deserialize_with = "null_as_default")]
    pub items: Vec<VirtualMachineInstanceFileSystem>,
}

/// A mounted filesystem.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceFileSystem {
    /// Name of the device in the guest.
    #[serde(deserialize_with = "null_as_default")]
    pub disk_name: String,
    /// Where it is mounted.
    #[serde(deserialize_with = "null_as_default")]
    pub mount_point: String,
    /// Its type, such as ext4.
    #[serde(deserialize_with = "null_as_default")]
    pub file_system_type: String,
    /// Bytes in use.
    #[serde(deserialize_with = "null_as_default")]
    pub used_bytes: i64,
    /// Bytes in all.
    #[serde(deserialize_with = "null_as_default")]
    pub total_bytes: i64,
    /// Disks that it lies on.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub disk: Vec<VirtualMachineInstanceFileSystemDisk>,
}

/// A disk that a filesystem lies on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceFileSystemDisk {
    /// Serial number of the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Bus of the disk.
    #[serde(deserialize_with = "null_as_default")]
    pub bus_type: String,
}
