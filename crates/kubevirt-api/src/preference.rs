//! Preferences: the best settings for an operating system (`instancetype.kubevirt.io`), for one namespace
//! or for the cluster. A preference sets the fields that a VM leaves unset and never overrides it, apart from
//! `preferredAcpi` and `preferredDisableHotplug`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    clock::ClockOffset, clock::Timer, devices::InputBus, devices::InputType,
    devices::PanicDeviceModel, devices::Rng, devices::TpmDevice, devices::VgpuOptions,
    disks::BlockSize, disks::DiskBus, disks::DriverCache, disks::DriverIo, domain::CpuFeature,
    domain::LaunchSecurity, features::FeatureApic, features::FeatureHyperv, features::FeatureKvm,
    features::FeatureState, firmware::Efi, network::InterfaceMasquerade, open_enum::open_enum,
    resource::kind, tolerant::null_as_default,
};

/// What guests of one system like best, for VMs of this namespace; fills the fields that a VM
/// leaves open.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePreference {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VirtualMachinePreferenceSpec,
}

kind!(VirtualMachinePreference {
    group: "instancetype.kubevirt.io",
    version: "v1beta1",
    plural: "virtualmachinepreferences",
    scope: NamespaceResourceScope,
    spec: VirtualMachinePreferenceSpec,
});

/// What guests of one system like best, for VMs of every namespace; fills the fields that a VM
/// leaves open.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineClusterPreference {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VirtualMachinePreferenceSpec,
}

kind!(VirtualMachineClusterPreference {
    group: "instancetype.kubevirt.io",
    version: "v1beta1",
    plural: "virtualmachineclusterpreferences",
    scope: ClusterResourceScope,
    spec: VirtualMachinePreferenceSpec,
});

/// What to fill into a VM that names this preference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePreferenceSpec {
    /// The guest's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockPreferences>,
    /// How vCPUs are arranged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuPreferences>,
    /// Devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<DevicePreferences>,
    /// Features of CPU and platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<FeaturePreferences>,
    /// BIOS or EFI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<FirmwarePreferences>,
    /// The machine type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachinePreferences>,
    /// Volumes made with the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<VolumePreferences>,
    /// DNS subdomain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_subdomain: Option<String>,
    /// Seconds that the guest gets to shut down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_termination_grace_period_seconds: Option<i64>,
    /// What a VM must have at least to use this preference; less is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requirements: Option<PreferenceRequirements>,
    /// Annotations for the VM's instances.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
    /// Older place of `cpu.spreadOptions.ratio`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefer_spread_socket_to_core_ratio: Option<u32>,
    /// CPU architecture, such as amd64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_architecture: Option<String>,
    /// Keeps the guest's memory secret from the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_launch_security: Option<LaunchSecurity>,
}

/// Preferences for volumes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VolumePreferences {
    /// Storage class of data volumes that are made with the VM and name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_storage_class_name: Option<String>,
}

/// Preferences for CPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CpuPreferences {
    /// What the vCPUs of an instance type become: sockets (the default), cores, threads, spread
    /// (over several, see `spreadOptions`) or any. The values that begin with prefer are older names
    /// of the same.
    #[serde(
        rename = "preferredCPUTopology",
        skip_serializing_if = "Option::is_none"
    )]
    pub preferred_cpu_topology: Option<PreferredCpuTopology>,
    /// How spread arranges vCPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread_options: Option<SpreadOptions>,
    /// CPU features to add.
    #[serde(
        rename = "preferredCPUFeatures",
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub preferred_cpu_features: Vec<CpuFeature>,
}

/// How vCPUs are spread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SpreadOptions {
    /// Over what: `SocketsCores` (the default), `SocketsCoresThreads` or `CoresThreads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub across: Option<SpreadAcross>,
    /// Cores for each socket, 2 when unset; with `CoresThreads` threads for each core, where only 2
    /// is possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<u32>,
}

