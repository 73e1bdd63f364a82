//! `DataSource`: a name for the image that new disks should be made from (`cdi.kubevirt.io`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    conditions::condition_with_state, data_volume::DataVolumeSourcePvc,
    data_volume::DataVolumeSourceSnapshot, open_enum::open_enum, resource::kind,
    tolerant::null_as_default,
};

/// A name for the image that new disks should be made from.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataSource {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: DataSourceSpec,
    pub status: Option<DataSourceStatus>,
}

kind!(DataSource {
    group: "cdi.kubevirt.io",
    version: "v1beta1",
    plural: "datasources",
    scope: NamespaceResourceScope,
    spec: DataSourceSpec,
    status: DataSourceStatus,
});

/// What the name stands for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataSourceSpec {
    /// The image.
    #[serde(deserialize_with = "null_as_default")]
    pub source: DataSourceSource,
}

/// One of a claim, a volume snapshot and another data source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataSourceSource {
    /// A claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc: Option<DataVolumeSourcePvc>,
    /// A volume snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<DataVolumeSourceSnapshot>,
    /// Another data source; one hop is followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_source: Option<DataSourceRefSourceDataSource>,
}

/// Names another data source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataSourceRefSourceDataSource {
    /// Its namespace.
    #[serde(deserialize_with = "null_as_default")]
    pub namespace: String,
    /// Its name.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
}

/// What the name stood for last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataSourceStatus {
    /// The image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<DataSourceSource>,
    /// Ready.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<DataSourceCondition>,
}

/// One statement on a data source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataSourceCondition {
    /// Ready.
    #[serde(deserialize_with = "null_as_default", rename = "type")]
    pub type_: DataSourceConditionType,
    #[serde(flatten)]
    pub state: ConditionState,
}

condition_with_state!(DataSourceCondition, DataSourceConditionType);

/// What every statement has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ConditionState {
    /// True, False or Unknown.
    #[serde(deserialize_with = "null_as_default")]
    pub status: String,
    /// When `status` last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// When it was last checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<Time>,
    /// Stable CamelCase name for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

open_enum! {
    /// Types of conditions of data sources.
    DataSourceConditionType {
        Ready = "Ready",
    }
}
