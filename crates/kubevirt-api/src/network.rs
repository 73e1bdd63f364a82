//! Networks and the interfaces that connect a guest to them.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::crds::rules;
use crate::{open_enum::open_enum, tolerant::null_as_default};

/// A network; exactly one of pod, multus and `resourceClaim`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [rules::exactly_one(&["pod", "multus", "resourceClaim"])])))]
pub struct Network {
    /// Name that interfaces refer to.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// The pod network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodNetwork>,
    /// A secondary network made by Multus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multus: Option<MultusNetwork>,
    /// A network device by claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim: Option<ClaimRequest>,
}

/// The pod network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PodNetwork {
    /// Network between pod and guest with masquerade; 10.0.2.0/24 when unset.
    #[serde(rename = "vmNetworkCIDR", skip_serializing_if = "Option::is_none")]
    pub vm_network_cidr: Option<String>,
    /// The same for IPv6; `fd10:0:2::/120` when unset.
    #[serde(rename = "vmIPv6NetworkCIDR", skip_serializing_if = "Option::is_none")]
    pub vm_ipv6_network_cidr: Option<String>,
}

/// A secondary network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MultusNetwork {
    /// `NetworkAttachmentDefinition`, as name or namespace/name.
    #[serde(deserialize_with = "null_as_default")]
    pub network_name: String,
    /// Makes it take the place of the pod network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<bool>,
}

/// `resourceClaim` of [`Network`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimRequest {
    /// Claim of the VM that the device comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// Request within the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_name: Option<String>,
}

impl ClaimRequest {
    /// The claim and the request in it.
    pub fn names(&self) -> Option<(&str, &str)> {
        Some((self.claim_name.as_deref()?, self.request_name.as_deref()?))
    }
}

/// A network interface; exactly one binding (masquerade, bridge, sriov, ...).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [rules::at_most_one(&["bridge", "slirp", "masquerade", "sriov", "macvtap", "passt", "passtBinding", "binding"])])))]
pub struct Interface {
    /// Name of the network that it joins.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// virtio (the default), e1000, e1000e, igb, `ne2k_pci`, pcnet or rtl8139.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The guest takes over the pod's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<InterfaceBridge>,
    /// Withdrawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slirp: Option<DeprecatedInterfaceSlirp>,
    /// The guest sits behind the pod's address; only for the pod network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub masquerade: Option<InterfaceMasquerade>,
    /// A virtual function of the host's card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sriov: Option<InterfaceSriov>,
    /// Withdrawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub macvtap: Option<DeprecatedInterfaceMacvtap>,
    /// Withdrawn; use `passtBinding`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passt: Option<DeprecatedInterfacePasst>,
    /// User-mode networking by passt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passt_binding: Option<InterfacePasstBinding>,
    /// A binding plugin that the administrator registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<PluginBinding>,
    /// With masquerade: only these ports reach the guest; all when empty.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ports: Vec<Port>,
    /// With masquerade: ranges of ports that reach the guest.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub port_ranges: Vec<PortRange>,
    /// MAC address; generated when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    /// Place in the boot order, from 1; unique over disks and interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_order: Option<u64>,
    /// Fixed PCI address, such as 0000:81:01.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
    /// Extra options in the answers of the DHCP server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp_options: Option<DhcpOptions>,
    /// Tag shown in the guest's metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Index by which the guest names the interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acpi_index: Option<i64>,
    /// up, down (link off) or absent (unplugged).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<InterfaceState>,
}

/// `bridge` of [`Interface`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InterfaceBridge {}

/// `slirp` of [`Interface`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DeprecatedInterfaceSlirp {}

/// `masquerade` of [`Interface`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InterfaceMasquerade {}

/// `sriov` of [`Interface`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InterfaceSriov {}

/// `macvtap` of [`Interface`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DeprecatedInterfaceMacvtap {}

/// `passt` of [`Interface`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DeprecatedInterfacePasst {}

/// `passtBinding` of [`Interface`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InterfacePasstBinding {}

/// `binding` of [`Interface`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PluginBinding {
    /// Name under which the administrator registered the binding.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
}

/// A port that reaches the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// Name, unique in the interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// TCP (the default) or UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Number from 1 to 65535.
    #[serde(deserialize_with = "null_as_default")]
    pub port: i32,
}

/// `portRanges` of [`Interface`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PortRange {
    /// TCP or UDP.
    #[serde(deserialize_with = "null_as_default")]
    pub protocol: String,
    /// First port.
    #[serde(deserialize_with = "null_as_default")]
    pub start: i32,
    /// Last port, not below the first.
    #[serde(deserialize_with = "null_as_default")]
    pub end: i32,
}

/// Extra options in the answers of the DHCP server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DhcpOptions {
    /// Name of the boot file (option 67).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_file_name: Option<String>,
    /// Name of the TFTP server (option 66).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tftp_server_name: Option<String>,
    /// Time servers (option 42), IPv4.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ntp_servers: Vec<String>,
    /// Options from 224 to 254.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub private_options: Vec<DhcpPrivateOptions>,
}

/// `privateOptions` of [`DhcpOptions`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DhcpPrivateOptions {
    /// Number of the option, from 224 to 254.
    #[serde(deserialize_with = "null_as_default")]
    pub option: i64,
    /// Text sent as its value.
    #[serde(deserialize_with = "null_as_default")]
    pub value: String,
}

open_enum! {
    /// Whether an interface is plugged and its link up.
    InterfaceState {
        Absent = "absent",
        Up = "up",
        Down = "down",
    }
}
