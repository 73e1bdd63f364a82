//! Devices of the guest, except disks and network interfaces.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    disks::Disk, features::FeatureState, network::Interface, open_enum::open_enum,
    tolerant::null_as_default,
};

/// Everything plugged into the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Devices {
    /// Virtio devices in the form that very old guests understand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_virtio_transitional: Option<bool>,
    /// Switches hot-plugging of disks off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_hotplug: Option<bool>,
    /// Disks, CD-ROMs and LUNs; each shows the volume of the same name.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(length(max = 256)))]
    pub disks: Vec<Disk>,
    /// A watchdog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog: Option<Watchdog>,
    /// Network interfaces; each joins the network of the same name.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(length(max = 256)))]
    pub interfaces: Vec<Interface>,
    /// Tablets and keyboards.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub inputs: Vec<Input>,
    /// false makes a guest without networks have none; otherwise it gets the pod network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_pod_interface: Option<bool>,
    /// false leaves out the graphics card and VNC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_graphics_device: Option<bool>,
    /// false leaves out the serial console.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_serial_console: Option<bool>,
    /// Whether what the serial console prints is also logged by the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_serial_console: Option<bool>,
    /// false leaves out the memory balloon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_mem_balloon: Option<bool>,
    /// true adds a tablet when no input is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_input_device: Option<bool>,
    /// true adds a vsock device.
    #[serde(rename = "autoattachVSOCK", skip_serializing_if = "Option::is_none")]
    pub autoattach_vsock: Option<bool>,
    /// A source of random numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rng: Option<Rng>,
    /// One queue per virtual CPU for virtio disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_multi_queue: Option<bool>,
    /// One queue per virtual CPU for virtio interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_interface_multiqueue: Option<bool>,
    /// GPUs of the host.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub gpus: Vec<Gpu>,
    /// Metrics of the host for the guest, over a virtio port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downward_metrics: Option<DownwardMetrics>,
    /// Devices by which a guest reports a panic.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub panic_devices: Vec<PanicDevice>,
    /// Volumes shared as filesystems.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub filesystems: Vec<Filesystem>,
    /// Other devices of the host.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub host_devices: Vec<HostDevice>,
    /// Lets a client redirect its USB devices to the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_passthrough: Option<ClientPassthroughDevices>,
    /// A sound card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sound: Option<SoundDevice>,
    /// A trusted platform module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpm: Option<TpmDevice>,
    /// Kind of the graphics card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub video: Option<VideoDevice>,
}

/// A watchdog; one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Watchdog {
    /// Name of the device.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// Watchdog card for PCs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub i6300esb: Option<I6300EsbWatchdog>,
    /// Watchdog of IBM Z.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diag288: Option<Diag288Watchdog>,
}

/// A tablet or keyboard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Input {
    /// usb (the default) or virtio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<InputBus>,
    /// Kind of device.
    #[serde(deserialize_with = "null_as_default", rename = "type")]
    pub type_: InputType,
    /// Name of the device.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
}

/// A source of random numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Rng {}

/// A GPU of the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Gpu {
    /// Name of the device, unique in the VM.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// Resource of the device, as nodes offer it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// Claim of the VM that the device comes from, instead of `deviceName`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// Request within the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_name: Option<String>,
    /// Display settings of a virtual GPU.
    #[serde(rename = "virtualGPUOptions", skip_serializing_if = "Option::is_none")]
    pub virtual_gpu_options: Option<VgpuOptions>,
    /// Text that the guest finds with the device's address in its metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// `downwardMetrics` of [`Devices`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DownwardMetrics {}

/// A device by which a guest reports a panic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PanicDevice {
    /// How the guest reports a crash: hyperv, isa or pvpanic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<PanicDeviceModel>,
}

/// A volume shared as a filesystem.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Filesystem {
    /// Name of the volume to share with the guest.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// Shares it over virtio-fs; the tag to mount is the name.
    #[serde(deserialize_with = "null_as_default")]
    pub virtiofs: FilesystemVirtiofs,
}

/// A device of the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HostDevice {
    /// Name of the device, unique in the VM.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// Resource of the device, as nodes offer it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// Claim of the VM that the device comes from, instead of `deviceName`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// Request within the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_name: Option<String>,
    /// Text that the guest finds with the device's address in its metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// `clientPassthrough` of [`Devices`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ClientPassthroughDevices {}

/// A sound card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SoundDevice {
    /// Name of the device.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// ich9 (the default) or ac97.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["ich9", "ac97"])))]
    pub model: Option<String>,
}

/// A trusted platform module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TpmDevice {
    /// False takes the device away; true when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Keeps what the TPM stores from run to run, on a claim of the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent: Option<bool>,
}

/// Kind of the graphics card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VideoDevice {
    /// Model of the display: vga, cirrus, virtio, ramfb or bochs, as far as the architecture has
    /// it.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
}

/// `i6300esb` of [`Watchdog`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct I6300EsbWatchdog {
    /// What happens when the guest stops feeding it: reset, poweroff or shutdown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<WatchdogAction>,
}

/// `diag288` of [`Watchdog`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Diag288Watchdog {
    /// What happens when the guest stops feeding it: reset, poweroff or shutdown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<WatchdogAction>,
}

/// `virtualGPUOptions` of [`Gpu`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VgpuOptions {
    /// Whether the virtual GPU drives the guest's display.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display: Option<VgpuDisplayOptions>,
}

/// `virtiofs` of [`Filesystem`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct FilesystemVirtiofs {}

/// `display` of [`VgpuOptions`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VgpuDisplayOptions {
    /// Whether there is a display; true when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// A picture before the guest's driver is loaded.
    #[serde(rename = "ramFB", skip_serializing_if = "Option::is_none")]
    pub ram_fb: Option<FeatureState>,
}

open_enum! {
    /// Values of `bus`.
    InputBus {
        Usb = "usb",
        Virtio = "virtio",
    }
}

open_enum! {
    /// Values of `type`.
    InputType {
        Tablet = "tablet",
        Keyboard = "keyboard",
    }
}

open_enum! {
    /// Values of `model`.
    PanicDeviceModel {
        Hyperv = "hyperv",
        Isa = "isa",
        Pvpanic = "pvpanic",
    }
}

open_enum! {
    /// Values of `action`.
    WatchdogAction {
        Poweroff = "poweroff",
        Reset = "reset",
        Shutdown = "shutdown",
    }
}
