//! Data volumes: disks populated by the importer. The types of the group `cdi.kubevirt.io` that a VM may
//! embed.

use k8s_openapi::{
    api::core::v1::{
        PersistentVolumeClaimSpec, TypedLocalObjectReference, TypedObjectReference,
        VolumeResourceRequirements,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{open_enum::open_enum, tolerant::null_as_default};

/// A data volume that is made with the VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeTemplateSpec {
    /// `DataVolume`; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// cdi.kubevirt.io/v1beta1; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Name of the data volume, its labels and annotations.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-preserve-unknown-fields" = true), extend("nullable" = true)))]
    pub metadata: Option<ObjectMeta>,
    /// What the data volume is filled with and how large it is.
    #[serde(deserialize_with = "null_as_default")]
    pub spec: DataVolumeSpec,
    /// Always empty; kept for old objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub status: Option<DataVolumeTemplateDummyStatus>,
}

/// `spec` of [`DataVolumeTemplateSpec`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSpec {
    /// Where the data comes from; exactly one kind of source. Not together with `sourceRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<DataVolumeSource>,
    /// An object that names the source of the data. Not together with source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<DataVolumeSourceRef>,
    /// The claim to make, every detail by hand. Not together with storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc: Option<PersistentVolumeClaimSpec>,
    /// The claim to make; missing fields follow from the storage class. Not together with pvc.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageSpec>,
    /// Priority class of the pods that do the import.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// kubevirt (a disk image, the default) or archive (files of a tar archive).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<DataVolumeContentType>,
    /// Steps of an import that is done in several turns.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub checkpoints: Vec<DataVolumeCheckpoint>,
    /// Whether the last of the checkpoints ends the import.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_checkpoint: Option<bool>,
    /// Whether all blocks are written at once instead of when they are needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preallocation: Option<bool>,
}

/// `status` of [`DataVolumeTemplateSpec`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeTemplateDummyStatus {}

/// `source` of [`DataVolumeSpec`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSource {
    /// A file on a web server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<DataVolumeSourceHttp>,
    /// An object in an S3 bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3: Option<DataVolumeSourceS3>,
    /// An object in a Google Cloud bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gcs: Option<DataVolumeSourceGcs>,
    /// A disk image in a container registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry: Option<DataVolumeSourceRegistry>,
    /// A copy of another claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc: Option<DataVolumeSourcePvc>,
    /// Filled by an upload of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload: Option<DataVolumeSourceUpload>,
    /// An empty disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blank: Option<DataVolumeBlankImage>,
    /// A disk of `oVirt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imageio: Option<DataVolumeSourceImageIo>,
    /// A disk of `VMware`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vddk: Option<DataVolumeSourceVddk>,
    /// A volume snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<DataVolumeSourceSnapshot>,
}

/// `sourceRef` of [`DataVolumeSpec`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSourceRef {
    /// Kind of the object: `DataSource`.
    #[serde(deserialize_with = "null_as_default")]
    pub kind: String,
    /// Namespace of the object; that of the data volume when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the object.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
}

/// `storage` of [`DataVolumeSpec`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct StorageSpec {
    /// How the volume may be mounted, such as `ReadWriteMany`; follows from the storage class when
    /// unset.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub access_modes: Vec<String>,
    /// Labels of volumes that may be taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// Size of the volume, under requests.storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<VolumeResourceRequirements>,
    /// A certain volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_name: Option<String>,
    /// Storage class; the default one when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// Block or Filesystem; follows from the storage class when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<String>,
    /// Object in the same namespace that the volume is filled from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_source: Option<TypedLocalObjectReference>,
    /// Object that the volume is filled from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_source_ref: Option<TypedObjectReference>,
}

/// `checkpoints` of [`DataVolumeSpec`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeCheckpoint {
    /// Snapshot that the step starts from; empty for the first.
    #[serde(deserialize_with = "null_as_default")]
    pub previous: String,
    /// Snapshot that the step ends with.
    #[serde(deserialize_with = "null_as_default")]
    pub current: String,
}

/// `http` of [`DataVolumeSource`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSourceHttp {
    /// Address of the file, http or https.
    #[serde(deserialize_with = "null_as_default")]
    pub url: String,
    /// Secret with `accessKeyId` and `secretKey`, the user's name and password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// Config map with authorities to trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
    /// Headers to send besides, each as name: value.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub extra_headers: Vec<String>,
    /// Secrets with headers to send besides.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub secret_extra_headers: Vec<String>,
}

/// `s3` of [`DataVolumeSource`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSourceS3 {
    /// Address of the object.
    #[serde(deserialize_with = "null_as_default")]
    pub url: String,
    /// Secret with `accessKeyId` and `secretKey`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// Config map with authorities to trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
}

/// `gcs` of [`DataVolumeSource`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSourceGcs {
    /// Address of the object, gs:// or https://.
    #[serde(deserialize_with = "null_as_default")]
    pub url: String,
    /// Secret with the credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
}

/// `registry` of [`DataVolumeSource`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSourceRegistry {
    /// Image, as `docker://host/path:tag`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Image stream of the cluster, instead of url.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_stream: Option<String>,
    /// pod (the importer pulls, the default) or node (the node does).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_method: Option<RegistryPullMethod>,
    /// Secret with `accessKeyId` and `secretKey`, the user's name and password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// Config map with authorities to trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
    /// Which variant of an image for several platforms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<PlatformOptions>,
}

/// `pvc` of [`DataVolumeSource`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSourcePvc {
    /// Namespace of the claim.
    #[serde(deserialize_with = "null_as_default")]
    pub namespace: String,
    /// Name of the claim.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
}

/// `upload` of [`DataVolumeSource`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSourceUpload {}

/// `blank` of [`DataVolumeSource`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeBlankImage {}

/// `imageio` of [`DataVolumeSource`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSourceImageIo {
    /// Address of the engine.
    #[serde(deserialize_with = "null_as_default")]
    pub url: String,
    /// Id of the disk.
    #[serde(deserialize_with = "null_as_default")]
    pub disk_id: String,
    /// Secret with `accessKeyId` and `secretKey`, the user's name and password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// Config map with authorities to trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
    /// Trusts any certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
}

/// `vddk` of [`DataVolumeSource`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSourceVddk {
    /// Address of `vCenter` or of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// UUID of the virtual machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Path of the disk's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backing_file: Option<String>,
    /// Fingerprint of the server's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thumbprint: Option<String>,
    /// Secret with `accessKeyId` and `secretKey`, the user's name and password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// Image with `VMware`'s library.
    #[serde(rename = "initImageURL", skip_serializing_if = "Option::is_none")]
    pub init_image_url: Option<String>,
    /// Config map with further options for the library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_args: Option<String>,
}

/// `snapshot` of [`DataVolumeSource`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSourceSnapshot {
    /// Namespace of the snapshot.
    #[serde(deserialize_with = "null_as_default")]
    pub namespace: String,
    /// Name of the snapshot.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
}

/// `platform` of [`DataVolumeSourceRegistry`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PlatformOptions {
    /// Architecture, such as amd64 or arm64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
}

open_enum! {
    /// Values of `contentType`.
    DataVolumeContentType {
        Kubevirt = "kubevirt",
        Archive = "archive",
    }
}

open_enum! {
    /// Values of `pullMethod`.
    RegistryPullMethod {
        Pod = "pod",
        Node = "node",
    }
}
