//! Seccomp profiles and confidential computing.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `seccompConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SeccompConfiguration {
    /// Profile of the pods of guests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_instance_profile: Option<VirtualMachineInstanceProfile>,
}

/// `virtualMachineInstanceProfile` of [`SeccompConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceProfile {
    /// The profile; exactly one of its members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_profile: Option<CustomProfile>,
}

/// `customProfile` of [`VirtualMachineInstanceProfile`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CustomProfile {
    /// Path of a profile below the kubelet's seccomp directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub localhost_profile: Option<String>,
    /// Uses the profile of the container runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_default_profile: Option<bool>,
}

/// `confidentialCompute` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ConfidentialComputeConfiguration {
    /// Intel TDX.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub tdx: Option<TdxConfiguration>,
}

/// `tdx` of [`ConfidentialComputeConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TdxConfiguration {
    /// Proof towards third parties that a guest runs protected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attestation: Option<TdxAttestationConfiguration>,
}

/// `attestation` of [`TdxConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TdxAttestationConfiguration {
    /// Starts no protected guest on a node that cannot attest; false when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("x-default" = false)))]
    pub enforced: Option<bool>,
    /// Socket of the service that makes quotes, on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("x-default" = "/var/run/tdx-qgs/qgs.socket")))]
    pub qgs_socket_path: Option<String>,
}
