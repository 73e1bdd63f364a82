//! Instance types: complete sizes for VMs (`instancetype.kubevirt.io`), for one namespace or for the
//! cluster. Settings that a VM may override are in `preference`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    devices::Gpu, devices::HostDevice, domain::DiskIoThreads, domain::Hugepages,
    domain::IoThreadsPolicy, domain::LaunchSecurity, domain::Numa, domain::Realtime,
    resource::kind, tolerant::null_as_default,
};

/// A size for VMs of this namespace: vCPUs, memory and what belongs to them. A VM that names it may
/// not set these fields itself.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstancetype {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VirtualMachineInstancetypeSpec,
}

kind!(VirtualMachineInstancetype {
    group: "instancetype.kubevirt.io",
    version: "v1beta1",
    plural: "virtualmachineinstancetypes",
    scope: NamespaceResourceScope,
    spec: VirtualMachineInstancetypeSpec,
});

/// A size for VMs of every namespace: vCPUs, memory and what belongs to them. A VM that names it
/// may not set these fields itself.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineClusterInstancetype {
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: VirtualMachineInstancetypeSpec,
}

kind!(VirtualMachineClusterInstancetype {
    group: "instancetype.kubevirt.io",
    version: "v1beta1",
    plural: "virtualmachineclusterinstancetypes",
    scope: ClusterResourceScope,
    spec: VirtualMachineInstancetypeSpec,
});

/// What a VM of this size gets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstancetypeSpec {
    /// Labels that the node must have.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub node_selector: BTreeMap<String, String>,
    /// Scheduler that places the VM's pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// CPUs of the guest.
    #[serde(deserialize_with = "null_as_default")]
    pub cpu: CpuInstancetype,
    /// Memory of the guest.
    #[serde(deserialize_with = "null_as_default")]
    pub memory: MemoryInstancetype,
    /// GPUs to hand through.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub gpus: Vec<Gpu>,
    /// Devices of the host to hand through.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub host_devices: Vec<HostDevice>,
    /// How disks share I/O threads: shared, auto or `supplementalPool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_threads_policy: Option<IoThreadsPolicy>,
    /// The pool of I/O threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_threads: Option<DiskIoThreads>,
    /// Keeps the guest's memory secret from the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_security: Option<LaunchSecurity>,
    /// Annotations for the VM's instances.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
}

/// CPUs of a size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CpuInstancetype {
    /// Number of vCPUs; the preference turns them into sockets, cores and threads.
    #[serde(deserialize_with = "null_as_default")]
    pub guest: u32,
    /// CPU model that the guest sees, such as host-model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Gives each vCPU a CPU of the host for itself.
    #[serde(
        rename = "dedicatedCPUPlacement",
        skip_serializing_if = "Option::is_none"
    )]
    pub dedicated_cpu_placement: Option<bool>,
    /// How the guest sees the host's NUMA nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<Numa>,
    /// Dedicates a CPU to the emulator; needs dedicated CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolate_emulator_thread: Option<bool>,
    /// Real-time scheduling for the vCPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realtime: Option<Realtime>,
    /// How many sockets a running guest may be given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sockets: Option<u32>,
}

/// Memory of a size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryInstancetype {
    /// Memory that the guest sees, such as 4Gi.
    #[serde(deserialize_with = "null_as_default")]
    pub guest: Quantity,
    /// Backs the memory with huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugepages: Option<Hugepages>,
    /// By how many percent less than the guest's memory the pod asks for, 0 to 100. Not together
    /// with hugepages.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("maximum" = 100), extend("minimum" = 0)))]
    pub overcommit_percent: Option<i64>,
    /// How much memory a running guest may be given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_guest: Option<Quantity>,
}
