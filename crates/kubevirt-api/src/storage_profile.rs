//! `StorageProfile`: properties of a storage class (`cdi.kubevirt.io`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::crds::rules;

use crate::{open_enum::open_enum, resource::kind, tolerant::null_as_default};

/// What a storage class can do, by the name of the class.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct StorageProfile {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: StorageProfileSpec,
    pub status: Option<StorageProfileStatus>,
}

kind!(StorageProfile {
    group: "cdi.kubevirt.io",
    version: "v1beta1",
    plural: "storageprofiles",
    scope: ClusterResourceScope,
    spec: StorageProfileSpec,
    status: StorageProfileStatus,
});

/// Settings of an administrator for the class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct StorageProfileSpec {
    /// How claims are copied: copy, snapshot or csi-clone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clone_strategy: Option<CdiCloneStrategy>,
    /// Ways to claim, best first.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("maxItems" = 8)))]
    pub claim_property_sets: Vec<ClaimPropertySet>,
    /// In what form images are kept: snapshot or pvc.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_import_cron_source_format: Option<DataImportCronSourceFormat>,
    /// Class of volume snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_class: Option<String>,
}

/// What counts for the class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct StorageProfileStatus {
    /// Name of the class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// Who makes its volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioner: Option<String>,
    /// How claims are copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clone_strategy: Option<CdiCloneStrategy>,
    /// Ways to claim, best first.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("maxItems" = 8)))]
    pub claim_property_sets: Vec<ClaimPropertySet>,
    /// In what form images are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_import_cron_source_format: Option<DataImportCronSourceFormat>,
    /// Class of volume snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_class: Option<String>,
}

/// A way to claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [rules::rule("has(self.accessModes) && self.accessModes.size() > 0 && self.accessModes.all(mode, mode in ['ReadWriteOnce', 'ReadOnlyMany', 'ReadWriteMany', 'ReadWriteOncePod'])", "accessModes: give ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod"), rules::rule("has(self.volumeMode) && self.volumeMode in ['Block', 'Filesystem']", "volumeMode: give Block or Filesystem")])))]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimPropertySet {
    /// Who may use the volume at once.
    #[serde(deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(extend("maxItems" = 4)))]
    pub access_modes: Vec<String>,
    /// Block or Filesystem.
    #[serde(deserialize_with = "null_as_default")]
    pub volume_mode: String,
}

open_enum! {
    /// How claims are copied.
    CdiCloneStrategy {
        Copy = "copy",
        Snapshot = "snapshot",
        CsiClone = "csi-clone",
    }
}

open_enum! {
    /// In what form images are kept.
    DataImportCronSourceFormat {
        Snapshot = "snapshot",
        Pvc = "pvc",
    }
}
