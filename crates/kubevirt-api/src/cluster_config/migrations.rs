//! Defaults of live migrations.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `migrations` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationConfiguration {
    /// Taint that marks a node whose guests must leave; kubevirt.io/drain when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_drain_taint_key: Option<String>,
    /// Most migrations that leave one node at a time; 2 when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_outbound_migrations_per_node: Option<u32>,
    /// Most migrations at a time; 5 when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_migrations_per_cluster: Option<u32>,
    /// Slows a guest down whose memory changes faster than it can be copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_auto_converge: Option<bool>,
    /// Most bytes a second that one migration sends, such as 64Mi; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_per_migration: Option<Quantity>,
    /// Seconds per `GiB` of memory and copied disks after which a migration is given up, paused or
    /// switched to post-copy; 150 when unset.
    #[serde(
        rename = "completionTimeoutPerGiB",
        skip_serializing_if = "Option::is_none"
    )]
    pub completion_timeout_per_gib: Option<i64>,
    /// Longest stop of the guest at the switch-over, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1), extend("maximum" = 2_000_000)))]
    pub max_downtime_ms: Option<u64>,
    /// Seconds without progress after which a migration is given up; 150 when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_timeout: Option<i64>,
    /// Seconds that a migration waits for backups and memory dumps to finish; 150 when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utility_volumes_timeout: Option<i64>,
    /// Lets guests migrate even when their caches make it unsafe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsafe_migration_override: Option<bool>,
    /// Lets a guest resume at its target before all of its memory is there. A failure then loses the
    /// guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_post_copy: Option<bool>,
    /// Lets a migration that does not finish stop the guest, or switch to post-copy where that is
    /// allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_workload_disruption: Option<bool>,
    /// Sends guest memory in the clear; only for closed networks.
    #[serde(rename = "disableTLS", skip_serializing_if = "Option::is_none")]
    pub disable_tls: Option<bool>,
    /// Network attachment definition of the network for migrations; the pod network when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Gives the target pod the `SELinux` level of the source; true when unset.
    #[serde(
        rename = "matchSELinuxLevelOnMigration",
        skip_serializing_if = "Option::is_none"
    )]
    pub match_se_linux_level_on_migration: Option<bool>,
}
