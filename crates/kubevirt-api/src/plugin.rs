//! Plugins: hooks that change guests' definitions or act on nodes (`plugin.kubevirt.io`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{duration::Duration, open_enum::open_enum, resource::kind, tolerant::null_as_default};

/// Hooks into the life of VMs: programs and expressions that change a guest's definition, or that
/// are called on its node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Plugin {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: PluginSpec,
    pub status: Option<PluginStatus>,
}

kind!(Plugin {
    group: "plugin.kubevirt.io",
    version: "v1alpha1",
    plural: "plugins",
    scope: ClusterResourceScope,
    spec: PluginSpec,
    status: PluginStatus,
});

/// Which hooks there are, and for which VMs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PluginSpec {
    /// CEL expression over the VM's instance; the plugin only concerns those for which it is true.
    /// All when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// What a failing hook does: Fail keeps the guest from starting, Ignore continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_strategy: Option<FailureStrategy>,
    /// Hooks that change the guest's definition before it starts.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub domain_hooks: Vec<DomainHook>,
    /// Programs on the node that are called at certain moments.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub node_hooks: Vec<NodeHook>,
    /// Policies that belong to the plugin.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub mutating_admission_policies: Vec<AdmissionReference>,
    /// Policies that belong to the plugin.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub validating_admission_policies: Vec<AdmissionReference>,
    /// Webhooks that belong to the plugin.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub mutating_admission_webhooks: Vec<AdmissionReference>,
    /// Webhooks that belong to the plugin.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub validating_admission_webhooks: Vec<AdmissionReference>,
}

/// Changes a guest's definition; one of cel and sidecar.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DomainHook {
    /// By an expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cel: Option<CelDomainHook>,
    /// By a program beside the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<SidecarDomainHook>,
    /// CEL expression over the VM's instance; the hook is only used where it is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// Fail or Ignore; the plugin's when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_strategy: Option<FailureStrategy>,
    /// How long the hook may take, such as 10s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
}

/// Changes a guest's definition by an expression.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CelDomainHook {
    /// CEL expression that gives the changed definition.
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    #[serde(deserialize_with = "null_as_default")]
    pub expression: String,
}

/// Changes a guest's definition by a program in a container of its pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SidecarDomainHook {
    /// Socket that the program listens on: `/var/run/kubevirt-plugin/`, the plugin's name, and a
    /// file that ends in .sock.
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    #[serde(deserialize_with = "null_as_default")]
    pub socket_path: String,
}

/// A program on the node that is called at certain moments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct NodeHook {
    /// Socket on the node that the program listens on.
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    #[serde(deserialize_with = "null_as_default")]
    pub socket: String,
    /// The moments at which it is called.
    #[serde(deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(extend("minItems" = 1), extend("x-kubernetes-list-type" = "atomic")))]
    pub permitted_hooks: Vec<NodeHookPoint>,
    /// CEL expression over the VM's instance; the hook is only called where it is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// Fail or Ignore; the plugin's when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_strategy: Option<FailureStrategy>,
    /// How long the hook may take, such as 10s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
}

/// An object that belongs to the plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionReference {
    /// Its name.
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
}

/// Nothing yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PluginStatus {}

open_enum! {
    /// What a failing hook does.
    FailureStrategy {
        Fail = "Fail",
        Ignore = "Ignore",
    }
}

open_enum! {
    /// Why a domain hook is called.
    InvocationContext {
        Boot = "Boot",
        MigrationSource = "MigrationSource",
        MigrationTarget = "MigrationTarget",
    }
}

open_enum! {
    /// Moments at which a node hook is called.
    NodeHookPoint {
        PreVmStart = "PreVMStart",
        PostVmStart = "PostVMStart",
        PreVmStop = "PreVMStop",
        PostVmStop = "PostVMStop",
        PreMigrationSource = "PreMigrationSource",
        PreMigrationTarget = "PreMigrationTarget",
        PostMigrationTarget = "PostMigrationTarget",
    }
}
