//! Bodies of the requests to `subresources.kubevirt.io`.
//!
//! Response bodies are in other modules: `guest_agent`, `object_graph`, `confidential`, `profiler`.

use std::collections::BTreeMap;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    disks::Disk, duration::Duration, tolerant::null_as_default, volumes::HotplugVolumeSource,
};

/// Body of a start request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct StartOptions {
    /// Kind of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Group and version of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Starts the guest paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// All checks the request without carrying it out.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub dry_run: Vec<String>,
}

/// Body of a stop request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct StopOptions {
    /// Kind of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Group and version of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Seconds the guest gets to shut down by itself; 0 switches it off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<i64>,
    /// All checks the request without carrying it out.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub dry_run: Vec<String>,
}

/// Body of a restart request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RestartOptions {
    /// Kind of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Group and version of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Only 0 is allowed: switches the guest off instead of asking it to shut down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i64>,
    /// All checks the request without carrying it out.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub dry_run: Vec<String>,
}

/// Body of a pause request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PauseOptions {
    /// Kind of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Group and version of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// All checks the request without carrying it out.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub dry_run: Vec<String>,
}

/// Body of an unpause request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct UnpauseOptions {
    /// Kind of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Group and version of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// All checks the request without carrying it out.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub dry_run: Vec<String>,
}

/// `addVolumeOptions` of [`crate::vm_status::VirtualMachineVolumeRequest`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AddVolumeOptions {
    /// Name of the volume and of its disk.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// The disk as the guest is to see it.
    #[serde(deserialize_with = "null_as_default")]
    pub disk: Disk,
    /// Claim or data volume to attach.
    #[serde(deserialize_with = "null_as_default")]
    pub volume_source: HotplugVolumeSource,
    /// All checks the request without carrying it out.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub dry_run: Vec<String>,
}

/// `removeVolumeOptions` of [`crate::vm_status::VirtualMachineVolumeRequest`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RemoveVolumeOptions {
    /// Name of the volume to take away.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// All checks the request without carrying it out.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub dry_run: Vec<String>,
}

/// Body of a migrate request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MigrateOptions {
    /// Kind of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Group and version of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// All checks the request without carrying it out.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub dry_run: Vec<String>,
    /// Labels that the target node must have besides those the guest asks for.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub added_node_selector: BTreeMap<String, String>,
}

/// Body of a request that takes back an eviction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EvacuateCancelOptions {
    /// Kind of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Group and version of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// All checks the request without carrying it out.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub dry_run: Vec<String>,
    /// Node that the guest was to leave.
    #[serde(deserialize_with = "null_as_default")]
    pub evacuation_node_name: String,
}

/// Body of a freeze request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct FreezeUnfreezeTimeout {
    /// Time after which the guest's filesystems are thawed in any case; 0s for never.
    pub unfreeze_timeout: Option<Duration>,
}

/// Options of a screenshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ScreenshotOptions {
    /// Moves the guest's pointer first, to wake its screen.
    #[serde(deserialize_with = "null_as_default")]
    pub move_cursor: bool,
}

/// Options of a connection to a VSOCK port of the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VSOCKOptions {
    /// Port in the guest.
    #[serde(deserialize_with = "null_as_default")]
    pub target_port: u32,
    /// Whether the guest's end speaks TLS.
    #[serde(rename = "useTLS", skip_serializing_if = "Option::is_none")]
    pub use_tls: Option<bool>,
}
