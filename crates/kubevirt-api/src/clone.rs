//! Clones: a new VM made from another or from a snapshot (`clone.kubevirt.io`).
//!
//! v1alpha1 is served with the schema of v1beta1; clients of the older version do not set
//! `patches` and `volumeNamePolicy`.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::TypedLocalObjectReference,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    conditions::condition, open_enum::open_enum, resource::kind, tolerant::null_as_default,
};

/// Makes a new VM from a VM or a snapshot, with its own disks.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineClone {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VirtualMachineCloneSpec,
    pub status: Option<VirtualMachineCloneStatus>,
}

kind!(VirtualMachineClone {
    group: "clone.kubevirt.io",
    version: "v1beta1",
    plural: "virtualmachineclones",
    scope: NamespaceResourceScope,
    spec: VirtualMachineCloneSpec,
    status: VirtualMachineCloneStatus,
});

/// What to copy, where to, and what to leave out or change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineCloneSpec {
    /// What to copy: apiGroup `kubevirt.io` and kind `VirtualMachine`, or apiGroup
    /// `snapshot.kubevirt.io` and kind `VirtualMachineSnapshot`, and the name.
    #[serde(deserialize_with = "null_as_default")]
    pub source: TypedLocalObjectReference,
    /// The new VM: apiGroup `kubevirt.io`, kind `VirtualMachine` and its name; a name is generated
    /// when this is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<TypedLocalObjectReference>,
    /// Which annotations of the VM are copied; all if the list is empty. Each entry is a regular
    /// expression that may match anywhere in a name, and `*` alone matches every name. Names that match
    /// an entry with a leading ! are left out.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub annotation_filters: Vec<String>,
    /// Which labels of the VM are copied; written like `annotationFilters`.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub label_filters: Vec<String>,
    /// Filters for the labels and annotations of the VM's template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<VirtualMachineCloneTemplateFilters>,
    /// MAC addresses of the new VM, by interface name. An interface that is not named here loses
    /// its address and gets another.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub new_mac_addresses: BTreeMap<String, String>,
    /// Serial number that the new guest reads in SMBIOS; a new one is made when unset.
    #[serde(rename = "newSMBiosSerial", skip_serializing_if = "Option::is_none")]
    pub new_smbios_serial: Option<String>,
    /// JSON patch operations for the definition of the new VM, each a text such as
    /// `{"op": "replace", "path": "/spec/runStrategy", "value": "Halted"}`.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub patches: Vec<String>,
    /// Names of the new volumes: `RandomizeNames` (the default) makes new ones, `PrefixTargetName`
    /// puts the new VM's name in front.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_name_policy: Option<VolumeNamePolicy>,
}

/// Metadata of the VM's template that is copied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineCloneTemplateFilters {
    /// Which annotations are copied.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub annotation_filters: Vec<String>,
    /// Which labels are copied.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub label_filters: Vec<String>,
}

/// How far a clone has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineCloneStatus {
    /// When the new VM was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub creation_time: Option<Time>,
    /// Phase of the clone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<VirtualMachineClonePhase>,
    /// Ready and Progressing.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub conditions: Vec<Condition>,
    /// Snapshot it made of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub snapshot_name: Option<String>,
    /// Restore it made for the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub restore_name: Option<String>,
    /// Name of the new VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub target_name: Option<String>,
}

/// One statement on a clone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Ready or Progressing.
    #[serde(deserialize_with = "null_as_default", rename = "type")]
    pub type_: ConditionType,
    /// True, False or Unknown.
    #[serde(deserialize_with = "null_as_default")]
    pub status: String,
    /// When it was last checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub last_probe_time: Option<Time>,
    /// When `status` last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub last_transition_time: Option<Time>,
    /// Stable CamelCase name for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

condition!(Condition, ConditionType);

open_enum! {
    /// How the volumes of a clone are named.
    VolumeNamePolicy {
        RandomizeNames = "RandomizeNames",
        PrefixTargetName = "PrefixTargetName",
    }
}

open_enum! {
    /// Phases of a clone.
    VirtualMachineClonePhase {
        Unset = "",
        SnapshotInProgress = "SnapshotInProgress",
        CreatingTargetVm = "CreatingTargetVM",
        RestoreInProgress = "RestoreInProgress",
        Succeeded = "Succeeded",
        Failed = "Failed",
        Unknown = "Unknown",
    }
}

open_enum! {
    /// Types of conditions of clones.
    ConditionType {
        Ready = "Ready",
        Progressing = "Progressing",
    }
}
