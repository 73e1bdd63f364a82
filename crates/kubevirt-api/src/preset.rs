//! `VirtualMachineInstancePreset`: defaults for instances with certain labels. Superseded by
//! instance types and preferences; the kind is served for old manifests.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::crds::rules;
use crate::tolerant::null_as_default;
use crate::{domain::DomainSpec, resource::kind};

/// Defaults for instances with certain labels.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstancePreset {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VirtualMachineInstancePresetSpec,
}

kind!(VirtualMachineInstancePreset {
    group: "kubevirt.io",
    version: "v1",
    plural: "virtualmachineinstancepresets",
    scope: NamespaceResourceScope,
    spec: VirtualMachineInstancePresetSpec,
});

/// Which instances are meant and what they are given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [rules::rule("has(self.domain)", "give domain, the settings that the preset stands for")])))]
pub struct VirtualMachineInstancePresetSpec {
    /// Labels of the instances that are meant.
    #[serde(deserialize_with = "null_as_default")]
    pub selector: LabelSelector,
    /// Machine settings that such an instance was given where it had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<DomainSpec>,
}
