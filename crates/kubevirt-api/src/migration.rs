//! The migration state in the status of a VMI.

use std::collections::BTreeMap;

use k8s_openapi::{
    apimachinery::pkg::api::resource::Quantity, apimachinery::pkg::apis::meta::v1::Time,
};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{open_enum::open_enum, tolerant::null_as_default};

/// `migrationState` of [`crate::vmi_status::VirtualMachineInstanceStatus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceMigrationState {
    /// When the guest's memory began to be copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub start_timestamp: Option<Time>,
    /// When the migration was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub end_timestamp: Option<Time>,
    /// When the guest ran on the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_domain_ready_timestamp: Option<Time>,
    /// Whether the target has seen the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_domain_detected: Option<bool>,
    /// Address at which the target node takes the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_address: Option<String>,
    /// Ports of that address, each with the port of the hypervisor that it stands for.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub target_direct_migration_node_ports: BTreeMap<String, i64>,
    /// Node the guest moves to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node: Option<String>,
    /// Pod the guest moves to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_pod: Option<String>,
    /// UID of the pod that brings hot-plugged volumes to the target.
    #[serde(
        rename = "targetAttachmentPodUID",
        skip_serializing_if = "Option::is_none"
    )]
    pub target_attachment_pod_uid: Option<String>,
    /// Node the guest comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_node: Option<String>,
    /// Pod the guest comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_pod: Option<String>,
    /// Whether the migration is over, well or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed: Option<bool>,
    /// Whether it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<bool>,
    /// Whether a user requested to cancel it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort_requested: Option<bool>,
    /// How far the cancelling is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort_status: Option<MigrationAbortStatus>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// UID of the migration object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_uid: Option<String>,
    /// How memory is copied: `PreCopy`, `PostCopy` or Paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<MigrationMode>,
    /// Migration policy in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_policy_name: Option<String>,
    /// Settings in force, of the cluster and of the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_configuration: Option<VmimConfigurationOptions>,
    /// CPUs of the target node that the guest is bound to.
    #[serde(
        rename = "targetCPUSet",
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub target_cpu_set: Vec<i64>,
    /// NUMA topology of the target node, as JSON in a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_topology: Option<String>,
    /// Claim with the persistent TPM and firmware variables, at the source.
    #[serde(
        rename = "sourcePersistentStatePVCName",
        skip_serializing_if = "Option::is_none"
    )]
    pub source_persistent_state_pvc_name: Option<String>,
    /// Claim for the persistent TPM and firmware variables, at the target.
    #[serde(
        rename = "targetPersistentStatePVCName",
        skip_serializing_if = "Option::is_none"
    )]
    pub target_persistent_state_pvc_name: Option<String>,
    /// What the sending end knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_state: Option<VirtualMachineInstanceMigrationSourceState>,
    /// What the receiving end knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_state: Option<VirtualMachineInstanceMigrationTargetState>,
    /// Network in use: Pod or Migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_network_type: Option<MigrationNetworkType>,
    /// Memory counted for the hypervisor at the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_memory_overhead: Option<Quantity>,
}

/// `migrationConfiguration` of [`VirtualMachineInstanceMigrationState`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VmimConfigurationOptions {
    /// Taint that marks a node whose guests must leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_drain_taint_key: Option<String>,
    /// Most migrations that leave one node at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_outbound_migrations_per_node: Option<u32>,
    /// Most migrations at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_migrations_per_cluster: Option<u32>,
    /// Whether a guest is slowed down whose memory changes too fast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_auto_converge: Option<bool>,
    /// Most bytes a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_per_migration: Option<Quantity>,
    /// Seconds per `GiB` that the migration may take.
    #[serde(
        rename = "completionTimeoutPerGiB",
        skip_serializing_if = "Option::is_none"
    )]
    pub completion_timeout_per_gib: Option<i64>,
    /// Longest stop of the guest, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1), extend("maximum" = 2_000_000)))]
    pub max_downtime_ms: Option<u64>,
    /// Seconds without progress after which the migration is given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_timeout: Option<i64>,
    /// Seconds that the migration waits for backups and memory dumps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utility_volumes_timeout: Option<i64>,
    /// Whether guests migrate even when their caches make it unsafe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsafe_migration_override: Option<bool>,
    /// Whether the guest may resume at its target before all of its memory is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_post_copy: Option<bool>,
    /// Whether the guest may be stopped for the migration to finish.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_workload_disruption: Option<bool>,
    /// Whether memory is sent in the clear.
    #[serde(rename = "disableTLS", skip_serializing_if = "Option::is_none")]
    pub disable_tls: Option<bool>,
    /// Network for migrations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Whether the target pod has the `SELinux` level of the source.
    #[serde(
        rename = "matchSELinuxLevelOnMigration",
        skip_serializing_if = "Option::is_none"
    )]
    pub match_se_linux_level_on_migration: Option<bool>,
    /// Settings that may change or go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experimental: Option<ExperimentalMigrationOptions>,
}

