//! What kind of machine the guest gets: CPU, memory, chassis, security.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    clock::Clock, devices::Devices, features::Features, firmware::Firmware, open_enum::open_enum,
    tolerant::null_as_default,
};

/// `DomainSpec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DomainSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<Firmware>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<Features>,
    pub devices: Devices,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_threads_policy: Option<IoThreadsPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_threads: Option<DiskIoThreads>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chassis: Option<Chassis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_security: Option<LaunchSecurity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reboot_policy: Option<RebootPolicy>,
}

/// `Machine`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Machine {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
}

/// `ResourceRequirements`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRequirements {
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub requests: BTreeMap<String, Quantity>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub limits: BTreeMap<String, Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overcommit_guest_overhead: Option<bool>,
}

/// `CPU`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Cpu {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sockets: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub features: Vec<CpuFeature>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedicated_cpu_placement: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<Numa>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolate_emulator_thread: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realtime: Option<Realtime>,
}

/// `Memory`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugepages: Option<Hugepages>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_guest: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_overhead: Option<ReservedOverhead>,
}

/// `DiskIOThreads`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DiskIoThreads {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supplemental_pool_thread_count: Option<u32>,
}

/// `Chassis`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Chassis {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manufacturer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
}

/// `LaunchSecurity`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct LaunchSecurity {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sev: Option<Sev>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snp: Option<Sevsnp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tdx: Option<Tdx>,
}

/// `CPUFeature`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CpuFeature {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

/// `NUMA`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Numa {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_mapping_passthrough: Option<NumaGuestMappingPassthrough>,
}

/// `Realtime`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Realtime {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask: Option<String>,
}

/// `Hugepages`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Hugepages {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_size: Option<String>,
}

/// `ReservedOverhead`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ReservedOverhead {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_overhead: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_lock: Option<MemLockRequirement>,
}

/// `SEV`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Sev {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<SevPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attestation: Option<SevAttestation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dh_cert: Option<String>,
}

/// `SEVSNP`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Sevsnp {}

/// `TDX`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Tdx {}

/// `NUMAGuestMappingPassthrough`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct NumaGuestMappingPassthrough {}

/// `SEVPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SevPolicy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted_state: Option<bool>,
}

/// `SEVAttestation`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SevAttestation {}

open_enum! {
    /// Values of `IOThreadsPolicy`.
    IoThreadsPolicy {
        Shared = "shared",
        Auto = "auto",
        SupplementalPool = "supplementalPool",
    }
}

open_enum! {
    /// Values of `RebootPolicy`.
    RebootPolicy {
        Reboot = "Reboot",
        Terminate = "Terminate",
    }
}

open_enum! {
    /// Values of `MemLockRequirement`.
    MemLockRequirement {
        NotRequired = "NotRequired",
        Required = "Required",
    }
}
