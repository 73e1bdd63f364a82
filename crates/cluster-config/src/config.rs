//! The effective configuration: the administrator's settings over the built-in defaults.

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

use crate::{gates::Gates, host_disks::HostDisks, legacy};

/// CPU request of a guest that sets none. Launcher pods always get it; the VMI is changed only when
/// the administrator sets another value.
pub const DEFAULT_CPU_REQUEST: &str = "100m";
/// Binding of a guest without networks. The default of `KubeVirt` is bridge, which takes the network
/// away from the pod and does not migrate.
pub const DEFAULT_BINDING: Binding = Binding::Masquerade;

/// Ratio of hot-pluggable memory and sockets to those at boot.
const DEFAULT_HOTPLUG_RATIO: u32 = 4;

const QGS_SOCKET_PATH: &str = "/var/run/tdx-qgs/qgs.socket";

/// All effective settings.
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
    /// Of the node's command line, not of the `KubeVirt` object.
    pub host_disks: HostDisks,
    /// Whether guests may reserve SCSI disks; the gate `PersistentReservation` also permits it.
    pub persistent_reservation: Permission,
    /// Permitted PCI devices: resource name to vendor selector (`10DE:2342`).
    pub pci_devices: BTreeMap<String, String>,
    /// How VMs refer to their instance types and preferences.
    pub reference_policy: InstancetypeReferencePolicy,
    /// Socket of the quote generation service of TDX guests.
    pub quote_service_socket: String,
    /// Annotation value of new VMIs that requests an even number of emulator-thread CPUs.
    pub even_emulator_threads: Option<String>,
    /// User names of Ferrovirt's components: only they may change the spec and status of a VMI. A
    /// trailing `*` matches any suffix.
    pub component_users: Vec<String>,
    /// The administrator's settings as written, for the components that create pods and manage nodes.
    pub written: KubeVirtConfiguration,
}

/// Machine types of one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machines {
    pub default_type: String,
    /// Patterns with `*`.
    pub allowed: Vec<String>,
}

/// Whether changes of a VM are applied to its running guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rollout {
    LiveUpdate,
    Stage,
}

/// How a guest without networks joins the pod network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    Bridge,
    Masquerade,
    /// Any other value of the administrator.
    Unknown(String),
}

const DEFAULT_DRAIN_TAINT: &str = "kubevirt.io/drain";

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
    /// A key of the legacy config map.
    Map(legacy::Unreadable),
    /// A field of the `KubeVirt` object; `path` is below `spec.configuration`.
    Object { path: String, problem: String },
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Map(problem) => write!(f, "config map {}: {problem}", legacy::NAME),
            Self::Object { path, problem } => write!(f, "spec.configuration.{path}: {problem}"),
        }
    }
}

impl std::error::Error for Unusable {}

impl ClusterConfig {
    /// Combines the legacy config map and the `KubeVirt` object; the object has precedence.
    pub fn from_objects(
        map: Option<&BTreeMap<String, String>>,
        kubevirt: Option<&Value>,
    ) -> Result<Self, Unusable> {
        let legacy = match map {
            Some(data) => legacy::read(data).map_err(Unusable::Map)?,
            None => json!({}),
        };
        let empty = json!({});
        let object = kubevirt.unwrap_or(&empty);
        let current = match &object["spec"]["configuration"] {
            Value::Null => &empty,
            written => written,
        };
        let written = legacy::join(legacy, current);
        let written: KubeVirtConfiguration =
            serde_path_to_error::deserialize(&written).map_err(|error| Unusable::Object {
                path: error.path().to_string(),
                problem: error.inner().to_string(),
            })?;
        let mut config = Self::from_kubevirt(&written);
        let architectures = written.architecture_configuration.as_ref();
        let detected = object["status"]["defaultArchitecture"].as_str();
        if architectures.is_none_or(|written| written.default_architecture.is_none())
            && let Some(detected) = detected.filter(|detected| !detected.is_empty())
        {
            detected.clone_into(&mut config.default_architecture);
        }
        let parity = &object["metadata"]["annotations"]
            [annotations::EMULATOR_THREAD_COMPLETE_TO_EVEN_PARITY];
        config.even_emulator_threads = parity.as_str().map(str::to_owned);
        Ok(config)
    }

