//! Requests and responses of the cluster profiler, which collects CPU and memory profiles of the
//! components.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tolerant::null_as_default;

/// Which components are meant; a page of them at a time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterProfilerRequest {
    /// Labels of their pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
    /// Where the last page ended.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    pub continue_: Option<String>,
    /// Pods in a page.
    #[serde(deserialize_with = "null_as_default")]
    pub page_size: i64,
}

/// Profiles by pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterProfilerResults {
    /// The profiles, by pod.
    #[serde(deserialize_with = "null_as_default")]
    pub component_results: BTreeMap<String, ProfilerResult>,
    /// Where this page ends; unset after the last.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    pub continue_: Option<String>,
}

/// Profiles of one pod, by kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ProfilerResult {
    /// The profiles, by kind.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, String>"))]
    pub pprof_data: BTreeMap<String, ByteString>,
}
