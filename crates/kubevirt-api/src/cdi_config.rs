//! `CDIConfig`: settings of the importer (`cdi.kubevirt.io`). Only read.
//!
//! The TLS profile is that of `config.openshift.io`.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{LocalObjectReference, ResourceRequirements},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{resource::kind, tolerant::null_as_default};

/// Settings of the importer; there is one object, named config.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CDIConfig {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: CdiConfigSpec,
    pub status: Option<CdiConfigStatus>,
}

kind!(CDIConfig {
    group: "cdi.kubevirt.io",
    version: "v1beta1",
    plural: "cdiconfigs",
    scope: ClusterResourceScope,
    spec: CdiConfigSpec,
    status: CdiConfigStatus,
});

/// What an administrator set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CdiConfigSpec {
    /// Address of the upload proxy.
    #[serde(
        rename = "uploadProxyURLOverride",
        skip_serializing_if = "Option::is_none"
    )]
    pub upload_proxy_url_override: Option<String>,
    /// Proxy that imports go through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub import_proxy: Option<ImportProxy>,
    /// Storage class for scratch space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratch_space_storage_class: Option<String>,
    /// Resources of the importer's pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_resource_requirements: Option<ResourceRequirements>,
    /// Gates that are open.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub feature_gates: Vec<String>,
    /// Share of a filesystem volume that the filesystem itself needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filesystem_overhead: Option<FilesystemOverhead>,
    /// Whether disks take all their space at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preallocation: Option<bool>,
    /// Registries reached without TLS.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub insecure_registries: Vec<String>,
    /// How long a finished data volume stays.
    #[serde(
        rename = "dataVolumeTTLSeconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub data_volume_ttl_seconds: Option<i32>,
    /// Which TLS versions and ciphers are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_security_profile: Option<TlsSecurityProfile>,
    /// Secrets for pulling images.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// How much is logged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_verbosity: Option<i32>,
}

/// Effective settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CdiConfigStatus {
    /// Address of the upload proxy.
    #[serde(rename = "uploadProxyURL", skip_serializing_if = "Option::is_none")]
    pub upload_proxy_url: Option<String>,
    /// Certificates to check it with, as PEM.
    #[serde(rename = "uploadProxyCA", skip_serializing_if = "Option::is_none")]
    pub upload_proxy_ca: Option<String>,
    /// Proxy that imports go through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub import_proxy: Option<ImportProxy>,
    /// Storage class for scratch space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratch_space_storage_class: Option<String>,
    /// Resources of the importer's pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_pod_resource_requirements: Option<ResourceRequirements>,
    /// Share of a filesystem volume that the filesystem itself needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filesystem_overhead: Option<FilesystemOverhead>,
    /// Whether disks take all their space at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preallocation: Option<bool>,
    /// Secrets for pulling images.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub image_pull_secrets: Vec<LocalObjectReference>,
}

/// Shares between 0 and 1, with at most three decimals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct FilesystemOverhead {
    /// For all storage classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global: Option<String>,
    /// For single storage classes, by name.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub storage_class: BTreeMap<String, String>,
}

/// A proxy between the importer and the world.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ImportProxy {
    /// Proxy for plain requests.
    #[serde(rename = "HTTPProxy", skip_serializing_if = "Option::is_none")]
    pub http_proxy: Option<String>,
    /// Proxy for encrypted requests.
    #[serde(rename = "HTTPSProxy", skip_serializing_if = "Option::is_none")]
    pub https_proxy: Option<String>,
    /// Hosts reached directly, with commas between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_proxy: Option<String>,
    /// Config map with the certificates of the proxy.
    #[serde(rename = "trustedCAProxy", skip_serializing_if = "Option::is_none")]
    pub trusted_ca_proxy: Option<String>,
}

/// Which TLS versions and ciphers are used: a named or custom profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TlsSecurityProfile {
    /// Old, Intermediate, Modern or Custom.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// Chosen by type Old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<NamedTlsProfile>,
    /// Chosen by type Intermediate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intermediate: Option<NamedTlsProfile>,
    /// Chosen by type Modern.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modern: Option<NamedTlsProfile>,
    /// Chosen by type Custom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<CustomTlsProfile>,
}

/// A profile without settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct NamedTlsProfile {}

/// `custom` of [`TlsSecurityProfile`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CustomTlsProfile {
    /// Ciphers by their OpenSSL names.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ciphers: Vec<String>,
    /// Oldest version, such as `VersionTLS12`.
    #[serde(rename = "minTLSVersion", skip_serializing_if = "Option::is_none")]
    pub min_tls_version: Option<String>,
}
