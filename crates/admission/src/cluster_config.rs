//! The cluster's configuration as admission needs it: complete, with the built-in defaults under
//! what the administrator wrote.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::{
    cluster_config::{ArchSpecificConfiguration, KubeVirtConfiguration, VmRolloutStrategy},
    vmi::EvictionStrategy,
};

use crate::unsupported;

/// CPU request of a guest that names none; launcher pods get it, the VMI is only changed when the
/// administrator chose another value.
pub const DEFAULT_CPU_REQUEST: &str = "100m";
/// How much more memory and how many more sockets a guest may be given while it runs.
const DEFAULT_HOTPLUG_RATIO: u32 = 4;

/// Effective configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterConfig {
    pub default_architecture: String,
    /// By architecture.
    pub machines: BTreeMap<String, Machines>,
    pub cpu_request: Quantity,
    pub cpu_model: Option<String>,
    pub eviction_strategy: EvictionStrategy,
    pub rollout: Rollout,
    pub max_hotplug_ratio: u32,
    pub max_guest: Option<Quantity>,
    pub max_cpu_sockets: Option<u32>,
    pub default_binding: Binding,
    pub bridge_on_pod_network: Permission,
    pub feature_gates: BTreeSet<String>,
    /// User names of our own components: only they may change the spec and status of a VMI. One
    /// that ends in `*` stands for all names that begin so.
    pub component_users: Vec<String>,
}

/// Machine types of one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machines {
    pub default_type: String,
    /// Patterns with `*`.
    pub allowed: Vec<String>,
}

/// Whether changes of a VM reach its running guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rollout {
    LiveUpdate,
    Stage,
}

/// How a guest that names no network joins the pod network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    Bridge,
    Masquerade,
    /// Anything else that an administrator wrote.
    Unknown(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    Allowed,
    Refused,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self::from_kubevirt(&KubeVirtConfiguration::default())
    }
}

impl ClusterConfig {
    /// Lays the administrator's configuration over the built-in defaults.
    pub fn from_kubevirt(written: &KubeVirtConfiguration) -> Self {
        let architectures = written
            .architecture_configuration
            .clone()
            .unwrap_or_default();
        let network = written.network.clone().unwrap_or_default();
        let live_update = written
            .live_update_configuration
            .clone()
            .unwrap_or_default();
        let gates = written
            .developer_configuration
            .clone()
            .unwrap_or_default()
            .feature_gates;
        Self {
            default_architecture: architectures
                .default_architecture
                .unwrap_or_else(|| own_architecture().to_owned()),
            machines: BTreeMap::from([
                machines("amd64", architectures.amd64, "q35", &["q35*", "pc-q35*"]),
                machines("arm64", architectures.arm64, "virt", &["virt*"]),
                machines(
                    "s390x",
                    architectures.s390x,
                    "s390-ccw-virtio",
                    &["s390-ccw-virtio*"],
                ),
            ]),
            cpu_request: written
                .cpu_request
                .clone()
                .unwrap_or_else(|| Quantity(DEFAULT_CPU_REQUEST.to_owned())),
            cpu_model: written.cpu_model.clone().filter(|model| !model.is_empty()),
            eviction_strategy: written
                .eviction_strategy
                .clone()
                .unwrap_or(EvictionStrategy::None),
            rollout: match written.vm_rollout_strategy {
                Some(VmRolloutStrategy::Stage) => Rollout::Stage,
                _ => Rollout::LiveUpdate,
            },
            max_hotplug_ratio: live_update
                .max_hotplug_ratio
                .filter(|ratio| *ratio > 0)
                .unwrap_or(DEFAULT_HOTPLUG_RATIO),
            max_guest: live_update.max_guest,
            max_cpu_sockets: live_update.max_cpu_sockets,
            default_binding: binding(network.default_network_interface.as_deref()),
            bridge_on_pod_network: match network.permit_bridge_interface_on_pod_network {
                Some(false) => Permission::Refused,
                _ => Permission::Allowed,
            },
            feature_gates: gates.into_iter().collect(),
            component_users: [
                "virt-api",
                "virt-controller",
                "virt-handler",
                "system:serviceaccount:kubevirt:kubevirt-*",
            ]
            .map(str::to_owned)
            .to_vec(),
        }
    }

    pub fn has_gate(&self, gate: &str) -> bool {
        self.feature_gates.contains(gate)
    }

    pub fn is_component(&self, user: &str) -> bool {
        self.component_users
            .iter()
            .any(|pattern| matches(pattern, user))
    }

    /// Machine types of an architecture; those of the default one when it is unknown.
    pub fn machines_of(&self, architecture: &str) -> Option<&Machines> {
        self.machines
            .get(architecture)
            .or_else(|| self.machines.get("amd64"))
    }
}

impl Machines {
    pub fn allow(&self, machine: &str) -> bool {
        self.allowed.iter().any(|pattern| matches(pattern, machine))
    }
}

fn machines(
    name: &str,
    written: Option<ArchSpecificConfiguration>,
    default_type: &str,
    allowed: &[&str],
) -> (String, Machines) {
    let written = written.unwrap_or_default();
    let allowed = match written.emulated_machines {
        list if list.is_empty() => allowed.iter().map(|&pattern| pattern.to_owned()).collect(),
        list => list,
    };
    let default_type = written
        .machine_type
        .filter(|name| !name.is_empty())
        .unwrap_or(default_type.to_owned());
    (
        name.to_owned(),
        Machines {
            default_type,
            allowed,
        },
    )
}

fn binding(name: Option<&str>) -> Binding {
    match name {
        None | Some("") => unsupported::DEFAULT_BINDING,
        Some("bridge") => Binding::Bridge,
        Some("masquerade") => Binding::Masquerade,
        Some(other) => Binding::Unknown(other.to_owned()),
    }
}

fn own_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "arm64",
        "s390x" => "s390x",
        _ => "amd64",
    }
}

/// Only a trailing `*` is special: all patterns in use are of that form.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => text.starts_with(prefix),
        None => pattern == text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_administrator_wrote_wins() {
        let written = KubeVirtConfiguration {
            cpu_model: Some("Haswell".to_owned()),
            vm_rollout_strategy: Some(VmRolloutStrategy::Stage),
            ..KubeVirtConfiguration::default()
        };
        let config = ClusterConfig::from_kubevirt(&written);
        assert_eq!(config.cpu_model.as_deref(), Some("Haswell"));
        assert_eq!(config.rollout, Rollout::Stage);
        assert_eq!(config.max_hotplug_ratio, 4);
        assert_eq!(config.machines["amd64"].default_type, "q35");
    }

    #[test]
    fn only_components_are_components() {
        let config = ClusterConfig::default();
        assert!(config.is_component("virt-handler"));
        assert!(config.is_component("system:serviceaccount:kubevirt:kubevirt-controller"));
        assert!(!config.is_component("system:serviceaccount:default:kubevirt-controller"));
        assert!(!config.is_component("admin"));
    }
}
