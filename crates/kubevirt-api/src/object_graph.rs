//! The objects that a VM consists of and depends on, as the subresource objectgraph returns them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::TypedObjectReference, apimachinery::pkg::apis::meta::v1::LabelSelector,
};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tolerant::null_as_default;

/// An object and those that hang on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectGraphNode {
    /// Kind of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Group and version of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// The object.
    #[serde(deserialize_with = "null_as_default")]
    pub object_reference: TypedObjectReference,
    /// What it is in the graph.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub labels: BTreeMap<String, String>,
    /// Whether the VM can do without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
    /// What hangs on it.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub children: Vec<ObjectGraphNode>,
}

/// Which objects are wanted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectGraphOptions {
    /// Also those that the VM can do without; true when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_optional_nodes: Option<bool>,
    /// Only those with these labels in the graph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}
