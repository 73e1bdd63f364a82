//! The cluster's configuration as admission needs it: complete, with the built-in defaults under
//! what the administrator wrote.

use std::{collections::BTreeMap, fmt};

use apimachinery::selector;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::{
    annotations,
    cluster_config::{
        ArchSpecificConfiguration, InstancetypeReferencePolicy, KubeVirtConfiguration,
        VmRolloutStrategy,
    },
    vmi::EvictionStrategy,
};
use serde_json::{Value, json};

use crate::{gates::Gates, legacy_config, unsupported};

/// CPU request of a guest that names none; launcher pods get it, the VMI is only changed when the
/// administrator chose another value.
pub const DEFAULT_CPU_REQUEST: &str = "100m";
/// How much more memory and how many more sockets a guest may be given while it runs.
const DEFAULT_HOTPLUG_RATIO: u32 = 4;

const QGS_SOCKET_PATH: &str = "/var/run/tdx-qgs/qgs.socket";

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
    pub gates: Gates,
    /// Whether guests may reserve SCSI disks; the gate of that name switches it on, too.
    pub persistent_reservation: Permission,
    /// Resource name to vendor selector (`10DE:2342`) of PCI devices that may be passed through.
    pub pci_devices: BTreeMap<String, String>,
    /// How VMs hold on to their instance types and preferences.
    pub reference_policy: InstancetypeReferencePolicy,
    /// Where TDX guests reach the quote generation service.
    pub quote_service_socket: String,
    /// What new guests say about completing emulator threads to an even number of CPUs.
    pub even_emulator_threads: Option<String>,
    /// User names of our own components: only they may change the spec and status of a VMI. One
    /// that ends in `*` stands for all names that begin so.
    pub component_users: Vec<String>,
    /// All that the administrator wrote: those who make pods and look after nodes read it.
    pub written: KubeVirtConfiguration,
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

/// Why a configuration cannot be used.
#[derive(Debug)]
pub enum Unusable {
    /// A key of the older map.
    Map(legacy_config::Unreadable),
    /// Path below `spec.configuration`, and what is wrong.
    Object(String, String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Map(fault) => write!(f, "config map {}: {fault}", legacy_config::NAME),
            Self::Object(path, fault) => write!(f, "spec.configuration.{path}: {fault}"),
        }
    }
}

impl std::error::Error for Unusable {}

impl ClusterConfig {
    /// What the older config map and the `KubeVirt` object say together.
    pub fn from_objects(
        map: Option<&BTreeMap<String, String>>,
        kubevirt: Option<&Value>,
    ) -> Result<Self, Unusable> {
        let older = match map {
            Some(data) => legacy_config::read(data).map_err(Unusable::Map)?,
            None => json!({}),
        };
        let nothing = json!({});
        let object = kubevirt.unwrap_or(&nothing);
        let newer = match &object["spec"]["configuration"] {
            Value::Null => &nothing,
            written => written,
        };
        let written = legacy_config::join(older, newer);
        let written: KubeVirtConfiguration =
            serde_path_to_error::deserialize(&written).map_err(|error| {
                Unusable::Object(error.path().to_string(), error.inner().to_string())
            })?;
        let mut config = Self::from_kubevirt(&written);
        let says = written.architecture_configuration.as_ref();
        let found = object["status"]["defaultArchitecture"].as_str();
        if says.is_none_or(|says| says.default_architecture.is_none())
            && let Some(found) = found.filter(|found| !found.is_empty())
        {
            found.clone_into(&mut config.default_architecture);
        }
        let wish = &object["metadata"]["annotations"]
            [annotations::EMULATOR_THREAD_COMPLETE_TO_EVEN_PARITY];
        config.even_emulator_threads = wish.as_str().map(str::to_owned);
        Ok(config)
    }

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
        let developer = written.developer_configuration.clone().unwrap_or_default();
        let gates = Gates::new(developer.feature_gates, developer.disabled_feature_gates);
        let reservation = written.persistent_reservation_configuration.as_ref();
        let may_reserve = reservation.is_some_and(|reservation| reservation.enabled == Some(true))
            || gates.is_listed("PersistentReservation");
        let older = Older {
            machine_type: written.machine_type.as_deref(),
            emulated_machines: &written.emulated_machines,
        };
        Self {
            default_architecture: architectures
                .default_architecture
                .unwrap_or_else(|| own_architecture().to_owned()),
            machines: BTreeMap::from(
                [
                    (
                        "amd64",
                        architectures.amd64,
                        "q35",
                        &["q35*", "pc-q35*"][..],
                    ),
                    ("arm64", architectures.arm64, "virt", &["virt*"]),
                    (
                        "s390x",
                        architectures.s390x,
                        "s390-ccw-virtio",
                        &["s390-ccw-virtio*"],
                    ),
                ]
                .map(|(name, written, default_type, allowed)| {
                    (
                        name.to_owned(),
                        machines(&older, written, default_type, allowed),
                    )
                }),
            ),
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
            persistent_reservation: if may_reserve {
                Permission::Allowed
            } else {
                Permission::Refused
            },
            gates,
            pci_devices: pci_devices(written),
            reference_policy: reference_policy(written),
            quote_service_socket: quote_service_socket(written),
            even_emulator_threads: None,
            component_users: [
                "virt-api",
                "virt-controller",
                "virt-handler",
                "system:serviceaccount:kubevirt:kubevirt-*",
            ]
            .map(str::to_owned)
            .to_vec(),
            written: written.clone(),
        }
    }

    pub fn has_gate(&self, gate: &str) -> bool {
        self.gates.is_on(gate)
    }

    /// Whether the administrator chose namespaces with these labels to have the CPUs of their
    /// guests limited; `None` where no choice was made. A choice that cannot be read is of none.
    pub fn limits_cpu_in(&self, labels: &BTreeMap<String, String>) -> Option<bool> {
        let written = self
            .written
            .auto_cpu_limit_namespace_label_selector
            .as_ref()?;
        let object = serde_json::to_value(written).unwrap_or_default();
        let selector = selector::LabelSelector::from_object(&object);
        let labelled = json!({ "metadata": { "labels": labels } });
        Some(match selector {
            Ok(Some(selector)) => selector.matches(&labelled),
            Ok(None) => true,
            Err(_) => false,
        })
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

/// Fields of older versions, which count for every architecture.
struct Older<'a> {
    machine_type: Option<&'a str>,
    emulated_machines: &'a [String],
}

