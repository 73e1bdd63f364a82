//! Conditions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{conditions::condition, open_enum::open_enum, tolerant::null_as_default};

/// One aspect of the state of an instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceCondition {
    /// What it is about.
    #[serde(deserialize_with = "null_as_default", rename = "type")]
    pub type_: VirtualMachineInstanceConditionType,
    /// True, False or Unknown.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["True", "False", "Unknown"])))]
    #[serde(deserialize_with = "null_as_default")]
    pub status: String,
    /// Not in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub last_probe_time: Option<Time>,
    /// When status changed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub last_transition_time: Option<Time>,
    /// Reason as a stable CamelCase name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

condition!(
    VirtualMachineInstanceCondition,
    VirtualMachineInstanceConditionType
);

open_enum! {
    /// Aspects of the state of an instance; the order is that of lists of conditions.
    VirtualMachineInstanceConditionType {
        Provisioning = "Provisioning",
        Ready = "Ready",
        Synchronized = "Synchronized",
        Paused = "Paused",
        AgentConnected = "AgentConnected",
        AccessCredentialsSynchronized = "AccessCredentialsSynchronized",
        AgentVersionNotSupported = "AgentVersionNotSupported",
        LiveMigratable = "LiveMigratable",
        HotVCPUChange = "HotVCPUChange",
        HotMemoryChange = "HotMemoryChange",
        VolumesChange = "VolumesChange",
        DataVolumesReady = "DataVolumesReady",
        StorageLiveMigratable = "StorageLiveMigratable",
        DecentralizedLiveMigrationFailure = "DecentralizedLiveMigrationFailure",
        MigrationRequired = "MigrationRequired",
        EvictionRequested = "EvictionRequested",
        SoftwareEmulation = "SoftwareEmulation",
    }
}
