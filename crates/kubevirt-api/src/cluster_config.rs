//! `spec.configuration` of the `KubeVirt` object: what an administrator may set for the whole cluster.

use std::collections::BTreeMap;

use k8s_openapi::{
    apimachinery::pkg::api::resource::Quantity, apimachinery::pkg::apis::meta::v1::LabelSelector,
};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{number, open_enum::open_enum, tolerant::null_as_default, vmi::EvictionStrategy};

/// Bindings that can be the default of guests; slirp is still known by name only.
pub const DEFAULT_INTERFACES: &[&str] = &["bridge", "slirp", "masquerade"];

/// What an administrator may set for the whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct KubeVirtConfiguration {
    /// CPU model of guests that name none; host-model when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// CPU time that a guest's pod asks for, instead of what follows from its CPUs and the
    /// allocation ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_request: Option<Quantity>,
    /// Feature gates, verbosity of logs and settings for test clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub developer_configuration: Option<DeveloperConfiguration>,
    /// Machine types that guests may use, as patterns such as q35*. Superseded by
    /// `architectureConfiguration`.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub emulated_machines: Vec<String>,
    /// Pull policy of the system's images in pods of guests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["Always", "Never", "IfNotPresent", ""])))]
    pub image_pull_policy: Option<String>,
    /// Defaults of live migrations; a migration policy can change them for some guests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migrations: Option<MigrationConfiguration>,
    /// Machine type of guests that name none. Superseded by `architectureConfiguration`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_type: Option<String>,
    /// What guests may use as network bindings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkConfiguration>,
    /// Directory of the UEFI firmware in the launcher image. Superseded by
    /// `architectureConfiguration`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovmf_path: Option<String>,
    /// `SELinux` type that launcher pods run as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_launcher_type: Option<String>,
    /// Runtime class of launcher pods; the node's own when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_runtime_class: Option<String>,
    /// What guests read about their machine in the system table of the firmware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smbios: Option<SmBiosConfiguration>,
    /// Machine types and firmware, one entry per architecture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture_configuration: Option<ArchConfiguration>,
    /// What a drain of the node does to guests whose VM does not say it: None, `LiveMigrate`,
    /// `LiveMigrateIfPossible` or External.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_strategy: Option<EvictionStrategy>,
    /// Factor for the memory that is counted for the hypervisor besides the guest's, as text: 1.5
    /// for half as much again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additional_guest_memory_overhead_ratio: Option<String>,
    /// CPU and memory of helper containers, one entry per kind of container.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map"), extend("x-kubernetes-list-map-keys" = ["type"])))]
    pub support_container_resources: Vec<SupportContainerResources>,
    /// Version patterns of guest agents. Not in use any more: agents are judged by their commands.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub supported_guest_agent_versions: Vec<String>,
    /// Seconds between reports of the memory balloon; 10 when unset, 0 switches them off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_balloon_stats_period: Option<u32>,
    /// Devices of nodes that guests may be given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permitted_host_devices: Option<PermittedHostDevices>,
    /// Mediated devices that nodes make out of their hardware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mediated_devices_configuration: Option<MediatedDevicesConfiguration>,
    /// Not in use any more: nodes are labelled with every feature that guests can have there,
    /// those of old models, too.
    #[serde(rename = "minCPUModel", skip_serializing_if = "Option::is_none")]
    pub min_cpu_model: Option<String>,
    /// CPU models that nodes are not labelled with, in place of the built-in list; a name counts
    /// whatever its value.
    #[serde(
        rename = "obsoleteCPUModels",
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub obsolete_cpu_models: BTreeMap<String, bool>,
    /// Most guests one node takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_instances_per_node: Option<i64>,
    /// Limits for requests of the API component.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_configuration: Option<ReloadableComponentConfiguration>,
    /// Limits for requests of the webhooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_configuration: Option<ReloadableComponentConfiguration>,
    /// Limits for requests of the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_configuration: Option<ReloadableComponentConfiguration>,
    /// Limits for requests of the handlers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handler_configuration: Option<ReloadableComponentConfiguration>,
    /// Versions and ciphers that the system's own servers accept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_configuration: Option<TlsConfiguration>,
    /// Seccomp profile of launcher pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp_configuration: Option<SeccompConfiguration>,
    /// Storage class of the small claims that hold a VM's persistent TPM and firmware variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_state_storage_class: Option<String>,
    /// Switches that hold for all guests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_options: Option<VirtualMachineOptions>,
    /// Nodes on which equal memory pages of guests are merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ksm_configuration: Option<KsmConfiguration>,
    /// Namespaces whose guests get a CPU limit when they have none.
    #[serde(
        rename = "autoCPULimitNamespaceLabelSelector",
        skip_serializing_if = "Option::is_none"
    )]
    pub auto_cpu_limit_namespace_label_selector: Option<LabelSelector>,
    /// How far guests can grow while they run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_update_configuration: Option<LiveUpdateConfiguration>,
    /// When a change of a VM reaches its running guest: Stage (at the next start) or `LiveUpdate`
    /// (at once where possible).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub vm_rollout_strategy: Option<VmRolloutStrategy>,
    /// The instance types and preferences that come with the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub common_instancetypes_deployment: Option<CommonInstancetypesDeployment>,
    /// The machinery for VM templates.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub virt_template_deployment: Option<VirtTemplateDeployment>,
    /// How VMs refer to instance types.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub instancetype: Option<InstancetypeConfiguration>,
    /// The hypervisor to use, at most one.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic"), length(max = 1)))]
    pub hypervisors: Vec<HypervisorConfiguration>,
    /// VMs whose disks keep track of changed blocks, for incremental backups.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub changed_block_tracking_label_selectors: Option<ChangedBlockTrackingSelectors>,
    /// SCSI persistent reservations for disks shared between guests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub persistent_reservation_configuration: Option<PersistentReservationConfiguration>,
    /// Guests whose memory the host cannot read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub confidential_compute: Option<ConfidentialComputeConfiguration>,
    /// `AggregateToDefault` adds the system's rights to the cluster roles admin, edit and view;
    /// Manual leaves that to the administrator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_aggregation_strategy: Option<RoleAggregationStrategy>,
}