    /// Applies the administrator's configuration over the built-in defaults.
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
        let common = CommonMachines {
            machine_type: written.machine_type.as_deref(),
            emulated_machines: &written.emulated_machines,
        };
        Self {
            default_architecture: architectures
                .default_architecture
                .unwrap_or_else(|| host_architecture().to_owned()),
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
                        machines(&common, written, default_type, allowed),
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
            host_disks: HostDisks::Anywhere,
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

    /// The key of the taint of nodes that are drained.
    pub fn drain_taint(&self) -> &str {
        let migrations = self.written.migrations.as_ref();
        let key = migrations.and_then(|migrations| migrations.node_drain_taint_key.as_deref());
        key.unwrap_or(DEFAULT_DRAIN_TAINT)
    }

    pub fn has_gate(&self, gate: &str) -> bool {
        self.gates.is_on(gate)
    }

    /// Whether the administrator's selector limits the CPUs of guests in namespaces with these
    /// labels; `None` without a selector. An invalid selector matches no namespace.
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

    /// Machine types of an architecture; those of amd64 when it is unknown.
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

/// Deprecated fields that apply to every architecture.
struct CommonMachines<'a> {
    machine_type: Option<&'a str>,
    emulated_machines: &'a [String],
}

/// Unknown values are refused by the validation of the `KubeVirt` object.
fn reference_policy(written: &KubeVirtConfiguration) -> InstancetypeReferencePolicy {
    let settings = written.instancetype.as_ref();
    settings
        .and_then(|settings| settings.reference_policy.clone())
        .unwrap_or(InstancetypeReferencePolicy::Reference)
}

fn machines(
    common: &CommonMachines<'_>,
    written: Option<ArchSpecificConfiguration>,
    default_type: &str,
    allowed: &[&str],
) -> Machines {
    let written = written.unwrap_or_default();
    let lists = [common.emulated_machines, &written.emulated_machines];
    let allowed = match lists.into_iter().find(|list| !list.is_empty()) {
        Some(list) => list.to_vec(),
        None => allowed.iter().map(|&pattern| pattern.to_owned()).collect(),
    };
    let default_type = [common.machine_type, written.machine_type.as_deref()]
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
        None | Some("") => DEFAULT_BINDING,
        Some("bridge") => Binding::Bridge,
        Some("masquerade") => Binding::Masquerade,
        Some(other) => Binding::Unknown(other.to_owned()),
    }
}

fn host_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "arm64",
        "s390x" => "s390x",
        _ => "amd64",
    }
}

/// Only a trailing `*` is special: all patterns in use have that form.
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
    fn written_settings_override_defaults() {
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
    fn both_objects_are_combined_and_errors_name_the_field() {
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
        let default = ClusterConfig::from_objects(None, None).expect("reads");
        assert_eq!(default, ClusterConfig::default());
        let broken = json!({ "spec": { "configuration": { "cpuModel": 1 } } });
        let error = ClusterConfig::from_objects(None, Some(&broken)).expect_err("broken");
        assert!(
            error.to_string().starts_with("spec.configuration.cpuModel"),
            "{error}"
        );
    }

    #[test]
    fn deprecated_machine_fields_apply_to_every_architecture() {
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
    fn component_users_are_recognized_by_name_or_prefix() {
        let config = ClusterConfig::default();
        assert!(config.is_component("virt-handler"));
        assert!(config.is_component("system:serviceaccount:kubevirt:kubevirt-controller"));
        assert!(!config.is_component("system:serviceaccount:default:kubevirt-controller"));
        assert!(!config.is_component("admin"));
    }
}
