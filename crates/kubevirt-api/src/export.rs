//! Exports: disks and definitions behind a link for downloading (`export.kubevirt.io`).
//!
//! v1 and v1beta1 share these types. v1beta1 documents neither the manifest `oci` nor the condition
//! `OCIReady`, but is served with v1's schema.

use k8s_openapi::{
    api::core::v1::TypedLocalObjectReference,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    conditions::condition, duration::Duration, open_enum::open_enum, resource::kind,
    tolerant::null_as_default,
};

/// Offers the disks and the definition of a VM, a snapshot, a claim or a backup for download over
/// HTTPS while it exists.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineExport {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VirtualMachineExportSpec,
    pub status: Option<VirtualMachineExportStatus>,
}

kind!(VirtualMachineExport {
    group: "export.kubevirt.io",
    version: "v1",
    plural: "virtualmachineexports",
    scope: NamespaceResourceScope,
    spec: VirtualMachineExportSpec,
    status: VirtualMachineExportStatus,
});

/// What to offer and for how long; fixed once made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineExportSpec {
    /// What to offer, in the same namespace: a `PersistentVolumeClaim` (apiGroup ""), a
    /// `VirtualMachine` (`kubevirt.io`), a `VirtualMachineSnapshot` (`snapshot.kubevirt.io`) or a
    /// `VirtualMachineBackup` (`backup.kubevirt.io`).
    #[serde(deserialize_with = "null_as_default")]
    pub source: TypedLocalObjectReference,
    /// Secret whose key token is the password of the download; one is made when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<String>,
    /// How long the export lives, such as 30m; 2h when unset. Then it is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_duration: Option<Duration>,
}

/// How far an export has come, and where to download.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineExportStatus {
    /// Phase of the export.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<VirtualMachineExportPhase>,
    /// Where to download.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<VirtualMachineExportLinks>,
    /// Secret that holds the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<String>,
    /// When the export goes by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_expiration_time: Option<Time>,
    /// Service in front of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// VM that is offered, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_name: Option<String>,
    /// Ready, `PVCReady`, `VolumesCreated` and `OCIReady`.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub conditions: Vec<Condition>,
}

/// Where to download, from inside the cluster and from outside.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineExportLinks {
    /// From inside the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal: Option<VirtualMachineExportLink>,
    /// From outside, where there is a way in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<VirtualMachineExportLink>,
}

/// One address with what it offers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineExportLink {
    /// Certificates to check the server with, as PEM.
    #[serde(deserialize_with = "null_as_default")]
    pub cert: String,
    /// Disks.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map"), extend("x-kubernetes-list-map-keys" = ["name"])))]
    pub volumes: Vec<VirtualMachineExportVolume>,
    /// Endpoints of backups.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map"), extend("x-kubernetes-list-map-keys" = ["name"])))]
    pub backups: Vec<VirtualMachineExportBackup>,
    /// Definitions as manifests.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map"), extend("x-kubernetes-list-map-keys" = ["type"])))]
    pub manifests: Vec<VirtualMachineExportManifest>,
}

/// A manifest to download.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineExportManifest {
    /// Contents.
    #[serde(deserialize_with = "null_as_default", rename = "type")]
    pub type_: ExportManifestType,
    /// Where it is.
    #[serde(deserialize_with = "null_as_default")]
    pub url: String,
}

/// A disk to download.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineExportVolume {
    /// Name of the volume.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// The forms in which it is offered.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map"), extend("x-kubernetes-list-map-keys" = ["format"])))]
    pub formats: Vec<VirtualMachineExportVolumeFormat>,
}

/// One form of a disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineExportVolumeFormat {
    /// raw, gzip, dir or tar.gz.
    #[serde(deserialize_with = "null_as_default")]
    pub format: ExportVolumeFormat,
    /// Where it is.
    #[serde(deserialize_with = "null_as_default")]
    pub url: String,
}

/// The endpoints of one disk of a backup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineExportBackup {
    /// Name of the volume.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// Endpoints.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map"), extend("x-kubernetes-list-map-keys" = ["endpoint"])))]
    pub endpoints: Vec<VirtualMachineExportBackupEndpoint>,
}

/// One endpoint of a backup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineExportBackupEndpoint {
    /// map lists the changed blocks, data has them.
    #[serde(deserialize_with = "null_as_default")]
    pub endpoint: ExportBackupEndpoint,
    /// Where it is.
    #[serde(deserialize_with = "null_as_default")]
    pub url: String,
}

/// One statement on an export.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// What it is about.
    #[serde(deserialize_with = "null_as_default", rename = "type")]
    pub type_: ConditionType,
    /// True, False or Unknown.
    #[serde(deserialize_with = "null_as_default")]
    pub status: String,
    /// When it was last checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub last_probe_time: Option<Time>,
    /// When `status` last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub last_transition_time: Option<Time>,
    /// Stable CamelCase name for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

condition!(Condition, ConditionType);

open_enum! {
    /// Phases of an export.
    VirtualMachineExportPhase {
        Pending = "Pending",
        Ready = "Ready",
        Terminated = "Terminated",
        Skipped = "Skipped",
    }
}

open_enum! {
    /// Kinds of manifests.
    ExportManifestType {
        All = "all",
        AuthHeaderSecret = "auth-header-secret",
        Oci = "oci",
    }
}

open_enum! {
    /// Forms in which a disk is offered.
    ExportVolumeFormat {
        Raw = "raw",
        Gzip = "gzip",
        Dir = "dir",
        TarGz = "tar.gz",
    }
}

open_enum! {
    /// Endpoints of a backup.
    ExportBackupEndpoint {
        Map = "map",
        Data = "data",
    }
}

open_enum! {
    /// Types of conditions of exports.
    ConditionType {
        Ready = "Ready",
        PvcReady = "PVCReady",
        VolumesCreated = "VolumesCreated",
        OciReady = "OCIReady",
    }
}
