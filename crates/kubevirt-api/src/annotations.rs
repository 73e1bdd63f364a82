//! Annotation keys that the path of a VM needs.

/// On launcher pods: name of the VMI.
pub const DOMAIN: &str = "kubevirt.io/domain";
/// On VMIs: generation of the VM they were started from.
pub const VM_GENERATION: &str = "kubevirt.io/vm-generation";
/// First write of a controller on an object: the API version it used.
pub const LATEST_OBSERVED_API_VERSION: &str = "kubevirt.io/latest-observed-api-version";
/// The storage version a controller saw.
pub const STORAGE_OBSERVED_API_VERSION: &str = "kubevirt.io/storage-observed-api-version";
/// Scheme by which PCI hot-plug ports are laid out.
pub const PCI_TOPOLOGY_VERSION: &str = "kubevirt.io/pci-topology-version";
/// The scheme new guests get.
pub const PCI_TOPOLOGY_VERSION_V3: &str = "v3";
/// On nodes: last sign of life of the handler.
pub const HEARTBEAT: &str = "kubevirt.io/heartbeat";
/// On nodes: address and port of the handler's server.
pub const HANDLER_ADDRESS: &str = "ferrovirt.io/handler-address";
/// On VMIs: configuration for guests that read it by `fw_cfg`.
pub const IGNITION_DATA: &str = "kubevirt.io/ignitiondata";
/// On VMIs: sidecars that may change the domain.
pub const HOOK_SIDECARS: &str = "hooks.kubevirt.io/hookSidecars";
/// On VMIs: keep the launcher after the hypervisor died, to look at it.
pub const KEEP_LAUNCHER_AFTER_FAILURE: &str = "kubevirt.io/keep-launcher-alive-after-failure";
/// On launcher pods: where `kubectl logs` and `kubectl exec` go by default.
pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
/// On VMs: `false` delays the making of data volumes to the start.
pub const IMMEDIATE_DATA_VOLUME_CREATION: &str = "kubevirt.io/immediate-data-volume-creation";
/// On VMIs: who asked for the eviction under way, for its priority.
pub const EVICTION_SOURCE: &str = "kubevirt.io/eviction-source";
