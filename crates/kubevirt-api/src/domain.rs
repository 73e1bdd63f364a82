//! The virtual hardware of a guest: CPU, memory, chassis, security.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    clock::Clock, devices::Devices, features::Features, firmware::Firmware, open_enum::open_enum,
    tolerant::null_as_default,
};

/// The virtual hardware that the guest sees.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DomainSpec {
    /// CPU and memory that the pod asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Number, layout and model of the virtual CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Size and backing of the guest's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Machine type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// Firmware, its identity and how it boots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<Firmware>,
    /// The guest's clock and timers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    /// Features of CPU and platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<Features>,
    /// Disks, interfaces and everything else that is plugged in.
    #[serde(deserialize_with = "null_as_default")]
    pub devices: Devices,
    /// How disks share I/O threads: shared, auto or `supplementalPool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_threads_policy: Option<IoThreadsPolicy>,
    /// Details of the I/O threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_threads: Option<DiskIoThreads>,
    /// What the guest reads about its chassis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chassis: Option<Chassis>,
    /// Encryption of the guest's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_security: Option<LaunchSecurity>,
    /// What a reboot by the guest does: Reboot, or Terminate to end the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reboot_policy: Option<RebootPolicy>,
}

/// Machine type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Machine {
    /// Type as QEMU knows it, for example q35 or pc-q35-10.0; the cluster's default when unset.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
}

/// CPU and memory of the pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRequirements {
    /// Resources reserved on the node; memory here is also the guest's memory when
    /// `domain.memory` is unset.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub requests: BTreeMap<String, Quantity>,
    /// What may not be exceeded.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub limits: BTreeMap<String, Quantity>,
    /// Leaves the hypervisor's own memory out of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overcommit_guest_overhead: Option<bool>,
}

/// The virtual CPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Cpu {
    /// Cores per socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Sockets; more can be added while the guest runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<u32>,
    /// Up to how many sockets can be added while the guest runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sockets: Option<u32>,
    /// Threads per core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// `host-model`, `host-passthrough` or a model known to libvirt; `host-model` when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// CPU features switched on or off one by one.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub features: Vec<CpuFeature>,
    /// Dedicates a physical CPU to every virtual CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedicated_cpu_placement: Option<bool>,
    /// NUMA layout of the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<Numa>,
    /// Dedicates a physical CPU to the emulator; needs `dedicatedCpuPlacement`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolate_emulator_thread: Option<bool>,
    /// Real-time scheduling of the virtual CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realtime: Option<Realtime>,
}

/// The guest's memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// Backs the memory with huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugepages: Option<Hugepages>,
    /// How much the guest gets, for example `2Gi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<Quantity>,
    /// Up to how much can be added while the guest runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_guest: Option<Quantity>,
    /// Memory set aside for the hypervisor on top of the estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_overhead: Option<ReservedOverhead>,
}

/// Details of the I/O threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DiskIoThreads {
    /// Threads in the pool of policy `supplementalPool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supplemental_pool_thread_count: Option<u32>,
}

/// What the guest reads about its chassis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Chassis {
    /// Name of the manufacturer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manufacturer: Option<String>,
    /// Version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Serial number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Inventory number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asset: Option<String>,
    /// Article number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
}

/// Memory encryption; exactly one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct LaunchSecurity {
    /// AMD SEV.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sev: Option<Sev>,
    /// AMD SEV-SNP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snp: Option<Sevsnp>,
    /// Intel TDX.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tdx: Option<Tdx>,
}

/// A CPU feature by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CpuFeature {
    /// Name as libvirt knows it.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// force, require (the default), optional, disable or forbid.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["force", "require", "optional", "disable", "forbid"])))]
    pub policy: Option<String>,
}

/// `numa` of [`Cpu`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Numa {
    /// Gives the guest the NUMA nodes of its CPUs on the host. Needs `dedicatedCpuPlacement` and
    /// hugepages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_mapping_passthrough: Option<NumaGuestMappingPassthrough>,
}

/// `realtime` of [`Cpu`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Realtime {
    /// Guest CPUs that run in real time, such as 0-3,^1; all when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask: Option<String>,
}

/// Huge pages as backing of the memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Hugepages {
    /// Size of a page, such as `2Mi` or `1Gi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_size: Option<String>,
}

/// `reservedOverhead` of [`Memory`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ReservedOverhead {
    /// Additional memory overhead of the hypervisor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_overhead: Option<Quantity>,
    /// Required keeps the hypervisor's memory out of swap, as some devices need; `NotRequired` does
    /// not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_lock: Option<MemLockRequirement>,
}

/// `sev` of [`LaunchSecurity`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Sev {
    /// What the platform must do for the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<SevPolicy>,
    /// Lets the owner verify the guest before secrets are given to it; the guest waits, paused, for
    /// that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attestation: Option<SevAttestation>,
    /// Session of the guest's owner, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Diffie-Hellman key of the guest's owner, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dh_cert: Option<String>,
}

/// `snp` of [`LaunchSecurity`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Sevsnp {}

/// `tdx` of [`LaunchSecurity`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Tdx {}

/// `guestMappingPassthrough` of [`Numa`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct NumaGuestMappingPassthrough {}

/// `policy` of [`Sev`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SevPolicy {
    /// Also encrypts the CPU registers (SEV-ES).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted_state: Option<bool>,
}

/// `attestation` of [`Sev`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SevAttestation {}

open_enum! {
    /// Values of `ioThreadsPolicy`.
    IoThreadsPolicy {
        Shared = "shared",
        Auto = "auto",
        SupplementalPool = "supplementalPool",
    }
}

open_enum! {
    /// Values of `rebootPolicy`.
    RebootPolicy {
        Reboot = "Reboot",
        Terminate = "Terminate",
    }
}

open_enum! {
    /// Values of `memLock`.
    MemLockRequirement {
        NotRequired = "NotRequired",
        Required = "Required",
    }
}
