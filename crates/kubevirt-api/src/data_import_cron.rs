//! `DataImportCron`: an image that is imported again whenever it changes (`cdi.kubevirt.io`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    conditions::condition_with_state,
    data_source::ConditionState,
    data_volume::{DataVolumeSourcePvc, DataVolumeTemplateSpec},
    open_enum::open_enum,
    resource::kind,
    storage_profile::DataImportCronSourceFormat,
    tolerant::null_as_default,
};

/// An image that is imported again whenever it changes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataImportCron {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: DataImportCronSpec,
    pub status: Option<DataImportCronStatus>,
}

kind!(DataImportCron {
    group: "cdi.kubevirt.io",
    version: "v1beta1",
    plural: "dataimportcrons",
    scope: NamespaceResourceScope,
    spec: DataImportCronSpec,
    status: DataImportCronStatus,
});

/// What to import, when to look, and what to keep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataImportCronSpec {
    /// The data volumes that are made.
    #[serde(deserialize_with = "null_as_default")]
    pub template: DataVolumeTemplateSpec,
    /// When to look for a change, as in crontab, in UTC; empty looks once.
    #[serde(deserialize_with = "null_as_default")]
    pub schedule: String,
    /// Outdated (old imports are deleted, the default) or Never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub garbage_collect: Option<DataImportCronGarbageCollect>,
    /// How many imports are kept; 3 when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imports_to_keep: Option<i32>,
    /// Name of the data source that stands for the latest import.
    #[serde(deserialize_with = "null_as_default")]
    pub managed_data_source: String,
    /// Whether imports and data source stay (All, the default) or go (None) with this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_policy: Option<DataImportCronRetentionPolicy>,
    /// Who made the object; set by CDI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
}

/// What was imported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataImportCronStatus {
    /// The latest import.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub current_imports: Vec<ImportStatus>,
    /// The claim of the last import that was complete.
    #[serde(rename = "lastImportedPVC", skip_serializing_if = "Option::is_none")]
    pub last_imported_pvc: Option<DataVolumeSourcePvc>,
    /// When it last looked for a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_execution_timestamp: Option<Time>,
    /// When an import was last complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_import_timestamp: Option<Time>,
    /// In what form images are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_format: Option<DataImportCronSourceFormat>,
    /// Progressing and `UpToDate`.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<DataImportCronCondition>,
}

/// An import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default)]
pub struct ImportStatus {
    /// Its data volume.
    #[serde(rename = "DataVolumeName", deserialize_with = "null_as_default")]
    pub data_volume_name: String,
    /// The version of the image.
    #[serde(rename = "Digest", deserialize_with = "null_as_default")]
    pub digest: String,
}

/// One statement on periodic imports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataImportCronCondition {
    /// Progressing or `UpToDate`.
    #[serde(deserialize_with = "null_as_default", rename = "type")]
    pub type_: DataImportCronConditionType,
    #[serde(flatten)]
    pub state: ConditionState,
}

condition_with_state!(DataImportCronCondition, DataImportCronConditionType);

open_enum! {
    /// Types of conditions of periodic imports.
    DataImportCronConditionType {
        Progressing = "Progressing",
        UpToDate = "UpToDate",
    }
}

open_enum! {
    /// Whether old imports are deleted.
    DataImportCronGarbageCollect {
        Never = "Never",
        Outdated = "Outdated",
    }
}

open_enum! {
    /// Whether imports are kept longer than the object that made them.
    DataImportCronRetentionPolicy {
        None = "None",
        All = "All",
    }
}
