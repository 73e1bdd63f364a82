//! Feature gates, verbosity of logs and settings for test clusters.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tolerant::null_as_default;

/// `developerConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DeveloperConfiguration {
    /// Gates to switch on, by name.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub feature_gates: Vec<String>,
    /// Gates to switch off, by name; wins over `featureGates`.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub disabled_feature_gates: Vec<String>,
    /// Percent that a filesystem may be too small for a disk image before the start is refused; 10
    /// when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc_tolerate_less_space_up_to_percent: Option<i64>,
    /// Bytes kept free on a claim besides the disk image; 131072 when unset.
    #[serde(
        rename = "minimumReservePVCBytes",
        skip_serializing_if = "Option::is_none"
    )]
    pub minimum_reserve_pvc_bytes: Option<u64>,
    /// Percent of guest memory in relation to the memory the pod asks for: 100 when unset, 150 gives
    /// guests half as much again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 10)))]
    pub memory_overcommit: Option<i64>,
    /// Labels that nodes of guests must have; for test clusters.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub node_selectors: BTreeMap<String, String>,
    /// Lets guests run without hardware virtualisation, slowly, on nodes that have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_emulation: Option<bool>,
    /// Guest CPUs per CPU that the pod asks for; 10 when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_allocation_ratio: Option<i64>,
    /// Lowest frequency in Hz that guests bound to a time stamp counter may get, instead of the
    /// lowest of the nodes.
    #[serde(
        rename = "minimumClusterTSCFrequency",
        skip_serializing_if = "Option::is_none"
    )]
    pub minimum_cluster_tsc_frequency: Option<i64>,
    /// Limits for looking into disk images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_verification: Option<DiskVerification>,
    /// How much each component logs; 2 when unset, up to 9.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_verbosity: Option<LogVerbosity>,
    /// Serves profiles of the components; for measurements only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_profiler: Option<bool>,
}

/// `diskVerification` of [`DeveloperConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DiskVerification {
    /// Most memory the check of an image may take.
    #[serde(deserialize_with = "null_as_default")]
    pub memory_limit: Quantity,
}

/// `logVerbosity` of [`DeveloperConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct LogVerbosity {
    /// Verbosity of the API component.
    #[serde(rename = "virtAPI", skip_serializing_if = "Option::is_none")]
    pub virt_api: Option<u64>,
    /// Verbosity of the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_controller: Option<u64>,
    /// Verbosity of the handlers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_handler: Option<u64>,
    /// Verbosity of the launchers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_launcher: Option<u64>,
    /// Verbosity of the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_operator: Option<u64>,
    /// Verbosity of the controller between clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_synchronization_controller: Option<u64>,
    /// Verbosity of the handlers of single nodes, by node name.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub node_verbosity: BTreeMap<String, u64>,
}
