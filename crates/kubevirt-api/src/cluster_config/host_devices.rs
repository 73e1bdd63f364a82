//! Devices of nodes that guests may use.

use std::collections::BTreeMap;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tolerant::null_as_default;

/// `permittedHostDevices` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PermittedHostDevices {
    /// PCI devices, by vendor and product.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub pci_host_devices: Vec<PciHostDevice>,
    /// Mediated devices (such as virtual GPUs), by type.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub mediated_devices: Vec<MediatedHostDevice>,
    /// USB devices, by vendor and product.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub usb: Vec<UsbHostDevice>,
}

/// `pciHostDevices` of [`PermittedHostDevices`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PciHostDevice {
    /// Vendor and product in hexadecimal, such as 10de:1eb8.
    #[serde(deserialize_with = "null_as_default")]
    pub pci_vendor_selector: String,
    /// Resource that VMs ask for by `deviceName`.
    #[serde(deserialize_with = "null_as_default")]
    pub resource_name: String,
    /// True when another device plugin offers the resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_resource_provider: Option<bool>,
}

/// `mediatedDevices` of [`PermittedHostDevices`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MediatedHostDevice {
    /// Name of the type, as the node's kernel spells it.
    #[serde(deserialize_with = "null_as_default")]
    pub mdev_name_selector: String,
    /// Resource that VMs ask for by `deviceName`.
    #[serde(deserialize_with = "null_as_default")]
    pub resource_name: String,
    /// True when another device plugin offers the resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_resource_provider: Option<bool>,
}

/// `usb` of [`PermittedHostDevices`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct UsbHostDevice {
    /// Resource that VMs ask for by `deviceName`.
    #[serde(deserialize_with = "null_as_default")]
    pub resource_name: String,
    /// The devices that make up one unit of the resource, all on the same node.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub selectors: Vec<UsbSelector>,
    /// True when another device plugin offers the resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_resource_provider: Option<bool>,
}

/// `selectors` of [`UsbHostDevice`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct UsbSelector {
    /// Vendor in hexadecimal, such as 46f4.
    #[serde(deserialize_with = "null_as_default")]
    pub vendor: String,
    /// Product in hexadecimal, such as 0001.
    #[serde(deserialize_with = "null_as_default")]
    pub product: String,
}

/// `mediatedDevicesConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MediatedDevicesConfiguration {
    /// Older spelling of `mediatedDeviceTypes`.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub mediated_devices_types: Vec<String>,
    /// Types to make on every node that can.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub mediated_device_types: Vec<String>,
    /// Types to make on chosen nodes; wins over `mediatedDeviceTypes`.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub node_mediated_device_types: Vec<NodeMediatedDeviceTypesConfig>,
    /// False leaves the making of devices to others; true when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// `nodeMediatedDeviceTypes` of [`MediatedDevicesConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct NodeMediatedDeviceTypesConfig {
    /// Labels of those nodes.
    #[serde(deserialize_with = "null_as_default")]
    pub node_selector: BTreeMap<String, String>,
    /// Older spelling of `mediatedDeviceTypes`.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub mediated_devices_types: Vec<String>,
    /// Types to make there.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub mediated_device_types: Vec<String>,
}
