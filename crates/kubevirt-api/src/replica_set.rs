//! `VirtualMachineInstanceReplicaSet`: keeps a number of equal guests running.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    conditions::condition, open_enum::open_enum, resource::kind, tolerant::null_as_default,
    vm::VirtualMachineInstanceTemplateSpec,
};

/// A number of equal guests that are kept running; one that ends is replaced.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceReplicaSet {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VirtualMachineInstanceReplicaSetSpec,
    pub status: Option<VirtualMachineInstanceReplicaSetStatus>,
}

kind!(VirtualMachineInstanceReplicaSet {
    group: "kubevirt.io",
    version: "v1",
    plural: "virtualmachineinstancereplicasets",
    scope: NamespaceResourceScope,
    spec: VirtualMachineInstanceReplicaSetSpec,
    status: VirtualMachineInstanceReplicaSetStatus,
});

/// How many guests there should be and what they are made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceReplicaSetSpec {
    /// Number of guests; 1 when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Labels of the guests that belong to the set. The template must carry them; the selector
    /// cannot be changed.
    #[serde(deserialize_with = "null_as_default")]
    pub selector: LabelSelector,
    /// The instance that is made for each guest.
    #[serde(deserialize_with = "null_as_default")]
    pub template: VirtualMachineInstanceTemplateSpec,
    /// Leaves the guests alone while true: none is made, none removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// Observed state of a set; written by the controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceReplicaSetStatus {
    /// Guests that exist and have not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Guests that are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// Details of the state, one entry per type.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<VirtualMachineInstanceReplicaSetCondition>,
    /// The selector as text, for autoscalers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
}

/// One aspect of the state of a set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceReplicaSetCondition {
    /// What it is about.
    #[serde(deserialize_with = "null_as_default", rename = "type")]
    pub type_: VirtualMachineInstanceReplicaSetConditionType,
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
    VirtualMachineInstanceReplicaSetCondition,
    VirtualMachineInstanceReplicaSetConditionType
);

open_enum! {
    /// Aspects of the state of a set; the order is that of lists of conditions.
    VirtualMachineInstanceReplicaSetConditionType {
        ReplicaFailure = "ReplicaFailure",
        ReplicaPaused = "ReplicaPaused",
    }
}
