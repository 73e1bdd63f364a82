//! `VirtualMachine`: a VM that exists whether it runs or not.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    data_volume::DataVolumeTemplateSpec, open_enum::open_enum, tolerant::null_as_default,
    vm_status::VirtualMachineStatus, vmi::VirtualMachineInstanceSpec,
};

/// `VirtualMachine`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachine {
    pub metadata: ObjectMeta,
    pub spec: VirtualMachineSpec,
    pub status: Option<VirtualMachineStatus>,
}

/// `VirtualMachineSpec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_strategy: Option<VirtualMachineRunStrategy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instancetype: Option<InstancetypeMatcher>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preference: Option<PreferenceMatcher>,
    pub template: VirtualMachineInstanceTemplateSpec,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub data_volume_templates: Vec<DataVolumeTemplateSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_volumes_strategy: Option<UpdateVolumesStrategy>,
}

/// `InstancetypeMatcher`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InstancetypeMatcher {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume_failure_policy: Option<InferFromVolumeFailurePolicy>,
}

/// `PreferenceMatcher`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PreferenceMatcher {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume_failure_policy: Option<InferFromVolumeFailurePolicy>,
}

/// `VirtualMachineInstanceTemplateSpec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceTemplateSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-preserve-unknown-fields" = true), extend("nullable" = true)))]
    pub metadata: Option<ObjectMeta>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<VirtualMachineInstanceSpec>,
}

open_enum! {
    /// Values of `VirtualMachineRunStrategy`.
    VirtualMachineRunStrategy {
        Unset = "",
        Always = "Always",
        Halted = "Halted",
        Manual = "Manual",
        RerunOnFailure = "RerunOnFailure",
        Once = "Once",
        WaitAsReceiver = "WaitAsReceiver",
    }
}

open_enum! {
    /// Values of `UpdateVolumesStrategy`.
    UpdateVolumesStrategy {
        Migration = "Migration",
        Replacement = "Replacement",
    }
}

open_enum! {
    /// Values of `InferFromVolumeFailurePolicy`.
    InferFromVolumeFailurePolicy {
        Reject = "Reject",
        Ignore = "Ignore",
    }
}