/// `developerConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DeveloperConfiguration {
    /// Gates to switch on, by name.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub feature_gates: Vec<String>,
    /// Gates to switch off, by name; wins over `featureGates`.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub disabled_feature_gates: Vec<String>,
    /// Percent that a filesystem may be too small for a disk image before the start is refused; 10
    /// when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc_tolerate_less_space_up_to_percent: Option<i64>,
    /// Bytes kept free on a claim besides the disk image; 131072 when unset.
    #[serde(
        rename = "minimumReservePVCBytes",
        skip_serializing_if = "Option::is_none"
    )]
    pub minimum_reserve_pvc_bytes: Option<u64>,
    /// Percent of guest memory in relation to the memory the pod asks for: 100 when unset, 150 lets
    /// guests have half as much again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 10)))]
    pub memory_overcommit: Option<i64>,
    /// Labels that nodes of guests must have; for test clusters.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub node_selectors: BTreeMap<String, String>,
    /// Lets guests run without hardware virtualisation, slowly, on nodes that have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_emulation: Option<bool>,
    /// Guest CPUs per CPU that the pod asks for; 10 when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_allocation_ratio: Option<i64>,
    /// Lowest frequency in Hz that guests bound to a time stamp counter may get, instead of the
    /// lowest of the nodes.
    #[serde(
        rename = "minimumClusterTSCFrequency",
        skip_serializing_if = "Option::is_none"
    )]
    pub minimum_cluster_tsc_frequency: Option<i64>,
    /// Limits for looking into disk images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_verification: Option<DiskVerification>,
    /// How much each component logs; 2 when unset, up to 9.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_verbosity: Option<LogVerbosity>,
    /// Serves profiles of the components; for measurements only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_profiler: Option<bool>,
}

