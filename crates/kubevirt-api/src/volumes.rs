//! Volumes: where the data of disks and filesystems comes from. One source each.

use k8s_openapi::{
    api::core::v1::{
        DownwardAPIVolumeFile, LocalObjectReference, PersistentVolumeClaimVolumeSource,
    },
    apimachinery::pkg::api::resource::Quantity,
};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::crds::rules;
use crate::{open_enum::open_enum, tolerant::null_as_default};

/// Where data comes from; exactly one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [rules::exactly_one(&["hostDisk", "persistentVolumeClaim", "cloudInitNoCloud", "cloudInitConfigDrive", "sysprep", "containerDisk", "ephemeral", "emptyDisk", "dataVolume", "configMap", "secret", "downwardAPI", "serviceAccount", "downwardMetrics", "memoryDump", "containerPath"])])))]
pub struct Volume {
    /// Name that disks and filesystems refer to.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// A disk image in a file on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_disk: Option<HostDisk>,
    /// A claim: its block device, or `disk.img` in its filesystem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<PvcVolumeSource>,
    /// A cloud-init seed in the `NoCloud` format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_init_no_cloud: Option<CloudInitNoCloudSource>,
    /// A cloud-init seed in the config drive format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_init_config_drive: Option<CloudInitConfigDriveSource>,
    /// Answer files for Windows set-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sysprep: Option<SysprepSource>,
    /// A disk image out of a container image; writes are lost at the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_disk: Option<ContainerDiskSource>,
    /// A claim whose content is only read; writes are lost at the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<EphemeralVolumeSource>,
    /// A fresh empty disk; lost at the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty_disk: Option<EmptyDiskSource>,
    /// A data volume, waited for until it is filled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_volume: Option<DataVolumeSource>,
    /// Files of a config map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapVolumeSource>,
    /// Files of a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretVolumeSource>,
    /// Files with fields of the object.
    #[serde(rename = "downwardAPI", skip_serializing_if = "Option::is_none")]
    pub downward_api: Option<DownwardApiVolumeSource>,
    /// Token of a service account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountVolumeSource>,
    /// Metrics of the host on a disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downward_metrics: Option<DownwardMetricsVolumeSource>,
    /// Claim that receives memory dumps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_dump: Option<MemoryDumpVolumeSource>,
    /// A directory of the pod, as filesystem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_path: Option<ContainerPathVolumeSource>,
}

/// A disk image in a file on the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HostDisk {
    /// Path on the node.
    #[serde(deserialize_with = "null_as_default")]
    pub path: String,
    /// Disk (must exist) or `DiskOrCreate`.
    #[serde(deserialize_with = "null_as_default", rename = "type")]
    pub type_: HostDiskType,
    /// Size of a new image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Quantity>,
    /// Whether the path is the same storage on every node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
}

/// A claim used as disk or filesystem.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PvcVolumeSource {
    /// Name of the claim, in the namespace of the VM.
    #[serde(deserialize_with = "null_as_default")]
    pub claim_name: String,
    /// Mounts the claim read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Attached and removable while the guest runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hotpluggable: Option<bool>,
}

/// A cloud-init seed in the `NoCloud` format.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [rules::at_most_one(&["secretRef", "userData", "userDataBase64"]), rules::at_most_one(&["networkDataSecretRef", "networkData", "networkDataBase64"])])))]
pub struct CloudInitNoCloudSource {
    /// Secret whose key userdata holds the user data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// User data in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data_base64: Option<String>,
    /// User data as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// Secret whose key networkdata holds the network data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data_secret_ref: Option<LocalObjectReference>,
    /// Network data in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data_base64: Option<String>,
    /// Network data as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data: Option<String>,
}

/// A cloud-init seed in the config drive format.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [rules::at_most_one(&["secretRef", "userData", "userDataBase64"]), rules::at_most_one(&["networkDataSecretRef", "networkData", "networkDataBase64"])])))]
pub struct CloudInitConfigDriveSource {
    /// Secret whose key userdata holds the user data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// User data in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data_base64: Option<String>,
    /// User data as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// Secret whose key networkdata holds the network data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data_secret_ref: Option<LocalObjectReference>,
    /// Network data in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data_base64: Option<String>,
    /// Network data as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data: Option<String>,
}

/// `sysprep` of [`Volume`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SysprepSource {
    /// Secret with the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<LocalObjectReference>,
    /// Config map with the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<LocalObjectReference>,
}

/// A disk image out of a container image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerDiskSource {
    /// Name of the image.
    #[serde(deserialize_with = "null_as_default")]
    pub image: String,
    /// Secret with the credentials for the registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_secret: Option<String>,
    /// Absolute path of the disk in the image; the only file of /disk when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Always, Never or `IfNotPresent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["Always", "Never", "IfNotPresent", ""])))]
    pub image_pull_policy: Option<String>,
}

/// `ephemeral` of [`Volume`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EphemeralVolumeSource {
    /// The claim that is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
}

/// A fresh empty disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EmptyDiskSource {
    /// Size of the disk, for example `2Gi`.
    #[serde(deserialize_with = "null_as_default")]
    pub capacity: Quantity,
}

/// A data volume used as disk or filesystem.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSource {
    /// Name of the data volume, or of the claim it made.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// Attached and removable while the guest runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hotpluggable: Option<bool>,
}

/// `configMap` of [`Volume`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMapVolumeSource {
    /// Name of the config map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether the VM starts without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
    /// Label of the disk in the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_label: Option<String>,
}

/// `secret` of [`Volume`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SecretVolumeSource {
    /// Name of the secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
    /// Whether the VM starts without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
    /// Label of the disk in the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_label: Option<String>,
}

/// `downwardAPI` of [`Volume`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardApiVolumeSource {
    /// The files, each with the field it holds.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub fields: Vec<DownwardAPIVolumeFile>,
    /// Label of the disk in the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_label: Option<String>,
}

/// `serviceAccount` of [`Volume`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceAccountVolumeSource {
    /// Name of the service account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
}

/// `downwardMetrics` of [`Volume`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardMetricsVolumeSource {}

/// `memoryDump` of [`Volume`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryDumpVolumeSource {
    /// Name of the claim, in the namespace of the VM.
    #[serde(deserialize_with = "null_as_default")]
    pub claim_name: String,
    /// Mounts the claim read-only; dumps need it writable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Attached and removable while the guest runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hotpluggable: Option<bool>,
}

/// `containerPath` of [`Volume`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPathVolumeSource {
    /// Absolute path in the pod's main container, without "..".
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [rules::rule("self.startsWith('/')", "give an absolute path, one that begins with /"), rules::rule("!self.contains('..')", "give a path without ..")]), length(max = 4096)))]
    #[serde(deserialize_with = "null_as_default")]
    pub path: String,
    /// Always true: the guest cannot write.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [rules::rule("self == true", "the guest can only read; give true or leave it out")]), extend("x-default" = true)))]
    pub read_only: Option<bool>,
}

/// `volumeSource` of [`crate::subresource_bodies::AddVolumeOptions`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HotplugVolumeSource {
    /// A claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<PvcVolumeSource>,
    /// A data volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_volume: Option<DataVolumeSource>,
}

open_enum! {
    /// Values of `type`.
    HostDiskType {
        DiskOrCreate = "DiskOrCreate",
        Disk = "Disk",
    }
}
