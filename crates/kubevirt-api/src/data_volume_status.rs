//! `DataVolume`: a claim that an importer populates, as its own object, and the progress of the
//! importer. The part that a VM can embed is in `data_volume`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    conditions::condition, data_volume::DataVolumeSpec, open_enum::open_enum, resource::kind,
    tolerant::null_as_default,
};

/// A claim and what fills it. Made from a VM's `dataVolumeTemplates`, or by people.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolume {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: DataVolumeSpec,
    pub status: Option<DataVolumeStatus>,
}

kind!(DataVolume {
    group: "cdi.kubevirt.io",
    version: "v1beta1",
    plural: "datavolumes",
    scope: NamespaceResourceScope,
    spec: DataVolumeSpec,
    status: DataVolumeStatus,
});

/// How far the importer has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeStatus {
    /// The claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// Phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<DataVolumePhase>,
    /// Percentage such as 42.0%, or N/A.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// How often the importer's pod was restarted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_count: Option<i32>,
    /// Ready, Bound and Running.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<DataVolumeCondition>,
}

/// One statement on a data volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeCondition {
    /// Ready, Bound or Running.
    #[serde(deserialize_with = "null_as_default", rename = "type")]
    pub type_: DataVolumeConditionType,
    /// True, False or Unknown.
    #[serde(deserialize_with = "null_as_default")]
    pub status: String,
    /// When `status` last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// When it was last checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<Time>,
    /// Stable CamelCase name for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

condition!(DataVolumeCondition, DataVolumeConditionType);

open_enum! {
    /// Phases of a data volume.
    DataVolumePhase {
        Unset = "",
        Pending = "Pending",
        PvcBound = "PVCBound",
        ImportScheduled = "ImportScheduled",
        ImportInProgress = "ImportInProgress",
        CloneScheduled = "CloneScheduled",
        CloneInProgress = "CloneInProgress",
        SnapshotForSmartCloneInProgress = "SnapshotForSmartCloneInProgress",
        CloneFromSnapshotSourceInProgress = "CloneFromSnapshotSourceInProgress",
        SmartClonePvcInProgress = "SmartClonePVCInProgress",
        CsiCloneInProgress = "CSICloneInProgress",
        ExpansionInProgress = "ExpansionInProgress",
        NamespaceTransferInProgress = "NamespaceTransferInProgress",
        UploadScheduled = "UploadScheduled",
        UploadReady = "UploadReady",
        WaitForFirstConsumer = "WaitForFirstConsumer",
        PendingPopulation = "PendingPopulation",
        Succeeded = "Succeeded",
        Failed = "Failed",
        Unknown = "Unknown",
        Paused = "Paused",
        PrepClaimInProgress = "PrepClaimInProgress",
        RebindInProgress = "RebindInProgress",
    }
}

open_enum! {
    /// Types of conditions of data volumes.
    DataVolumeConditionType {
        Ready = "Ready",
        Bound = "Bound",
        Running = "Running",
    }
}