/// `migrations` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationConfiguration {
    /// Taint that marks a node whose guests must leave; kubevirt.io/drain when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_drain_taint_key: Option<String>,
    /// Most migrations that leave one node at a time; 2 when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_outbound_migrations_per_node: Option<u32>,
    /// Most migrations at a time; 5 when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_migrations_per_cluster: Option<u32>,
    /// Slows a guest down whose memory changes faster than it can be copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_auto_converge: Option<bool>,
    /// Most bytes a second that one migration sends, such as 64Mi; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_per_migration: Option<Quantity>,
    /// Seconds per `GiB` of memory and copied disks after which a migration is given up, paused or
    /// switched to post-copy; 150 when unset.
    #[serde(
        rename = "completionTimeoutPerGiB",
        skip_serializing_if = "Option::is_none"
    )]
    pub completion_timeout_per_gib: Option<i64>,
    /// Longest stop of the guest at the switch-over, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1), extend("maximum" = 2_000_000)))]
    pub max_downtime_ms: Option<u64>,
    /// Seconds without progress after which a migration is given up; 150 when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_timeout: Option<i64>,
    /// Seconds that a migration waits for backups and memory dumps to finish; 150 when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utility_volumes_timeout: Option<i64>,
    /// Lets guests migrate even when their caches make it unsafe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsafe_migration_override: Option<bool>,
    /// Lets a guest go on at its target before all of its memory is there. A failure then loses the
    /// guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_post_copy: Option<bool>,
    /// Lets a migration that does not finish stop the guest, or switch to post-copy where that is
    /// allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_workload_disruption: Option<bool>,
    /// Sends guest memory in the clear; only for closed networks.
    #[serde(rename = "disableTLS", skip_serializing_if = "Option::is_none")]
    pub disable_tls: Option<bool>,
    /// Network attachment definition of the network for migrations; the pod network when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Gives the target pod the `SELinux` level of the source; true when unset.
    #[serde(
        rename = "matchSELinuxLevelOnMigration",
        skip_serializing_if = "Option::is_none"
    )]
    pub match_se_linux_level_on_migration: Option<bool>,
}

/// `network` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkConfiguration {
    /// Binding of guests that name no interface: masquerade or bridge.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("enum" = DEFAULT_INTERFACES)))]
    pub default_network_interface: Option<String>,
    /// No longer of any effect: the binding was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permit_slirp_interface: Option<bool>,
    /// Whether guests may take over the pod's address with a bridge; true when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permit_bridge_interface_on_pod_network: Option<bool>,
    /// Network bindings besides the built-in ones, by the name that interfaces use.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub binding: BTreeMap<String, InterfaceBindingPlugin>,
}

/// `smbios` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SmBiosConfiguration {
    /// Name of the manufacturer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manufacturer: Option<String>,
    /// Name of the product.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// Version of the product.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Article number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    /// Family of products.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
}

/// `architectureConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ArchConfiguration {
    /// Settings for 64-bit PCs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amd64: Option<ArchSpecificConfiguration>,
    /// Settings for 64-bit ARM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arm64: Option<ArchSpecificConfiguration>,
    /// Kept for old objects; guests of that architecture cannot run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ppc64le: Option<ArchSpecificConfiguration>,
    /// Settings for IBM Z.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s390x: Option<ArchSpecificConfiguration>,
    /// Architecture of guests that name none; that of the control plane when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_architecture: Option<String>,
}

/// `supportContainerResources` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SupportContainerResources {
    /// Kind of the container: hotplug-disk, container-disk, virtiofs, sidecar, vmexport or
    /// guest-console-log.
    #[serde(rename = "type")]
    pub type_: SupportContainerType,
    /// CPU and memory for it.
    pub resources: ResourceRequirementsWithoutClaims,
}

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

/// `apiConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ReloadableComponentConfiguration {
    /// Limits for its requests to the API server; taken over without a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest_client: Option<RestClientConfiguration>,
}

/// `tlsConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TlsConfiguration {
    /// Least version: `VersionTLS10`, `VersionTLS11`, `VersionTLS12` or `VersionTLS13`.
    #[serde(rename = "minTLSVersion", skip_serializing_if = "Option::is_none")]
    pub min_tls_version: Option<TlsProtocolVersion>,
    /// Cipher suites for versions up to 1.2, by their IANA names.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "set")))]
    pub ciphers: Vec<String>,
}

