//! Templates of VMs with parameters, and requests to make a template from a VM (`template.kubevirt.io`).
//!
//! v1alpha1 and v1beta1 have one schema; the older is stored and deprecated.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::LocalObjectReference,
    apimachinery::pkg::{
        apis::meta::v1::{Condition, ObjectMeta},
        runtime::RawExtension,
    },
};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::crds::rules;
use crate::{open_enum::open_enum, resource::kind, tolerant::null_as_default};

/// A VM with blanks, and the parameters that fill them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineTemplate {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VirtualMachineTemplateSpec,
    pub status: Option<VirtualMachineTemplateStatus>,
}

kind!(VirtualMachineTemplate {
    group: "template.kubevirt.io",
    version: "v1alpha1",
    plural: "virtualmachinetemplates",
    scope: NamespaceResourceScope,
    spec: VirtualMachineTemplateSpec,
    status: VirtualMachineTemplateStatus,
});

/// The VM, its parameters and a message for its users.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineTemplateSpec {
    /// The VM, with `${NAME}` wherever the text of a parameter goes, and `${{NAME}}` as a whole
    /// value where a number or a truth value goes. A namespace without a parameter in it is left
    /// out of VMs that are made.
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-preserve-unknown-fields" = true)))]
    #[serde(deserialize_with = "null_as_default")]
    pub virtual_machine: RawExtension,
    /// What may be filled in.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub parameters: Vec<Parameter>,
    /// Shown to the user who creates a VM from it; parameters are filled in here too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A value that replaces its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Parameter {
    /// Letters, digits and _; the VM refers to it as `${NAME}`.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// What a user interface calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Default value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Generates a value when there is none: `expression`, from the pattern in `from`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generate: Option<Generator>,
    /// Pattern of a generated value: characters in brackets and how many in braces, such as
    /// `web-[a-z0-9]{6}`; \\w, \\d, \\a and \\A stand for word characters, digits, letters with
    /// digits, and signs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = r"\[([a-zA-Z0-9\-\\]+)\](\{(\w+)\})")))]
    pub from: Option<String>,
    /// Whether it must have a value, given or generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
}

open_enum! {
    /// How a value is generated.
    Generator {
        Expression = "expression",
    }
}

/// Whether the template can be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineTemplateStatus {
    /// Ready.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])))]
    pub conditions: Vec<Condition>,
}

/// Asks for a template made of a VM.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineTemplateRequest {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VirtualMachineTemplateRequestSpec,
    pub status: Option<VirtualMachineTemplateRequestStatus>,
}

kind!(VirtualMachineTemplateRequest {
    group: "template.kubevirt.io",
    version: "v1alpha1",
    plural: "virtualmachinetemplaterequests",
    scope: NamespaceResourceScope,
    spec: VirtualMachineTemplateRequestSpec,
    status: VirtualMachineTemplateRequestStatus,
});

/// Which VM, and what the template is called.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [rules::immutable("the spec of a request", "delete it and create another")])))]
pub struct VirtualMachineTemplateRequestSpec {
    /// The VM to copy.
    #[serde(deserialize_with = "null_as_default")]
    pub virtual_machine_ref: VirtualMachineReference,
    /// Name of the template; that of the request when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_name: Option<String>,
    /// Labels of the template.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [rules::rule("self.all(key, !key.startsWith('template.kubevirt.io/'))", "labels that begin with template.kubevirt.io/ are set by the system; take them out")])))]
    pub template_labels: BTreeMap<String, String>,
    /// Seconds after which the request is removed once it is done; it stays when unset or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub ttl_seconds_after_finished: Option<i32>,
}

/// A VM, maybe of another namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [rules::rule("has(self.name) && size(self.name) > 0 && has(self.namespace) && size(self.namespace) > 0", "give namespace and name of the VM to copy")])))]
pub struct VirtualMachineReference {
    /// Namespace of the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// How far the template has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineTemplateRequestStatus {
    /// Ready and Progressing.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])))]
    pub conditions: Vec<Condition>,
    /// The template that was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_ref: Option<LocalObjectReference>,
}

/// Body of the requests that fill in a template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessOptions {
    /// Kind of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Group and version of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Values by the names of their parameters; the others have their defaults or are generated.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub parameters: BTreeMap<String, String>,
}
