//! What a VMI knows of its migration.

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
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub start_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub end_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_domain_ready_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_domain_detected: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_address: Option<String>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub target_direct_migration_node_ports: BTreeMap<String, i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_pod: Option<String>,
    #[serde(
        rename = "targetAttachmentPodUID",
        skip_serializing_if = "Option::is_none"
    )]
    pub target_attachment_pod_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_pod: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort_requested: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort_status: Option<MigrationAbortStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<MigrationMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_policy_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_configuration: Option<VmimConfigurationOptions>,
    #[serde(
        rename = "targetCPUSet",
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub target_cpu_set: Vec<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_topology: Option<String>,
    #[serde(
        rename = "sourcePersistentStatePVCName",
        skip_serializing_if = "Option::is_none"
    )]
    pub source_persistent_state_pvc_name: Option<String>,
    #[serde(
        rename = "targetPersistentStatePVCName",
        skip_serializing_if = "Option::is_none"
    )]
    pub target_persistent_state_pvc_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_state: Option<VirtualMachineInstanceMigrationSourceState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_state: Option<VirtualMachineInstanceMigrationTargetState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_network_type: Option<MigrationNetworkType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_memory_overhead: Option<Quantity>,
}

/// `migrationConfiguration` of [`VirtualMachineInstanceMigrationState`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VmimConfigurationOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_drain_taint_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_outbound_migrations_per_node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_migrations_per_cluster: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_auto_converge: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_per_migration: Option<Quantity>,
    #[serde(
        rename = "completionTimeoutPerGiB",
        skip_serializing_if = "Option::is_none"
    )]
    pub completion_timeout_per_gib: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1), extend("maximum" = 2_000_000)))]
    pub max_downtime_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_timeout: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utility_volumes_timeout: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsafe_migration_override: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_post_copy: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_workload_disruption: Option<bool>,
    #[serde(rename = "disableTLS", skip_serializing_if = "Option::is_none")]
    pub disable_tls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    #[serde(
        rename = "matchSELinuxLevelOnMigration",
        skip_serializing_if = "Option::is_none"
    )]
    pub match_se_linux_level_on_migration: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experimental: Option<ExperimentalMigrationOptions>,
}

/// `sourceState` of [`VirtualMachineInstanceMigrationState`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceMigrationSourceState {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    #[serde(rename = "migrationUID", skip_serializing_if = "Option::is_none")]
    pub migration_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_address: Option<String>,
    #[serde(
        rename = "persistentStatePVCName",
        skip_serializing_if = "Option::is_none"
    )]
    pub persistent_state_pvc_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_context: Option<String>,
    #[serde(
        rename = "virtualMachineInstanceUID",
        skip_serializing_if = "Option::is_none"
    )]
    pub virtual_machine_instance_uid: Option<String>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    #[serde(rename = "migrationUID", skip_serializing_if = "Option::is_none")]
    pub migration_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_address: Option<String>,
    #[serde(
        rename = "persistentStatePVCName",
        skip_serializing_if = "Option::is_none"
    )]
    pub persistent_state_pvc_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_context: Option<String>,
    #[serde(
        rename = "virtualMachineInstanceUID",
        skip_serializing_if = "Option::is_none"
    )]
    pub virtual_machine_instance_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_ready_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_detected: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_address: Option<String>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub direct_migration_node_ports: BTreeMap<String, i64>,
    #[serde(rename = "attachmentPodUID", skip_serializing_if = "Option::is_none")]
    pub attachment_pod_uid: Option<String>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub cpu_set: Vec<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_topology: Option<String>,
}

/// `experimental` of [`VmimConfigurationOptions`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ExperimentalMigrationOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_detector: Option<StallDetectorOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downtime_tuning: Option<DowntimeTuningOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<MigrationCompression>,
}

/// `stallDetector` of [`ExperimentalMigrationOptions`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct StallDetectorOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 0), extend("maximum" = 100)))]
    pub stall_margin: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ewma_alpha: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 0)))]
    pub stall_progress_timeout: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 0)))]
    pub switchover_timeout: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precopy_possible_factor: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience_window_decay_factor: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search_local_minima: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_timeout_factor: Option<Quantity>,
}

/// `downtimeTuning` of [`ExperimentalMigrationOptions`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DowntimeTuningOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1)))]
    pub initial_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1)))]
    pub steps: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1)))]
    pub start_after_iteration: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1)))]
    pub cooldown_seconds: Option<i32>,
}

open_enum! {
    /// Words of `abortStatus`.
    MigrationAbortStatus {
        Succeeded = "Succeeded",
        Failed = "Failed",
        Aborting = "Aborting",
    }
}

open_enum! {
    /// Words of `mode`.
    MigrationMode {
        PreCopy = "PreCopy",
        PostCopy = "PostCopy",
        Paused = "Paused",
    }
}

open_enum! {
    /// Words of `migrationNetworkType`.
    MigrationNetworkType {
        Pod = "Pod",
        Migration = "Migration",
    }
}

open_enum! {
    /// Words of `compression`.
    MigrationCompression {
        None = "none",
        Zstd = "zstd",
    }
}
