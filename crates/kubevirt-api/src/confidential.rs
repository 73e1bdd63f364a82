//! Requests and responses of the subresources for guests whose memory the host cannot read (AMD SEV).

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What identifies a platform towards the owner of a guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SEVPlatformInfo {
    /// Kind of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Group and version of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Diffie-Hellman key of the platform, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pdh: Option<String>,
    /// Certificates of the platform, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_chain: Option<String>,
}

/// Measurement of the start of a guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SEVMeasurementInfo {
    /// Kind of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Group and version of the body; may be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// The measurement, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measurement: Option<String>,
    /// Version of the platform's interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_major: Option<u64>,
    /// Minor part of that version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_minor: Option<u64>,
    /// Build of the platform's firmware.
    #[serde(rename = "buildID", skip_serializing_if = "Option::is_none")]
    pub build_id: Option<u64>,
    /// Policy that the guest was started with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<u64>,
    /// SHA-256 of the guest's firmware.
    #[serde(rename = "loaderSHA", skip_serializing_if = "Option::is_none")]
    pub loader_sha: Option<String>,
}

/// Session of the guest's owner, before the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SEVSessionOptions {
    /// The session, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Diffie-Hellman key of the owner, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dh_cert: Option<String>,
}

/// A secret for a guest that was found to be in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SEVSecretOptions {
    /// Header of the packet, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The encrypted secret, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}
