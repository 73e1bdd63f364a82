//! `VirtualMachineInstanceMigration`: the request to move a running guest to another node, and its
//! progress.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::crds::rules;
use crate::{
    conditions::condition, migration::VirtualMachineInstanceMigrationState, open_enum::open_enum,
    resource::kind, tolerant::null_as_default,
};

/// The wish to move a running guest to another node. Deleting it while it runs cancels the move.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceMigration {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VirtualMachineInstanceMigrationSpec,
    pub status: Option<VirtualMachineInstanceMigrationStatus>,
}

kind!(VirtualMachineInstanceMigration {
    group: "kubevirt.io",
    version: "v1",
    plural: "virtualmachineinstancemigrations",
    scope: NamespaceResourceScope,
    spec: VirtualMachineInstanceMigrationSpec,
    status: VirtualMachineInstanceMigrationStatus,
});

/// Which guest moves, and where to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [rules::immutable("the spec of a migration", "delete it and create another"), rules::rule("has(self.vmiName) && size(self.vmiName) > 0", "give vmiName, the VirtualMachineInstance to move")])))]
pub struct VirtualMachineInstanceMigrationSpec {
    /// Name of the `VirtualMachineInstance` to move, in the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vmi_name: Option<String>,
    /// Labels that the target node must have besides those the guest asks for. They can only
    /// narrow the choice.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub added_node_selector: BTreeMap<String, String>,
    /// Sends the guest to another cluster or namespace, where a migration with the same
    /// `migrationID` receives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_to: Option<VirtualMachineInstanceMigrationSource>,
    /// Receives the guest from another cluster or namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive: Option<VirtualMachineInstanceMigrationTarget>,
    /// Which migrations go first when more wait than may run: system-critical, user-triggered,
    /// system-maintenance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<MigrationPriority>,
}

/// The sending end of a migration between clusters or namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceMigrationSource {
    /// Text that both ends have in common, unique to this move.
    #[serde(deserialize_with = "null_as_default", rename = "migrationID")]
    pub migration_id: String,
    /// Address of the receiving end, as host and port.
    #[serde(deserialize_with = "null_as_default", rename = "connectURL")]
    pub connect_url: String,
}

/// The receiving end of a migration between clusters or namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceMigrationTarget {
    /// Text that both ends have in common, unique to this move.
    #[serde(deserialize_with = "null_as_default", rename = "migrationID")]
    pub migration_id: String,
}

/// Observed state of a migration; written by controllers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceMigrationStatus {
    /// How far the migration has come; Succeeded and Failed are final.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<VirtualMachineInstanceMigrationPhase>,
    /// Details of the state, one entry per type.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<VirtualMachineInstanceMigrationCondition>,
    /// When each phase was entered.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub phase_transition_timestamps: Vec<VirtualMachineInstanceMigrationPhaseTransitionTimestamp>,
    /// Copy of the guest's own record of the move, as it was at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_state: Option<VirtualMachineInstanceMigrationState>,
    /// Addresses at which the sending end reaches the receiving one.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub synchronization_addresses: Vec<String>,
}

/// One aspect of the state of a migration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceMigrationCondition {
    /// What it is about.
    #[serde(deserialize_with = "null_as_default", rename = "type")]
    pub type_: VirtualMachineInstanceMigrationConditionType,
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
    VirtualMachineInstanceMigrationCondition,
    VirtualMachineInstanceMigrationConditionType
);

/// When a phase of a migration was entered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceMigrationPhaseTransitionTimestamp {
    /// The phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<VirtualMachineInstanceMigrationPhase>,
    /// When it was entered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase_transition_timestamp: Option<Time>,
}

open_enum! {
    /// How far a migration has come. Succeeded and Failed are final.
    VirtualMachineInstanceMigrationPhase {
        Unset = "",
        Pending = "Pending",
        Scheduling = "Scheduling",
        Scheduled = "Scheduled",
        PreparingTarget = "PreparingTarget",
        TargetReady = "TargetReady",
        Running = "Running",
        Succeeded = "Succeeded",
        Failed = "Failed",
        WaitingForSync = "WaitingForSync",
        Synchronizing = "Synchronizing",
    }
}

open_enum! {
    /// Aspects of the state of a migration; the order is that of lists of conditions.
    VirtualMachineInstanceMigrationConditionType {
        AbortRequested = "migrationAbortRequested",
        RejectedByResourceQuota = "migrationRejectedByResourceQuota",
        BlockedByUtilityVolumes = "migrationBlockedByUtilityVolumes",
        BlockedByBackup = "migrationBlockedByBackup",
        DecentralizedBlocked = "decentralizedMigrationBlocked",
    }
}

open_enum! {
    /// Which migrations go first.
    MigrationPriority {
        SystemCritical = "system-critical",
        UserTriggered = "user-triggered",
        SystemMaintenance = "system-maintenance",
    }
}
