//! Pools: a fixed number of similar VMs (`pool.kubevirt.io`). v1alpha1 and v1beta1 are the same.

use k8s_openapi::{
    api::core::v1::NodeSelectorRequirement,
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, ObjectMeta, Time},
        util::intstr::IntOrString,
    },
};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    conditions::condition, duration::Duration, open_enum::open_enum, resource::kind,
    tolerant::null_as_default, vm::VirtualMachineSpec,
};

/// Keeps a number of VMs from one template, each with its own name and disks.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePool {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VirtualMachinePoolSpec,
    pub status: Option<VirtualMachinePoolStatus>,
}

kind!(VirtualMachinePool {
    group: "pool.kubevirt.io",
    version: "v1beta1",
    plural: "virtualmachinepools",
    scope: NamespaceResourceScope,
    spec: VirtualMachinePoolSpec,
    status: VirtualMachinePoolStatus,
});

/// How many VMs of what kind, and how they come and go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolSpec {
    /// Number of VMs; 1 when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 0)))]
    pub replicas: Option<i32>,
    /// Labels by which the pool knows its VMs; must match the template's labels and may not be
    /// changed.
    #[serde(deserialize_with = "null_as_default")]
    pub selector: LabelSelector,
    /// The VM that each member is made like.
    #[serde(deserialize_with = "null_as_default")]
    pub virtual_machine_template: VirtualMachineTemplateSpec,
    /// Stops the pool from making, changing or removing VMs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// How what VMs refer to is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_generation: Option<VirtualMachinePoolNameGeneration>,
    /// How many VMs may be out of service while the pool updates them: a number, or a percentage
    /// from 1% to 100% (the default).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// How VMs are removed when there are too many. Give one of its members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_in_strategy: Option<VirtualMachinePoolScaleInStrategy>,
    /// How VMs get a changed template. Give one of its members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<VirtualMachinePoolUpdateStrategy>,
    /// When VMs that do not start are replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autohealing: Option<VirtualMachinePoolAutohealingStrategy>,
}

/// What each VM of a pool is made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineTemplateSpec {
    /// Labels and annotations for the VMs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-preserve-unknown-fields" = true), extend("nullable" = true)))]
    pub metadata: Option<ObjectMeta>,
    /// The VM itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<VirtualMachineSpec>,
}

/// How what VMs refer to is named.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolNameGeneration {
    /// Adds a VM's number to the names of the config maps it uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_index_to_config_map_refs: Option<bool>,
    /// Adds a VM's number to the names of the secrets it uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_index_to_secret_refs: Option<bool>,
}

/// When VMs that do not start are replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolAutohealingStrategy {
    /// After so many failed starts in a row, 1 or more; 3 when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1)))]
    pub start_up_failure_threshold: Option<u32>,
    /// After failing for so long, such as 5m (the default).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_failing_to_start_duration: Option<Duration>,
}

/// How VMs are removed when there are too many: one of unmanaged, opportunistic and proactive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolScaleInStrategy {
    /// The pool removes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmanaged: Option<VirtualMachinePoolUnmanagedStrategy>,
    /// The pool removes none; users remove VMs, and it replaces them only while there are too few.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opportunistic: Option<VirtualMachinePoolOpportunisticScaleInStrategy>,
    /// The pool removes VMs even while they run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proactive: Option<VirtualMachinePoolProactiveScaleInStrategy>,
}

/// Users remove VMs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolOpportunisticScaleInStrategy {
    /// What stays of a removed VM for the next one of its number: Disabled (the default; nothing),
    /// Offline or Online (its disks).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

/// Removes VMs even while they run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolProactiveScaleInStrategy {
    /// Which VMs go first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selection_policy: Option<VirtualMachinePoolSelectionPolicy>,
    /// What stays of a removed VM for the next one of its number: Disabled (the default; nothing),
    /// Offline or Online (its disks).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

/// Which VMs come first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolSelectionPolicy {
    /// The order: Random (the default), `AscendingOrder` and `DescendingOrder` by number, Newest or
    /// Oldest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort_policy: Option<VirtualMachinePoolSortPolicy>,
    /// Only VMs that these match are taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selectors: Option<VirtualMachinePoolSelectors>,
}

/// Chooses VMs; all that is given has to match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolSelectors {
    /// By their labels and those of their template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// By the node selector of their template.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub node_selector_requirement_matcher: Vec<NodeSelectorRequirement>,
}

/// How VMs get a changed template: one of unmanaged, opportunistic and proactive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolUpdateStrategy {
    /// VMs keep what they were made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmanaged: Option<VirtualMachinePoolUnmanagedStrategy>,
    /// VMs are changed, and running guests follow at their next start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opportunistic: Option<VirtualMachineOpportunisticUpdateStrategy>,
    /// VMs are changed and running guests are restarted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proactive: Option<VirtualMachinePoolProactiveUpdateStrategy>,
}

/// Leaves VMs alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolUnmanagedStrategy {}

/// Waits for guests to restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineOpportunisticUpdateStrategy {}

/// Restarts running guests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolProactiveUpdateStrategy {
    /// Which VMs go first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selection_policy: Option<VirtualMachinePoolSelectionPolicy>,
}

/// How many VMs there are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolStatus {
    /// VMs that exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// VMs whose guests are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// `ReplicaFailure` and `ReplicaPaused`.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub conditions: Vec<VirtualMachinePoolCondition>,
    /// The selector as text, for autoscalers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
}

/// One statement on a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePoolCondition {
    /// `ReplicaFailure` or `ReplicaPaused`.
    #[serde(deserialize_with = "null_as_default", rename = "type")]
    pub type_: VirtualMachinePoolConditionType,
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

condition!(VirtualMachinePoolCondition, VirtualMachinePoolConditionType);

open_enum! {
    /// Types of conditions of pools.
    VirtualMachinePoolConditionType {
        ReplicaFailure = "ReplicaFailure",
        ReplicaPaused = "ReplicaPaused",
    }
}

open_enum! {
    /// In which order VMs are taken.
    VirtualMachinePoolSortPolicy {
        AscendingOrder = "AscendingOrder",
        DescendingOrder = "DescendingOrder",
        Newest = "Newest",
        Oldest = "Oldest",
        Random = "Random",
    }
}

open_enum! {
    /// What stays of a VM that a pool removes.
    StatePreservation {
        Disabled = "Disabled",
        Offline = "Offline",
        Online = "Online",
    }
}