/// Preferences for devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DevicePreferences {
    /// Whether the guest gets a graphics device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_autoattach_graphics_device: Option<bool>,
    /// Whether the guest gets a memory balloon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_autoattach_mem_balloon: Option<bool>,
    /// Whether a guest that names no network joins the pod network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_autoattach_pod_interface: Option<bool>,
    /// Whether the guest gets a serial console.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_autoattach_serial_console: Option<bool>,
    /// Whether the guest gets a tablet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_autoattach_input_device: Option<bool>,
    /// Leaves out what attaching disks to a running guest needs. Overrules the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_disable_hotplug: Option<bool>,
    /// Options of virtual GPUs.
    #[serde(
        rename = "preferredVirtualGPUOptions",
        skip_serializing_if = "Option::is_none"
    )]
    pub preferred_virtual_gpu_options: Option<VgpuOptions>,
    /// Model of a sound device that names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_sound_model: Option<String>,
    /// Devices that old virtio drivers understand too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_use_virtio_transitional: Option<bool>,
    /// Bus of input devices that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_input_bus: Option<InputBus>,
    /// Type of input devices that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_input_type: Option<InputType>,
    /// Bus of disks that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_disk_bus: Option<DiskBus>,
    /// Bus of LUNs that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_lun_bus: Option<DiskBus>,
    /// Bus of CD-ROM drives that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_cdrom_bus: Option<DiskBus>,
    /// Whether virtio disks get an I/O thread each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_disk_dedicated_io_thread: Option<bool>,
    /// How the host caches disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_disk_cache: Option<DriverCache>,
    /// How the host does the I/O of disks.
    #[serde(rename = "preferredDiskIO", skip_serializing_if = "Option::is_none")]
    pub preferred_disk_io: Option<DriverIo>,
    /// Block sizes of disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_disk_block_size: Option<BlockSize>,
    /// Model of network interfaces that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_interface_model: Option<String>,
    /// Gives the guest random numbers of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_rng: Option<Rng>,
    /// Several queues for each virtio disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_block_multi_queue: Option<bool>,
    /// Several queues for each virtio interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_network_interface_multi_queue: Option<bool>,
    /// Gives the guest a TPM.
    #[serde(rename = "preferredTPM", skip_serializing_if = "Option::is_none")]
    pub preferred_tpm: Option<TpmDevice>,
    /// Joins the pod network behind address translation when the interface chooses no binding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_interface_masquerade: Option<InterfaceMasquerade>,
    /// Model of the device through which a guest reports that it crashed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_panic_device_model: Option<PanicDeviceModel>,
    /// Kind of the video device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_video_type: Option<String>,
}

/// Preferences for features of CPU and platform.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct FeaturePreferences {
    /// ACPI. Overrules the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_acpi: Option<FeatureState>,
    /// The interrupt controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_apic: Option<FeatureApic>,
    /// Hyper-V enlightenments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_hyperv: Option<FeatureHyperv>,
    /// How KVM is visible to the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_kvm: Option<FeatureKvm>,
    /// Paravirtual spin locks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_pvspinlock: Option<FeatureState>,
    /// System management mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_smm: Option<FeatureState>,
}

/// Preferences for firmware, used when the VM chooses none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct FirmwarePreferences {
    /// BIOS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_use_bios: Option<bool>,
    /// Shows BIOS messages on the serial console.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_use_bios_serial: Option<bool>,
    /// Older way to say `preferredEfi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_use_efi: Option<bool>,
    /// Older way to say `preferredEfi.secureBoot`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_use_secure_boot: Option<bool>,
    /// EFI with these settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_efi: Option<Efi>,
}

/// Preferences for the machine type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MachinePreferences {
    /// Machine type, such as q35.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_machine_type: Option<String>,
}

/// Preferences for the clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ClockPreferences {
    /// What the clock shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_clock_offset: Option<ClockOffset>,
    /// Timers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_timer: Option<Timer>,
}

/// What a VM must have at least.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PreferenceRequirements {
    /// CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuPreferenceRequirement>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryPreferenceRequirement>,
    /// The CPU architecture that it must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
}

/// The least that a VM must have of CPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CpuPreferenceRequirement {
    /// Number of vCPUs.
    #[serde(deserialize_with = "null_as_default")]
    pub guest: u32,
}

/// The least that a VM must have of memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryPreferenceRequirement {
    /// Memory, such as 2Gi.
    #[serde(deserialize_with = "null_as_default")]
    pub guest: Quantity,
}

open_enum! {
    /// What the vCPUs of an instance type become; older names begin with `prefer`.
    PreferredCpuTopology {
        PreferCores = "preferCores",
        PreferSockets = "preferSockets",
        PreferThreads = "preferThreads",
        PreferSpread = "preferSpread",
        PreferAny = "preferAny",
        Cores = "cores",
        Sockets = "sockets",
        Threads = "threads",
        Spread = "spread",
        Any = "any",
    }
}

open_enum! {
    /// What vCPUs are spread over.
    SpreadAcross {
        SocketsCoresThreads = "SocketsCoresThreads",
        SocketsCores = "SocketsCores",
        CoresThreads = "CoresThreads",
    }
}
