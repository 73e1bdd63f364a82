//! All settings.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::architecture::{ArchConfiguration, SmBiosConfiguration};
use super::components::{
    ReloadableComponentConfiguration, SupportContainerResources, TlsConfiguration,
};
use super::developer::DeveloperConfiguration;
use super::guests::{
    ChangedBlockTrackingSelectors, HypervisorConfiguration, KsmConfiguration,
    LiveUpdateConfiguration, PersistentReservationConfiguration, VirtualMachineOptions,
};
use super::host_devices::{MediatedDevicesConfiguration, PermittedHostDevices};
use super::migrations::MigrationConfiguration;
use super::network::NetworkConfiguration;
use super::security::{ConfidentialComputeConfiguration, SeccompConfiguration};
use super::templates::{
    CommonInstancetypesDeployment, InstancetypeConfiguration, VirtTemplateDeployment,
};
use crate::open_enum::open_enum;
use crate::tolerant::null_as_default;
use crate::vmi::EvictionStrategy;

/// Settings for the whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct KubeVirtConfiguration {
    /// CPU model of guests that name none; host-model when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// CPU time that a guest's pod requests, instead of the amount that follows from its CPUs and
    /// the allocation ratio.
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
    /// Network bindings that guests may use.
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
    /// System information of the firmware that guests read (SMBIOS).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smbios: Option<SmBiosConfiguration>,
    /// Machine types and firmware, one entry per architecture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture_configuration: Option<ArchConfiguration>,
    /// What a drain of the node does to guests whose VM does not set it: None, `LiveMigrate`,
    /// `LiveMigrateIfPossible` or External.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_strategy: Option<EvictionStrategy>,
    /// Factor for the memory overhead of the hypervisor, as a string: 1.5 adds half of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additional_guest_memory_overhead_ratio: Option<String>,
    /// CPU and memory of helper containers, one entry per kind of container.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map"), extend("x-kubernetes-list-map-keys" = ["type"])))]
    pub support_container_resources: Vec<SupportContainerResources>,
    /// Version patterns of guest agents. Unused: agents are checked by their commands.
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
    /// Unused: nodes are labelled with every feature that guests can have there, including those
    /// of old models.
    #[serde(rename = "minCPUModel", skip_serializing_if = "Option::is_none")]
    pub min_cpu_model: Option<String>,
    /// CPU models that nodes are not labelled with, in place of the built-in list; a name counts
    /// with any value.
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

open_enum! {
    /// Values of `vmRolloutStrategy`.
    VmRolloutStrategy {
        Stage = "Stage",
        LiveUpdate = "LiveUpdate",
    }
}

open_enum! {
    /// Values of `roleAggregationStrategy`.
    RoleAggregationStrategy {
        AggregateToDefault = "AggregateToDefault",
        Manual = "Manual",
    }
}