/// `seccompConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SeccompConfiguration {
    /// Profile of the pods of guests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_instance_profile: Option<VirtualMachineInstanceProfile>,
}

/// `virtualMachineOptions` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineOptions {
    /// Guests keep memory that they do not use instead of giving it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_free_page_reporting: Option<DisableFreePageReporting>,
    /// Serial consoles are not copied to the pod's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_serial_console_log: Option<DisableSerialConsoleLog>,
}

/// `ksmConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct KsmConfiguration {
    /// Labels of those nodes; empty means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_label_selector: Option<LabelSelector>,
}

/// `liveUpdateConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct LiveUpdateConfiguration {
    /// Multiple of its size at start that a guest can grow to; 4 when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hotplug_ratio: Option<u32>,
    /// Most CPU sockets a guest can grow to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpu_sockets: Option<u32>,
    /// Most memory a guest can grow to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_guest: Option<Quantity>,
}

/// `commonInstancetypesDeployment` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CommonInstancetypesDeployment {
    /// False does not install them; true when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub enabled: Option<bool>,
}

/// `virtTemplateDeployment` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtTemplateDeployment {
    /// Whether it is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub enabled: Option<bool>,
}

/// `instancetype` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InstancetypeConfiguration {
    /// reference keeps a VM bound to its instance type, expand writes the values into the VM,
    /// `expandAll` does so also for VMs made before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub reference_policy: Option<InstancetypeReferencePolicy>,
}

/// `hypervisors` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HypervisorConfiguration {
    /// kvm or hyperv-direct.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["kvm", "hyperv-direct"])))]
    pub name: Option<String>,
}

/// `changedBlockTrackingLabelSelectors` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ChangedBlockTrackingSelectors {
    /// Labels of namespaces whose VMs are all tracked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_label_selector: Option<LabelSelector>,
    /// Labels of VMs that are tracked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_label_selector: Option<LabelSelector>,
}

/// `persistentReservationConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentReservationConfiguration {
    /// Whether nodes run the helper for reservations.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub enabled: Option<bool>,
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

/// `diskVerification` of [`DeveloperConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DiskVerification {
    /// Most memory the check of an image may take.
    pub memory_limit: Quantity,
}

/// `logVerbosity` of [`DeveloperConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct LogVerbosity {
    /// Verbosity of the API component.
    #[serde(rename = "virtAPI", skip_serializing_if = "Option::is_none")]
    pub virt_api: Option<u64>,
    /// Verbosity of the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_controller: Option<u64>,
    /// Verbosity of the handlers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_handler: Option<u64>,
    /// Verbosity of the launchers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_launcher: Option<u64>,
    /// Verbosity of the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_operator: Option<u64>,
    /// Verbosity of the controller between clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_synchronization_controller: Option<u64>,
    /// Verbosity of the handlers of single nodes, by node name.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub node_verbosity: BTreeMap<String, u64>,
}

/// `binding` of [`NetworkConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InterfaceBindingPlugin {
    /// Image of a container that runs beside the guest and may change its domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sidecar_image: Option<String>,
    /// Network attachment definition that is added to the pod, as namespace/name or name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_attachment_definition: Option<String>,
    /// How the guest's interface is made without help of a sidecar: tap or `managedTap`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_attachment_type: Option<DomainAttachmentType>,
    /// What is done at a migration; guests with this binding cannot migrate when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<InterfaceBindingMigration>,
    /// device-info gives the sidecar a file with the devices of the networks.
    #[serde(rename = "downwardAPI", skip_serializing_if = "Option::is_none")]
    pub downward_api: Option<NetworkBindingDownwardApiType>,
    /// Resources that the binding needs in the pod, besides the guest's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_resource_overhead: Option<ResourceRequirementsWithoutClaims>,
}