/// Unknown words are refused where they are written.
fn reference_policy(written: &KubeVirtConfiguration) -> InstancetypeReferencePolicy {
    let own = written.instancetype.as_ref();
    own.and_then(|own| own.reference_policy.clone())
        .unwrap_or(InstancetypeReferencePolicy::Reference)
}

fn machines(
    older: &Older<'_>,
    written: Option<ArchSpecificConfiguration>,
    default_type: &str,
    allowed: &[&str],
) -> Machines {
    let written = written.unwrap_or_default();
    let lists = [older.emulated_machines, &written.emulated_machines];
    let allowed = match lists.into_iter().find(|list| !list.is_empty()) {
        Some(list) => list.to_vec(),
        None => allowed.iter().map(|&pattern| pattern.to_owned()).collect(),
    };
    let default_type = [older.machine_type, written.machine_type.as_deref()]
        .into_iter()
        .flatten()
        .find(|name| !name.is_empty())
        .unwrap_or(default_type);
    Machines {
        default_type: default_type.to_owned(),
        allowed,
    }
}

fn pci_devices(written: &KubeVirtConfiguration) -> BTreeMap<String, String> {
    let permitted = written.permitted_host_devices.iter();
    permitted
        .flat_map(|permitted| &permitted.pci_host_devices)
        .map(|device| {
            let selector = device.pci_vendor_selector.clone();
            (device.resource_name.clone(), selector)
        })
        .collect()
}

fn quote_service_socket(written: &KubeVirtConfiguration) -> String {
    let tdx = written
        .confidential_compute
        .as_ref()
        .and_then(|confidential| confidential.tdx.as_ref());
    tdx.and_then(|tdx| tdx.attestation.as_ref())
        .and_then(|attestation| attestation.qgs_socket_path.clone())
        .filter(|path| !path.is_empty())
        .unwrap_or_else(|| QGS_SOCKET_PATH.to_owned())
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
    fn both_objects_are_read_and_faults_are_named() {
        let map = BTreeMap::from([("default-cpu-model".to_owned(), "Penryn".to_owned())]);
        let object = json!({
            "metadata": { "annotations": { annotations::EMULATOR_THREAD_COMPLETE_TO_EVEN_PARITY: "" } },
            "spec": { "configuration": { "developerConfiguration": { "featureGates": ["AlignCPUs"] } } },
            "status": { "defaultArchitecture": "arm64" },
        });
        let config = ClusterConfig::from_objects(Some(&map), Some(&object)).expect("reads");
        assert_eq!(config.cpu_model.as_deref(), Some("Penryn"));
        assert_eq!(config.default_architecture, "arm64");
        assert_eq!(config.even_emulator_threads.as_deref(), Some(""));
        assert!(config.has_gate("AlignCPUs"));
        let nothing = ClusterConfig::from_objects(None, None).expect("reads");
        assert_eq!(nothing, ClusterConfig::default());
        let broken = json!({ "spec": { "configuration": { "cpuModel": 1 } } });
        let error = ClusterConfig::from_objects(None, Some(&broken)).expect_err("broken");
        assert!(
            error.to_string().starts_with("spec.configuration.cpuModel"),
            "{error}"
        );
    }

    #[test]
    fn machines_of_older_configurations_count_for_every_architecture() {
        let written = KubeVirtConfiguration {
            machine_type: Some("pc-q35-4.2".to_owned()),
            emulated_machines: vec!["pc-q35-4*".to_owned()],
            ..KubeVirtConfiguration::default()
        };
        let config = ClusterConfig::from_kubevirt(&written);
        for machines in config.machines.values() {
            assert_eq!(machines.default_type, "pc-q35-4.2");
            assert!(machines.allow("pc-q35-4.2") && !machines.allow("q35"));
        }
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
