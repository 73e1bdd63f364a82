//! Migration policies: settings for the migrations of chosen VMs (`migrations.kubevirt.io`).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{migration::ExperimentalMigrationOptions, resource::kind, tolerant::null_as_default};

/// Settings for live migrations of the VMs that it selects, over those of the cluster. Of several,
/// the one whose selectors match most labels counts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationPolicy {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: MigrationPolicySpec,
    pub status: Option<MigrationPolicyStatus>,
}

kind!(MigrationPolicy {
    group: "migrations.kubevirt.io",
    version: "v1alpha1",
    plural: "migrationpolicies",
    scope: ClusterResourceScope,
    spec: MigrationPolicySpec,
    status: MigrationPolicyStatus,
});

/// The VMIs it applies to and its settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationPolicySpec {
    /// The VMIs it applies to; both selectors must match.
    #[serde(deserialize_with = "null_as_default")]
    pub selectors: Selectors,
    /// Slows the guest down when its memory changes faster than it can be copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_auto_converge: Option<bool>,
    /// Bytes a second that one migration may use, such as 64Mi; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_per_migration: Option<Quantity>,
    /// Seconds a migration may take for each GiB of memory and disk.
    #[serde(
        rename = "completionTimeoutPerGiB",
        skip_serializing_if = "Option::is_none"
    )]
    pub completion_timeout_per_gib: Option<i64>,
    /// Milliseconds that the guest may be paused at the end, from 1 to 2000000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1), extend("maximum" = 2_000_000)))]
    pub max_downtime_ms: Option<u64>,
    /// Lets the guest resume at the target before all its memory is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_post_copy: Option<bool>,
    /// Lets a migration that takes too long pause the guest or continue post-copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_workload_disruption: Option<bool>,
    /// Settings that may change or go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experimental: Option<ExperimentalMigrationOptions>,
}

/// Which VMs a policy concerns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Selectors {
    /// Labels that the namespace must have.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub namespace_selector: BTreeMap<String, String>,
    /// Labels that the VM's instance must have.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub virtual_machine_instance_selector: BTreeMap<String, String>,
}

/// Nothing yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationPolicyStatus {}
