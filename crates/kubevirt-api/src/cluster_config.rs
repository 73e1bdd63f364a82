//! `spec.configuration` of the `KubeVirt` object: what an administrator may set for the whole cluster.

use std::collections::BTreeMap;

use k8s_openapi::{
    apimachinery::pkg::api::resource::Quantity, apimachinery::pkg::apis::meta::v1::LabelSelector,
};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{open_enum::open_enum, tolerant::null_as_default, vmi::EvictionStrategy};

/// What an administrator may set for the whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct KubeVirtConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_request: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub developer_configuration: Option<DeveloperConfiguration>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub emulated_machines: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["Always", "Never", "IfNotPresent", ""])))]
    pub image_pull_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migrations: Option<MigrationConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovmf_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_launcher_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_runtime_class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smbios: Option<SmBiosConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture_configuration: Option<ArchConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_strategy: Option<EvictionStrategy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additional_guest_memory_overhead_ratio: Option<String>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map"), extend("x-kubernetes-list-map-keys" = ["type"])))]
    pub support_container_resources: Vec<SupportContainerResources>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub supported_guest_agent_versions: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_balloon_stats_period: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permitted_host_devices: Option<PermittedHostDevices>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mediated_devices_configuration: Option<MediatedDevicesConfiguration>,
    #[serde(rename = "minCPUModel", skip_serializing_if = "Option::is_none")]
    pub min_cpu_model: Option<String>,
    #[serde(
        rename = "obsoleteCPUModels",
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub obsolete_cpu_models: BTreeMap<String, bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_instances_per_node: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_configuration: Option<ReloadableComponentConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_configuration: Option<ReloadableComponentConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_configuration: Option<ReloadableComponentConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handler_configuration: Option<ReloadableComponentConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_configuration: Option<TlsConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp_configuration: Option<SeccompConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_state_storage_class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_options: Option<VirtualMachineOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ksm_configuration: Option<KsmConfiguration>,
    #[serde(
        rename = "autoCPULimitNamespaceLabelSelector",
        skip_serializing_if = "Option::is_none"
    )]
    pub auto_cpu_limit_namespace_label_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_update_configuration: Option<LiveUpdateConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub vm_rollout_strategy: Option<VmRolloutStrategy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub common_instancetypes_deployment: Option<CommonInstancetypesDeployment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub virt_template_deployment: Option<VirtTemplateDeployment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub instancetype: Option<InstancetypeConfiguration>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic"), length(max = 1)))]
    pub hypervisors: Vec<HypervisorConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub changed_block_tracking_label_selectors: Option<ChangedBlockTrackingSelectors>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub persistent_reservation_configuration: Option<PersistentReservationConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub confidential_compute: Option<ConfidentialComputeConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_aggregation_strategy: Option<RoleAggregationStrategy>,
}

/// `developerConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DeveloperConfiguration {
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub feature_gates: Vec<String>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub disabled_feature_gates: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc_tolerate_less_space_up_to_percent: Option<i64>,
    #[serde(
        rename = "minimumReservePVCBytes",
        skip_serializing_if = "Option::is_none"
    )]
    pub minimum_reserve_pvc_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 10)))]
    pub memory_overcommit: Option<i64>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub node_selectors: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_emulation: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_allocation_ratio: Option<i64>,
    #[serde(
        rename = "minimumClusterTSCFrequency",
        skip_serializing_if = "Option::is_none"
    )]
    pub minimum_cluster_tsc_frequency: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_verification: Option<DiskVerification>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_verbosity: Option<LogVerbosity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_profiler: Option<bool>,
}

/// `migrations` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_drain_taint_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_outbound_migrations_per_node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_migrations_per_cluster: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_auto_converge: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_per_migration: Option<Quantity>,
    #[serde(
        rename = "completionTimeoutPerGiB",
        skip_serializing_if = "Option::is_none"
    )]
    pub completion_timeout_per_gib: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1), extend("maximum" = 2_000_000)))]
    pub max_downtime_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_timeout: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utility_volumes_timeout: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsafe_migration_override: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_post_copy: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_workload_disruption: Option<bool>,
    #[serde(rename = "disableTLS", skip_serializing_if = "Option::is_none")]
    pub disable_tls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_network_interface: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permit_slirp_interface: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permit_bridge_interface_on_pod_network: Option<bool>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manufacturer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
}

/// `architectureConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ArchConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amd64: Option<ArchSpecificConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arm64: Option<ArchSpecificConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ppc64le: Option<ArchSpecificConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s390x: Option<ArchSpecificConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_architecture: Option<String>,
}

/// `supportContainerResources` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SupportContainerResources {
    #[serde(rename = "type")]
    pub type_: SupportContainerType,
    pub resources: ResourceRequirementsWithoutClaims,
}