/// `sourceState` of [`VirtualMachineInstanceMigrationState`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceMigrationSourceState {
    /// Node of this end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Pod of this end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// UID of the migration object of this end.
    #[serde(rename = "migrationUID", skip_serializing_if = "Option::is_none")]
    pub migration_uid: Option<String>,
    /// Name of the guest at this end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_name: Option<String>,
    /// Namespace of the guest at this end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_namespace: Option<String>,
    /// Address at which the other end reaches this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_address: Option<String>,
    /// Claim with the persistent TPM and firmware variables of this end.
    #[serde(
        rename = "persistentStatePVCName",
        skip_serializing_if = "Option::is_none"
    )]
    pub persistent_state_pvc_name: Option<String>,
    /// `SELinux` context of the launcher of this end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_context: Option<String>,
    /// UID of the instance at this end.
    #[serde(
        rename = "virtualMachineInstanceUID",
        skip_serializing_if = "Option::is_none"
    )]
    pub virtual_machine_instance_uid: Option<String>,
    /// Labels that the guest's CPU needs of a node.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub node_selectors: BTreeMap<String, String>,
}

/// `targetState` of [`VirtualMachineInstanceMigrationState`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceMigrationTargetState {
    /// Node of this end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Pod of this end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// UID of the migration object of this end.
    #[serde(rename = "migrationUID", skip_serializing_if = "Option::is_none")]
    pub migration_uid: Option<String>,
    /// Name of the guest at this end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_name: Option<String>,
    /// Namespace of the guest at this end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_namespace: Option<String>,
    /// Address at which the other end reaches this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_address: Option<String>,
    /// Claim with the persistent TPM and firmware variables of this end.
    #[serde(
        rename = "persistentStatePVCName",
        skip_serializing_if = "Option::is_none"
    )]
    pub persistent_state_pvc_name: Option<String>,
    /// `SELinux` context of the launcher of this end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_context: Option<String>,
    /// UID of the instance at this end.
    #[serde(
        rename = "virtualMachineInstanceUID",
        skip_serializing_if = "Option::is_none"
    )]
    pub virtual_machine_instance_uid: Option<String>,
    /// When the guest ran there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_ready_timestamp: Option<Time>,
    /// Whether the guest was seen there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_detected: Option<bool>,
    /// Address at which the node takes the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_address: Option<String>,
    /// Ports of that address, each with the port of the hypervisor that it stands for.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub direct_migration_node_ports: BTreeMap<String, i64>,
    /// UID of the pod that brings hot-plugged volumes.
    #[serde(rename = "attachmentPodUID", skip_serializing_if = "Option::is_none")]
    pub attachment_pod_uid: Option<String>,
    /// CPUs of the node that the guest is bound to.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub cpu_set: Vec<i64>,
    /// NUMA topology of the node, as JSON in a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_topology: Option<String>,
}

/// `experimental` of [`VmimConfigurationOptions`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ExperimentalMigrationOptions {
    /// Finds out early that a migration will not finish.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_detector: Option<StallDetectorOptions>,
    /// Allows longer stops of the guest step by step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downtime_tuning: Option<DowntimeTuningOptions>,
    /// How memory is packed: none or zstd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<MigrationCompression>,
}

/// `stallDetector` of [`ExperimentalMigrationOptions`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct StallDetectorOptions {
    /// Percent by which the remaining data must shrink to count as progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 0), extend("maximum" = 100)))]
    pub stall_margin: Option<i64>,
    /// Weight of the newest measurement in the moving average, above 0 and up to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ewma_alpha: Option<Quantity>,
    /// Seconds without progress after which the migration counts as stalled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 0)))]
    pub stall_progress_timeout: Option<i64>,
    /// Seconds the switch-over may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 0)))]
    pub switchover_timeout: Option<i64>,
    /// How much longer than reckoned copying may take before it counts as hopeless; at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precopy_possible_factor: Option<Quantity>,
    /// How fast patience goes down while there is no progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience_window_decay_factor: Option<Quantity>,
    /// Waits for a moment with little left to copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search_local_minima: Option<bool>,
    /// Multiple of the completion time-out in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_timeout_factor: Option<Quantity>,
}

/// `downtimeTuning` of [`ExperimentalMigrationOptions`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DowntimeTuningOptions {
    /// First longest stop, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1)))]
    pub initial_ms: Option<i64>,
    /// Steps up to `maxDowntimeMs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1)))]
    pub steps: Option<i32>,
    /// Rounds of copying before the first step.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1)))]
    pub start_after_iteration: Option<i64>,
    /// Seconds between steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1)))]
    pub cooldown_seconds: Option<i32>,
}

open_enum! {
    /// Values of `abortStatus`.
    MigrationAbortStatus {
        Succeeded = "Succeeded",
        Failed = "Failed",
        Aborting = "Aborting",
    }
}

open_enum! {
    /// Values of `mode`.
    MigrationMode {
        PreCopy = "PreCopy",
        PostCopy = "PostCopy",
        Paused = "Paused",
    }
}

open_enum! {
    /// Values of `migrationNetworkType`.
    MigrationNetworkType {
        Pod = "Pod",
        Migration = "Migration",
    }
}

open_enum! {
    /// Values of `compression`.
    MigrationCompression {
        None = "none",
        Zstd = "zstd",
    }
}
