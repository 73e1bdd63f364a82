//! Network bindings.

use std::collections::BTreeMap;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::components::ResourceRequirementsWithoutClaims;
use crate::open_enum::open_enum;
use crate::tolerant::null_as_default;

/// Bindings that can be the default of guests; slirp is still known by name only.
pub const DEFAULT_INTERFACES: &[&str] = &["bridge", "slirp", "masquerade"];

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
    /// Action at a migration; guests with this binding cannot migrate when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<InterfaceBindingMigration>,
    /// device-info gives the sidecar a file with the devices of the networks.
    #[serde(rename = "downwardAPI", skip_serializing_if = "Option::is_none")]
    pub downward_api: Option<NetworkBindingDownwardApiType>,
    /// Resources that the binding needs in the pod, besides the guest's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_resource_overhead: Option<ResourceRequirementsWithoutClaims>,
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

open_enum! {
    /// Values of `domainAttachmentType`.
    DomainAttachmentType {
        Tap = "tap",
        ManagedTap = "managedTap",
    }
}

open_enum! {
    /// Values of `downwardAPI`.
    NetworkBindingDownwardApiType {
        DeviceInfo = "device-info",
    }
}

open_enum! {
    /// Values of `method`.
    MigrationMethod {
        LinkRefresh = "link-refresh",
    }
}
