//! Networks and the interfaces by which a guest joins them.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{open_enum::open_enum, tolerant::null_as_default};

/// `Network`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Network {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodNetwork>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multus: Option<MultusNetwork>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim: Option<ClaimRequest>,
}

/// `PodNetwork`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PodNetwork {
    #[serde(rename = "vmNetworkCIDR", skip_serializing_if = "Option::is_none")]
    pub vm_network_cidr: Option<String>,
    #[serde(rename = "vmIPv6NetworkCIDR", skip_serializing_if = "Option::is_none")]
    pub vm_ipv6_network_cidr: Option<String>,
}

/// `MultusNetwork`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MultusNetwork {
    pub network_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<bool>,
}

/// `ClaimRequest`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_name: Option<String>,
}

/// `Interface`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Interface {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<InterfaceBridge>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slirp: Option<DeprecatedInterfaceSlirp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub masquerade: Option<InterfaceMasquerade>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sriov: Option<InterfaceSriov>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub macvtap: Option<DeprecatedInterfaceMacvtap>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passt: Option<DeprecatedInterfacePasst>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passt_binding: Option<InterfacePasstBinding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<PluginBinding>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ports: Vec<Port>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub port_ranges: Vec<PortRange>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_order: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp_options: Option<DhcpOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acpi_index: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<InterfaceState>,
}

/// `InterfaceBridge`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InterfaceBridge {}

/// `DeprecatedInterfaceSlirp`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DeprecatedInterfaceSlirp {}

/// `InterfaceMasquerade`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InterfaceMasquerade {}

/// `InterfaceSRIOV`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InterfaceSriov {}

/// `DeprecatedInterfaceMacvtap`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DeprecatedInterfaceMacvtap {}

/// `DeprecatedInterfacePasst`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DeprecatedInterfacePasst {}

/// `InterfacePasstBinding`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InterfacePasstBinding {}

/// `PluginBinding`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PluginBinding {
    pub name: String,
}

/// `Port`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    pub port: i32,
}

/// `PortRange`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PortRange {
    pub protocol: String,
    pub start: i32,
    pub end: i32,
}

/// `DHCPOptions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DhcpOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_file_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tftp_server_name: Option<String>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ntp_servers: Vec<String>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub private_options: Vec<DhcpPrivateOptions>,
}

/// `DHCPPrivateOptions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DhcpPrivateOptions {
    pub option: i64,
    pub value: String,
}

open_enum! {
    /// Values of `InterfaceState`.
    InterfaceState {
        Absent = "absent",
        Up = "up",
        Down = "down",
    }
}
