//! Machine types and firmware.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tolerant::null_as_default;

/// `smbios` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SmBiosConfiguration {
    /// Name of the manufacturer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manufacturer: Option<String>,
    /// Name of the product.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// Version of the product.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Article number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    /// Family of products.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
}

/// `architectureConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ArchConfiguration {
    /// Settings for 64-bit PCs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amd64: Option<ArchSpecificConfiguration>,
    /// Settings for 64-bit ARM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arm64: Option<ArchSpecificConfiguration>,
    /// Kept for old objects; guests of that architecture cannot run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ppc64le: Option<ArchSpecificConfiguration>,
    /// Settings for IBM Z.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s390x: Option<ArchSpecificConfiguration>,
    /// Architecture of guests that name none; that of the control plane when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_architecture: Option<String>,
}

/// `amd64` of [`ArchConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ArchSpecificConfiguration {
    /// Directory of the UEFI firmware in the launcher image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovmf_path: Option<String>,
    /// Machine types that guests may use, as patterns such as q35*.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub emulated_machines: Vec<String>,
    /// Machine type of guests that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_type: Option<String>,
}
