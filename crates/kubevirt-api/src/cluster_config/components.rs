//! The system's own components and containers.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::number;
use crate::open_enum::open_enum;
use crate::tolerant::null_as_default;

/// `apiConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ReloadableComponentConfiguration {
    /// Limits for its requests to the API server; taken over without a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest_client: Option<RestClientConfiguration>,
}

/// `restClient` of [`ReloadableComponentConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RestClientConfiguration {
    /// Slows requests down when there are too many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limiter: Option<RateLimiter>,
}

/// `rateLimiter` of [`RestClientConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RateLimiter {
    /// Limits the requests per second, with bursts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_bucket_rate_limiter: Option<TokenBucketRateLimiter>,
}

/// `tokenBucketRateLimiter` of [`RateLimiter`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TokenBucketRateLimiter {
    /// Requests per second on average.
    #[serde(
        deserialize_with = "null_as_default",
        serialize_with = "number::required"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("format" = "float")))]
    pub qps: f64,
    /// Requests that may come at once.
    #[serde(deserialize_with = "null_as_default")]
    pub burst: i64,
}

/// `tlsConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TlsConfiguration {
    /// Least version: `VersionTLS10`, `VersionTLS11`, `VersionTLS12` or `VersionTLS13`.
    #[serde(rename = "minTLSVersion", skip_serializing_if = "Option::is_none")]
    pub min_tls_version: Option<TlsProtocolVersion>,
    /// Cipher suites for versions up to 1.2, by their IANA names.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "set")))]
    pub ciphers: Vec<String>,
}

open_enum! {
    /// Values of `minTLSVersion`.
    TlsProtocolVersion {
        VersionTLS10 = "VersionTLS10",
        VersionTLS11 = "VersionTLS11",
        VersionTLS12 = "VersionTLS12",
        VersionTLS13 = "VersionTLS13",
    }
}

/// `supportContainerResources` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SupportContainerResources {
    /// Kind of the container: hotplug-disk, container-disk, virtiofs, sidecar, vmexport or
    /// guest-console-log.
    #[serde(deserialize_with = "null_as_default", rename = "type")]
    pub type_: SupportContainerType,
    /// CPU and memory for it.
    #[serde(deserialize_with = "null_as_default")]
    pub resources: ResourceRequirementsWithoutClaims,
}

open_enum! {
    /// Values of `type`.
    SupportContainerType {
        HotplugDisk = "hotplug-disk",
        ContainerDisk = "container-disk",
        Virtiofs = "virtiofs",
        Sidecar = "sidecar",
        Vmexport = "vmexport",
        GuestConsoleLog = "guest-console-log",
    }
}

/// `resources` of [`SupportContainerResources`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRequirementsWithoutClaims {
    /// Upper limits.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub limits: BTreeMap<String, Quantity>,
    /// Requests for the scheduler.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub requests: BTreeMap<String, Quantity>,
}
