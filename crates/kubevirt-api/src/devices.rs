//! Everything plugged into the guest, except disks and network interfaces.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    disks::Disk, features::FeatureState, network::Interface, open_enum::open_enum,
    tolerant::null_as_default,
};

/// `Devices`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Devices {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_virtio_transitional: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_hotplug: Option<bool>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(length(max = 256)))]
    pub disks: Vec<Disk>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog: Option<Watchdog>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(length(max = 256)))]
    pub interfaces: Vec<Interface>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub inputs: Vec<Input>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_pod_interface: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_graphics_device: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_serial_console: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_serial_console: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_mem_balloon: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_input_device: Option<bool>,
    #[serde(rename = "autoattachVSOCK", skip_serializing_if = "Option::is_none")]
    pub autoattach_vsock: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rng: Option<Rng>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_multi_queue: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_interface_multiqueue: Option<bool>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub gpus: Vec<Gpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downward_metrics: Option<DownwardMetrics>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub panic_devices: Vec<PanicDevice>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub filesystems: Vec<Filesystem>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub host_devices: Vec<HostDevice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_passthrough: Option<ClientPassthroughDevices>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sound: Option<SoundDevice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpm: Option<TpmDevice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub video: Option<VideoDevice>,
}

/// `Watchdog`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Watchdog {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub i6300esb: Option<I6300EsbWatchdog>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diag288: Option<Diag288Watchdog>,
}

/// `Input`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Input {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<InputBus>,
    #[serde(rename = "type")]
    pub type_: InputType,
    pub name: String,
}

/// `Rng`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Rng {}

/// `GPU`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Gpu {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_name: Option<String>,
    #[serde(rename = "virtualGPUOptions", skip_serializing_if = "Option::is_none")]
    pub virtual_gpu_options: Option<VgpuOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// `DownwardMetrics`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardMetrics {}

/// `PanicDevice`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PanicDevice {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<PanicDeviceModel>,
}

/// `Filesystem`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Filesystem {
    pub name: String,
    pub virtiofs: FilesystemVirtiofs,
}

/// `HostDevice`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HostDevice {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// `ClientPassthroughDevices`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ClientPassthroughDevices {}

/// `SoundDevice`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SoundDevice {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// `TPMDevice`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TpmDevice {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent: Option<bool>,
}

/// `VideoDevice`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VideoDevice {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
}

/// `I6300ESBWatchdog`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct I6300EsbWatchdog {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<WatchdogAction>,
}

/// `Diag288Watchdog`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Diag288Watchdog {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<WatchdogAction>,
}

/// `VGPUOptions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VgpuOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display: Option<VgpuDisplayOptions>,
}

/// `FilesystemVirtiofs`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct FilesystemVirtiofs {}

/// `VGPUDisplayOptions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VgpuDisplayOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    #[serde(rename = "ramFB", skip_serializing_if = "Option::is_none")]
    pub ram_fb: Option<FeatureState>,
}

open_enum! {
    /// Values of `InputBus`.
    InputBus {
        Usb = "usb",
        Virtio = "virtio",
    }
}

open_enum! {
    /// Values of `InputType`.
    InputType {
        Tablet = "tablet",
        Keyboard = "keyboard",
    }
}

open_enum! {
    /// Values of `PanicDeviceModel`.
    PanicDeviceModel {
        Hyperv = "hyperv",
        Isa = "isa",
        Pvpanic = "pvpanic",
    }
}

open_enum! {
    /// Values of `WatchdogAction`.
    WatchdogAction {
        Poweroff = "poweroff",
        Reset = "reset",
        Shutdown = "shutdown",
    }
}