/// `amd64` of [`ArchConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ArchSpecificConfiguration {
    /// Directory of the UEFI firmware in the launcher image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovmf_path: Option<String>,
    /// Machine types that guests may use, as patterns such as q35*.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub emulated_machines: Vec<String>,
    /// Machine type of guests that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_type: Option<String>,
}

/// `resources` of [`SupportContainerResources`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRequirementsWithoutClaims {
    /// Most that may be used.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub limits: BTreeMap<String, Quantity>,
    /// What is asked of the scheduler.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub requests: BTreeMap<String, Quantity>,
}

/// `pciHostDevices` of [`PermittedHostDevices`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PciHostDevice {
    /// Vendor and product in hexadecimal, such as 10de:1eb8.
    pub pci_vendor_selector: String,
    /// Resource that VMs ask for by `deviceName`.
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
    pub mdev_name_selector: String,
    /// Resource that VMs ask for by `deviceName`.
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

/// `restClient` of [`ReloadableComponentConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RestClientConfiguration {
    /// Slows requests down when there are too many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limiter: Option<RateLimiter>,
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

/// `disableFreePageReporting` of [`VirtualMachineOptions`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DisableFreePageReporting {}

/// `disableSerialConsoleLog` of [`VirtualMachineOptions`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DisableSerialConsoleLog {}

/// `tdx` of [`ConfidentialComputeConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TdxConfiguration {
    /// Proof towards third parties that a guest runs protected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attestation: Option<TdxAttestationConfiguration>,
}

/// `migration` of [`InterfaceBindingPlugin`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InterfaceBindingMigration {
    /// link-refresh takes the guest's link down and up after a migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<MigrationMethod>,
}

/// `selectors` of [`UsbHostDevice`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct UsbSelector {
    /// Vendor in hexadecimal, such as 46f4.
    pub vendor: String,
    /// Product in hexadecimal, such as 0001.
    pub product: String,
}

/// `rateLimiter` of [`RestClientConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RateLimiter {
    /// So many requests a second, with bursts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_bucket_rate_limiter: Option<TokenBucketRateLimiter>,
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

/// `tokenBucketRateLimiter` of [`RateLimiter`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TokenBucketRateLimiter {
    /// Requests a second in the long run.
    #[serde(serialize_with = "number::required")]
    #[cfg_attr(feature = "schema", schemars(extend("format" = "float")))]
    pub qps: f64,
    /// Requests that may come at once.
    pub burst: i64,
}

open_enum! {
    /// Words of `vmRolloutStrategy`.
    VmRolloutStrategy {
        Stage = "Stage",
        LiveUpdate = "LiveUpdate",
    }
}

open_enum! {
    /// Words of `roleAggregationStrategy`.
    RoleAggregationStrategy {
        AggregateToDefault = "AggregateToDefault",
        Manual = "Manual",
    }
}

open_enum! {
    /// Words of `type`.
    SupportContainerType {
        HotplugDisk = "hotplug-disk",
        ContainerDisk = "container-disk",
        Virtiofs = "virtiofs",
        Sidecar = "sidecar",
        Vmexport = "vmexport",
        GuestConsoleLog = "guest-console-log",
    }
}

open_enum! {
    /// Words of `minTLSVersion`.
    TlsProtocolVersion {
        VersionTLS10 = "VersionTLS10",
        VersionTLS11 = "VersionTLS11",
        VersionTLS12 = "VersionTLS12",
        VersionTLS13 = "VersionTLS13",
    }
}

open_enum! {
    /// Words of `referencePolicy`.
    InstancetypeReferencePolicy {
        Reference = "reference",
        Expand = "expand",
        ExpandAll = "expandAll",
    }
}

open_enum! {
    /// Words of `domainAttachmentType`.
    DomainAttachmentType {
        Tap = "tap",
        ManagedTap = "managedTap",
    }
}

open_enum! {
    /// Words of `downwardAPI`.
    NetworkBindingDownwardApiType {
        DeviceInfo = "device-info",
    }
}

open_enum! {
    /// Words of `method`.
    MigrationMethod {
        LinkRefresh = "link-refresh",
    }
}