/// `permittedHostDevices` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PermittedHostDevices {
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub pci_host_devices: Vec<PciHostDevice>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub mediated_devices: Vec<MediatedHostDevice>,
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
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub mediated_devices_types: Vec<String>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub mediated_device_types: Vec<String>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub node_mediated_device_types: Vec<NodeMediatedDeviceTypesConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// `apiConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ReloadableComponentConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest_client: Option<RestClientConfiguration>,
}

/// `tlsConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TlsConfiguration {
    #[serde(rename = "minTLSVersion", skip_serializing_if = "Option::is_none")]
    pub min_tls_version: Option<TlsProtocolVersion>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_instance_profile: Option<VirtualMachineInstanceProfile>,
}

/// `virtualMachineOptions` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_free_page_reporting: Option<DisableFreePageReporting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_serial_console_log: Option<DisableSerialConsoleLog>,
}

/// `ksmConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct KsmConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_label_selector: Option<LabelSelector>,
}

/// `liveUpdateConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct LiveUpdateConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hotplug_ratio: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpu_sockets: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_guest: Option<Quantity>,
}

/// `commonInstancetypesDeployment` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CommonInstancetypesDeployment {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub enabled: Option<bool>,
}

/// `virtTemplateDeployment` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtTemplateDeployment {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub enabled: Option<bool>,
}

/// `instancetype` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InstancetypeConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub reference_policy: Option<InstancetypeReferencePolicy>,
}

/// `hypervisors` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HypervisorConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// `changedBlockTrackingLabelSelectors` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ChangedBlockTrackingSelectors {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_label_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_label_selector: Option<LabelSelector>,
}

/// `persistentReservationConfiguration` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentReservationConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub enabled: Option<bool>,
}

/// `confidentialCompute` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ConfidentialComputeConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub tdx: Option<TdxConfiguration>,
}

/// `diskVerification` of [`DeveloperConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DiskVerification {
    pub memory_limit: Quantity,
}

/// `logVerbosity` of [`DeveloperConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct LogVerbosity {
    #[serde(rename = "virtAPI", skip_serializing_if = "Option::is_none")]
    pub virt_api: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_controller: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_handler: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_launcher: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_operator: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_synchronization_controller: Option<u64>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sidecar_image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_attachment_definition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_attachment_type: Option<DomainAttachmentType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<InterfaceBindingMigration>,
    #[serde(rename = "downwardAPI", skip_serializing_if = "Option::is_none")]
    pub downward_api: Option<NetworkBindingDownwardApiType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_resource_overhead: Option<ResourceRequirementsWithoutClaims>,
}

/// `amd64` of [`ArchConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ArchSpecificConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovmf_path: Option<String>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub emulated_machines: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_type: Option<String>,
}

/// `resources` of [`SupportContainerResources`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRequirementsWithoutClaims {
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub limits: BTreeMap<String, Quantity>,
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
    pub pci_vendor_selector: String,
    pub resource_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_resource_provider: Option<bool>,
}

/// `mediatedDevices` of [`PermittedHostDevices`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MediatedHostDevice {
    pub mdev_name_selector: String,
    pub resource_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_resource_provider: Option<bool>,
}

/// `usb` of [`PermittedHostDevices`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct UsbHostDevice {
    pub resource_name: String,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub selectors: Vec<UsbSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_resource_provider: Option<bool>,
}

/// `nodeMediatedDeviceTypes` of [`MediatedDevicesConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct NodeMediatedDeviceTypesConfig {
    #[serde(deserialize_with = "null_as_default")]
    pub node_selector: BTreeMap<String, String>,
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub mediated_devices_types: Vec<String>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limiter: Option<RateLimiter>,
}

/// `virtualMachineInstanceProfile` of [`SeccompConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceProfile {
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attestation: Option<TdxAttestationConfiguration>,
}

/// `migration` of [`InterfaceBindingPlugin`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InterfaceBindingMigration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<MigrationMethod>,
}

/// `selectors` of [`UsbHostDevice`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct UsbSelector {
    pub vendor: String,
    pub product: String,
}

/// `rateLimiter` of [`RestClientConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RateLimiter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_bucket_rate_limiter: Option<TokenBucketRateLimiter>,
}

/// `customProfile` of [`VirtualMachineInstanceProfile`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CustomProfile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub localhost_profile: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_default_profile: Option<bool>,
}

/// `attestation` of [`TdxConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TdxAttestationConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("x-default" = false)))]
    pub enforced: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("x-default" = "/var/run/tdx-qgs/qgs.socket")))]
    pub qgs_socket_path: Option<String>,
}

/// `tokenBucketRateLimiter` of [`RateLimiter`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TokenBucketRateLimiter {
    pub qps: f32,
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
