//! Settings for all guests.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
