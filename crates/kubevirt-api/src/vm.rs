//! `VirtualMachine`: a VM that exists whether it runs or not.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::crds::rules;
use crate::{
    data_volume::DataVolumeTemplateSpec, open_enum::open_enum, resource::kind,
    tolerant::null_as_default, vm_status::VirtualMachineStatus, vmi::VirtualMachineInstanceSpec,
};

/// A VM that exists whether its guest runs or not; it makes a `VirtualMachineInstance` whenever
/// the guest should run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachine {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VirtualMachineSpec,
    pub status: Option<VirtualMachineStatus>,
}

kind!(VirtualMachine {
    group: "kubevirt.io",
    version: "v1",
    plural: "virtualmachines",
    scope: NamespaceResourceScope,
    spec: VirtualMachineSpec,
    status: VirtualMachineStatus,
});

/// What the user wants of a VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [rules::exactly_one(&["running", "runStrategy"])])))]
pub struct VirtualMachineSpec {
    /// Older switch: true means `runStrategy` Always, false means Halted. Give either this or
    /// `runStrategy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<bool>,
    /// When the guest runs: Always (restart in any case), `RerunOnFailure` (restart only
    /// after a failure), Manual (only start and stop requests count), Once (run to its end,
    /// never again) or Halted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_strategy: Option<VirtualMachineRunStrategy>,
    /// The instance type that gives the guest its size; fields it sets may not be set in the
    /// template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instancetype: Option<InstancetypeMatcher>,
    /// The preference that fills devices and features the template leaves open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preference: Option<PreferenceMatcher>,
    /// The instance that is made at each start.
    #[serde(deserialize_with = "null_as_default")]
    pub template: VirtualMachineInstanceTemplateSpec,
    /// Data volumes made together with the VM and owned by it; refer to them by name in the
    /// template's volumes.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub data_volume_templates: Vec<DataVolumeTemplateSpec>,
    /// What happens when volumes of a running VM are replaced: Migration copies the data,
    /// Replacement takes the new ones at the next start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_volumes_strategy: Option<UpdateVolumesStrategy>,
}

/// Chooses an instance type, by name or from a volume's labels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InstancetypeMatcher {
    /// Name of the instance type. Not together with `inferFromVolume`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `VirtualMachineInstancetype` (in the namespace) or `VirtualMachineClusterInstancetype`
    /// (the default).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// `ControllerRevision` that holds the copy in use; normally written by the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_name: Option<String>,
    /// Volume of the template whose labels name the instance type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume: Option<String>,
    /// Reject (the default) refuses the VM when nothing can be inferred, Ignore continues
    /// without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume_failure_policy: Option<InferFromVolumeFailurePolicy>,
}

/// Chooses a preference, by name or from a volume's labels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PreferenceMatcher {
    /// Name of the preference. Not together with `inferFromVolume`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `VirtualMachinePreference` (in the namespace) or `VirtualMachineClusterPreference` (the
    /// default).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// `ControllerRevision` that holds the copy in use; normally written by the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_name: Option<String>,
    /// Volume of the template whose labels name the preference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume: Option<String>,
    /// Reject (the default) refuses the VM when nothing can be inferred, Ignore continues
    /// without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_from_volume_failure_policy: Option<InferFromVolumeFailurePolicy>,
}

/// What each instance of a VM is made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceTemplateSpec {
    /// Labels and annotations for the instance and its pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-preserve-unknown-fields" = true), extend("nullable" = true)))]
    pub metadata: Option<ObjectMeta>,
    /// The instance itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<VirtualMachineInstanceSpec>,
}

open_enum! {
    /// When the guest of a VM runs.
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
    /// Values of `updateVolumesStrategy`.
    UpdateVolumesStrategy {
        Migration = "Migration",
        Replacement = "Replacement",
    }
}

open_enum! {
    /// Values of `inferFromVolumeFailurePolicy`.
    InferFromVolumeFailurePolicy {
        Reject = "Reject",
        Ignore = "Ignore",
    }
}
