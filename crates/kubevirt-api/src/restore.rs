//! Restores: a VM is reset to a snapshot, or a new VM is created from one (`snapshot.kubevirt.io`).
//!
//! v1alpha1 is served with the schema of v1beta1, so objects written there may use the policies
//! and overrides that only v1beta1 documents.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::TypedLocalObjectReference,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{open_enum::open_enum, resource::kind, snapshot::Condition, tolerant::null_as_default};

/// Takes a VM back to a snapshot, or makes a new VM from one.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineRestore {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VirtualMachineRestoreSpec,
    pub status: Option<VirtualMachineRestoreStatus>,
}

kind!(VirtualMachineRestore {
    group: "snapshot.kubevirt.io",
    version: "v1beta1",
    plural: "virtualmachinerestores",
    scope: NamespaceResourceScope,
    spec: VirtualMachineRestoreSpec,
    status: VirtualMachineRestoreStatus,
});

/// Which VM gets which snapshot, and how its volumes are named; fixed once made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineRestoreSpec {
    /// The VM to restore: apiGroup `kubevirt.io`, kind `VirtualMachine` and a name. A name that no
    /// VM has makes a new one.
    #[serde(deserialize_with = "null_as_default")]
    pub target: TypedLocalObjectReference,
    /// Snapshot in the same namespace to take the data from.
    #[serde(deserialize_with = "null_as_default")]
    pub virtual_machine_snapshot_name: String,
    /// What to do about a target that is still running: `WaitGracePeriod` (the default) waits five
    /// minutes for it to stop, `StopTarget` stops it, `FailImmediate` fails at once,
    /// `WaitEventually` waits for as long as it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("x-default" = "WaitGracePeriod")))]
    pub target_readiness_policy: Option<TargetReadinessPolicy>,
    /// Names of the restored volumes: `RandomizeNames` (the default) makes new ones,
    /// `PrefixTargetName` puts the VM's name in front of the volume's, `InPlace` overwrites the
    /// claims of the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_restore_policy: Option<VolumeRestorePolicy>,
    /// Who owns restored volumes: Vm (the default; they go with it) or None.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_ownership_policy: Option<VolumeOwnershipPolicy>,
    /// Exceptions for single volumes.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub volume_restore_overrides: Vec<VolumeRestoreOverride>,
    /// JSON patch operations for the VM's definition before it is made, each a text such as
    /// `{"op": "replace", "path": "/spec/runStrategy", "value": "Halted"}`. Paths under `/spec/`,
    /// `/metadata/labels/` and `/metadata/annotations/` only.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub patches: Vec<String>,
}

/// How one volume is restored. Give at least one of `restoreName`, labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeRestoreOverride {
    /// Volume of the VM that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_name: Option<String>,
    /// Name of the restored claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_name: Option<String>,
    /// Labels to put on the restored claim.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub labels: BTreeMap<String, String>,
    /// Annotations to put on the restored claim.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
}

/// How far a restore has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineRestoreStatus {
    /// Each volume.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub restores: Vec<VolumeRestore>,
    /// When it was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_time: Option<Time>,
    /// Data volumes that were removed because restored claims took their place.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "set")))]
    pub deleted_data_volumes: Vec<String>,
    /// True once the VM may be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// Ready, Progressing and Failure.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub conditions: Vec<Condition>,
}

/// One restored volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeRestore {
    /// Volume of the VM.
    #[serde(deserialize_with = "null_as_default")]
    pub volume_name: String,
    /// The claim made for it.
    #[serde(deserialize_with = "null_as_default")]
    pub persistent_volume_claim: String,
    /// `VolumeSnapshot` that the data came from.
    #[serde(deserialize_with = "null_as_default")]
    pub volume_snapshot_name: String,
    /// Data volume that the claim belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_volume_name: Option<String>,
}

open_enum! {
    /// What a restore does about a target that is running.
    TargetReadinessPolicy {
        StopTarget = "StopTarget",
        WaitGracePeriod = "WaitGracePeriod",
        FailImmediate = "FailImmediate",
        WaitEventually = "WaitEventually",
    }
}

open_enum! {
    /// How restored volumes are named.
    VolumeRestorePolicy {
        RandomizeNames = "RandomizeNames",
        InPlace = "InPlace",
        PrefixTargetName = "PrefixTargetName",
    }
}

open_enum! {
    /// Who owns restored volumes.
    VolumeOwnershipPolicy {
        Vm = "Vm",
        None = "None",
    }
}
