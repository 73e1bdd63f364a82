//! The checks of a guest's spec: a list of pure functions, each about one thing. The list is the
//! specification.
//!
//! Checks see the spec after defaults, so they need not think of absent values that have one.

mod affinity;
mod compute;
mod credentials;
mod dedicated;
mod devices;
mod disks;
mod dns;
mod features;
mod firmware;
mod grace;
mod host_devices;
mod identity;
mod memory;
mod names;
mod networks;
mod ports;
mod probes;
mod security;
mod seeds;
mod volumes;

use std::collections::BTreeMap;

use kubevirt_api::{
    domain::{Cpu, Memory},
    firmware::{Efi, Firmware},
    vmi::VirtualMachineInstanceSpec,
};

use crate::{
    ClusterConfig,
    rules::Rule,
    violation::{Cause, Violation},
};

pub(crate) use disks::hotplugged_disk_faults;

/// What a check may look at.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// After defaults.
    pub spec: &'a VirtualMachineInstanceSpec,
    pub labels: &'a BTreeMap<String, String>,
    pub annotations: &'a BTreeMap<String, String>,
    pub config: &'a ClusterConfig,
    pub origin: Origin,
    pub occasion: Occasion,
    pub requester: Requester,
}

/// Whose spec it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Instance,
    TemplateOfVm,
    /// Of a replica set: its `spec.template`.
    TemplateOfSet,
    /// Of a pool: the template in its template of a VM.
    TemplateOfPool,
}

impl Origin {
    /// Where the spec is in the object.
    pub fn path(self) -> &'static str {
        match self {
            Self::Instance => "spec",
            Self::TemplateOfVm | Self::TemplateOfSet => "spec.template.spec",
            Self::TemplateOfPool => "spec.virtualMachineTemplate.spec.template.spec",
        }
    }
}

/// What is done to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    Creation,
    Change,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// One of our own components.
    Component,
    User,
}

pub type Check = fn(&Input<'_>) -> Vec<Violation>;

/// Every check, in the order of the answer.
#[rustfmt::skip]
pub const ALL: &[Rule<Check>] = &[
    Rule::new("identity.labels", "1.1", "labels of the system, written by others", identity::labels),
    Rule::new("identity.annotations", "1.1", "annotations whose gate is off", identity::annotations),
    Rule::new("identity.grace-annotations", "1.1", "annotations that Grace devices do not bear", grace::annotations),
    Rule::new("identity.hostname", "1.1", "host name that is no DNS label", identity::hostname),
    Rule::new("identity.subdomain", "1.1", "subdomain that is no DNS subdomain", identity::subdomain),
    Rule::new("identity.service-account", "1.1", "service account that is no DNS subdomain", identity::service_account),
    Rule::new("identity.service-account-volume", "1.1", "service account other than that of the volume", identity::service_account_volume),
    Rule::new("identity.architecture", "1.1", "unknown architecture of an instance", identity::architecture),
    Rule::new("identity.discontinued", "1.1", "features whose gate is listed and was discontinued", identity::discontinued),
    Rule::new("identity.affinity", "1.1", "affinity that no pod may have", affinity::affinity),
    Rule::new("identity.topology-spread", "1.1", "spread constraints that no pod may have", affinity::topology_spread),
    Rule::new("identity.eviction-strategy", "1.1", "unknown eviction strategy", identity::eviction_strategy),
    Rule::new("identity.start-strategy", "1.1", "unknown start strategy, or a paused start under a liveness probe", identity::start_strategy),
    Rule::new("identity.grace-period", "1.1", "negative grace period", identity::grace_period),
    Rule::new("identity.dns-policy", "1.1", "unknown DNS policy", dns::policy),
    Rule::new("identity.dns-config", "1.1", "DNS configuration that is missing or that no pod may have", dns::config),
    Rule::new("identity.resource-claims", "1.1", "resource claims without name, twice, or without exactly one source", identity::resource_claims),
    Rule::new("compute.quantities", "1.2", "memory and CPU that are no quantities, negative or absurd", memory::quantities),
    Rule::new("compute.memory-request", "1.2", "memory request below a megabyte or above its limit", memory::request),
    Rule::new("compute.guest-memory", "1.2", "guest memory above the limit, or below a megabyte", memory::guest),
    Rule::new("compute.memory-given", "1.2", "no memory", memory::is_given),
    Rule::new("compute.hugepages", "1.2", "huge pages whose size does not divide the memory", memory::hugepages),
    Rule::new("compute.reserved-overhead", "1.2", "reserved overhead without its gate", memory::reserved_overhead),
    Rule::new("compute.cpu-request", "1.2", "CPU request above its limit", compute::cpu_request),
    Rule::new("compute.cpu-features", "1.2", "unknown policy of a CPU feature", compute::cpu_features),
    Rule::new("compute.sockets", "1.2", "more sockets than maxSockets", compute::sockets),
    Rule::new("compute.vcpus", "1.2", "more CPUs than can be counted", compute::vcpus),
    Rule::new("compute.emulator-thread", "1.2", "isolated emulator thread without dedicated CPUs", dedicated::emulator_thread),
    Rule::new("compute.dedicated-cpus", "1.2", "dedicated CPUs whose number is unclear or fractional", dedicated::cpus),
    Rule::new("compute.numa", "1.2", "mapped NUMA nodes without dedicated CPUs or huge pages", dedicated::numa),
    Rule::new("compute.realtime", "1.2", "realtime without dedicated CPUs or mapped NUMA nodes", dedicated::realtime),
    Rule::new("compute.machine", "1.2", "machine type that the cluster does not allow", compute::machine),
    Rule::new("compute.io-threads", "1.2", "unknown I/O thread policy, or a pool without threads", compute::io_threads),
    Rule::new("compute.reboot-policy", "1.2", "reboot policy without its gate", compute::reboot_policy),
    Rule::new("firmware.bootloader", "1.3", "BIOS and EFI together", firmware::bootloader),
    Rule::new("firmware.secure-boot", "1.3", "secure boot without SMM", firmware::secure_boot),
    Rule::new("firmware.kernel-boot", "1.3", "kernel arguments without kernel, containers without image or files", firmware::kernel_boot),
    Rule::new("firmware.acpi", "1.3", "ACPI tables without volume, or of a volume that is no secret", firmware::acpi),
    Rule::new("firmware.uuid", "1.3", "identity that is no UUID", firmware::uuid),
    Rule::new("features.hyperv-needs", "1.3", "enlightenments whose requirements are switched off", features::hyperv_needs),
    Rule::new("features.hyperv-passthrough", "1.3", "enlightenments beside their passthrough", features::hyperv_passthrough),
    Rule::new("security.architecture", "1.3", "launch security on an architecture without it", security::architecture),
    Rule::new("security.one-kind", "1.3", "not exactly one kind of launch security", security::one_kind),
    Rule::new("security.gates", "1.3", "launch security whose gate is off", security::gates),
    Rule::new("security.firmware", "1.3", "launch security with firmware that it does not bear", security::firmware),
    Rule::new("security.attestation", "1.3", "attestation of a guest that does not start paused", security::attestation),
    Rule::new("security.boot-order", "1.3", "launch security with interfaces to boot from", security::boot_order),
    Rule::new("security.vsock", "1.3", "VSOCK without its gate", devices::vsock),
    Rule::new("devices.inputs", "1.4", "unknown bus or type of an input", devices::inputs),
    Rule::new("devices.sound", "1.4", "sound device without name or of an unknown model", devices::sound),
    Rule::new("devices.video", "1.4", "video of an unknown type, or without graphics", devices::video),
    Rule::new("devices.watchdog", "1.4", "watchdog that the architecture does not have", devices::watchdog),
    Rule::new("devices.panic", "1.4", "panic device of an unknown model or architecture", devices::panic_devices),
    Rule::new("devices.gpus", "1.4", "several displays, or GPUs by name beside GPUs by claim", host_devices::gpus),
    Rule::new("devices.sources", "1.4", "GPUs and host devices without exactly one source", host_devices::sources),
    Rule::new("devices.claims", "1.4", "claims without gate, incomplete, repeated or unknown", host_devices::claims),
    Rule::new("devices.host-devices", "1.4", "host devices without their gate", host_devices::gate),
    Rule::new("devices.grace", "1.4", "Grace devices without what they need", grace::devices),
    Rule::new("devices.downward-metrics", "1.4", "downward metrics device without its gate", devices::downward_metrics),
    Rule::new("devices.arm64", "1.4", "models and devices that arm64 does not have", devices::arm64),
    Rule::new("devices.probes", "1.4", "probes without exactly one check, or without network for it", probes::probes),
    Rule::new("disks.names", "1.5", "disk names that are repeated or no DNS labels", disks::names),
    Rule::new("disks.volumes", "1.5", "disks without volume", disks::volumes),
    Rule::new("disks.targets", "1.5", "several of disk, lun and cdrom", disks::targets),
    Rule::new("disks.luns", "1.5", "luns of volumes that are no claims", disks::luns),
    Rule::new("disks.downward-metrics", "1.5", "downward metrics on something else than a virtio disk", disks::downward_metrics),
    Rule::new("disks.pci-address", "1.5", "PCI addresses that are none, or of disks that have none", disks::pci_addresses),
    Rule::new("disks.boot-order", "1.5", "place 0 in the boot order, or one place twice", disks::boot_order),
    Rule::new("disks.bus", "1.5", "unknown bus, or one that the target does not bear", disks::buses),
    Rule::new("disks.io-thread", "1.5", "I/O thread of its own on a bus without", disks::io_threads),
    Rule::new("disks.serial", "1.5", "serial numbers of wrong characters or length", disks::serials),
    Rule::new("disks.cache", "1.5", "unknown cache mode", disks::caches),
    Rule::new("disks.io", "1.5", "unknown I/O mode", disks::io),
    Rule::new("disks.error-policy", "1.5", "unknown error policy", disks::error_policies),
    Rule::new("disks.block-size", "1.5", "block sizes that no disk has", disks::block_sizes),
    Rule::new("disks.reservation", "1.5", "reservations while they are switched off", disks::reservations),
    Rule::new("volumes.names", "1.6", "volume names that are repeated or no DNS labels", volumes::names),
    Rule::new("volumes.used", "1.6", "volumes of an instance that nothing shows", volumes::are_used),
    Rule::new("volumes.sources", "1.6", "volumes without exactly one source", volumes::sources),
    Rule::new("volumes.data-volume", "1.6", "data volumes without name", volumes::data_volumes),
    Rule::new("volumes.seeds", "1.6", "cloud-init data that is missing, twice, malformed or too long", seeds::seeds),
    Rule::new("volumes.host-disk", "1.6", "host disks without gate, path or known type, or with a size of what exists", volumes::host_disks),
    Rule::new("volumes.references", "1.6", "config maps, secrets and service accounts without name", volumes::references),
    Rule::new("volumes.downward-metrics", "1.6", "downward metrics volume without its gate", volumes::downward_metrics),
    Rule::new("volumes.singles", "1.6", "two volumes of a kind of which there is one", volumes::singles),
    Rule::new("volumes.container-disk", "1.6", "container disks without image, or with a path that is not clean", volumes::container_disks),
    Rule::new("volumes.container-path", "1.6", "container paths shown as disk, not shown, or of our own directories", volumes::container_paths),
    Rule::new("volumes.empty-disk", "1.6", "empty disks without size", volumes::empty_disks),
    Rule::new("volumes.utility", "1.6", "utility volumes at creation", volumes::utility_volumes),
    Rule::new("volumes.virtiofs", "1.6", "shared claims without their gate", volumes::virtiofs),
    Rule::new("volumes.credentials", "1.6", "access credentials without exactly one kind, source or way", credentials::credentials),
    Rule::new("networks.single-pod", "1.7", "more than one pod or default network", networks::single_pod),
    Rule::new("networks.types", "1.7", "networks without exactly one type, or without name of the attachment", networks::types),
    Rule::new("networks.names", "1.7", "network names that are repeated or have no interface", networks::names),
    Rule::new("networks.claims", "1.7", "networks by claim: gate, mix, binding, names", networks::claims),
    Rule::new("interfaces.names", "1.7", "interface names that are repeated, have no network or wrong characters", networks::interface_names),
    Rule::new("interfaces.bindings", "1.7", "interfaces without exactly one binding", networks::bindings),
    Rule::new("interfaces.withdrawn", "1.7", "bindings that were withdrawn, at creation", networks::withdrawn),
    Rule::new("interfaces.masquerade", "1.7", "masquerade off the pod network", networks::masquerade),
    Rule::new("interfaces.bridge", "1.7", "bridge on the pod network where the cluster forbids it", networks::bridge),
    Rule::new("interfaces.passt", "1.7", "passt without its gate or off the pod network", networks::passt),
    Rule::new("interfaces.state", "1.7", "unknown state, or one that the binding does not bear", networks::states),
    Rule::new("interfaces.model", "1.7", "unknown model", networks::models),
    Rule::new("interfaces.mac-address", "1.7", "MAC addresses that are none or reserved", networks::mac_addresses),
    Rule::new("interfaces.pci-address", "1.7", "malformed PCI address", networks::pci_addresses),
    Rule::new("interfaces.ports", "1.7", "ports that are none, unnamed protocols, names twice", ports::ports),
    Rule::new("interfaces.port-ranges", "1.7", "port ranges without gate, beside ports, overlapping or out of range", ports::ranges),
    Rule::new("interfaces.dhcp-options", "1.7", "DHCP options that are not private, twice, or no addresses", networks::dhcp_options),
];

/// Runs every check.
pub fn run(input: &Input<'_>) -> Vec<Violation> {
    ALL.iter()
        .flat_map(|rule| rule.sign((rule.apply)(input)))
        .collect()
}

impl<'a> Input<'a> {
    /// Where the spec is in the object.
    pub fn path(&self) -> &'static str {
        self.origin.path()
    }

    pub fn metadata_path(&self) -> &'static str {
        match self.origin {
            Origin::Instance => "metadata",
            Origin::TemplateOfVm | Origin::TemplateOfSet => "spec.template.metadata",
            Origin::TemplateOfPool => "spec.virtualMachineTemplate.spec.template.metadata",
        }
    }

    /// Path of a field below the spec.
    fn at(&self, field: &str) -> String {
        format!("{}.{field}", self.path())
    }

    fn invalid(&self, field: &str, detail: impl std::fmt::Display) -> Violation {
        Violation::new(Cause::Invalid, self.at(field), detail)
    }

    fn required(&self, field: &str, detail: impl std::fmt::Display) -> Violation {
        Violation::new(Cause::Required, self.at(field), detail)
    }

    fn duplicate(&self, field: &str, detail: impl std::fmt::Display) -> Violation {
        Violation::new(Cause::Duplicate, self.at(field), detail)
    }

    fn not_supported(&self, field: &str, detail: impl std::fmt::Display) -> Violation {
        Violation::new(Cause::NotSupported, self.at(field), detail)
    }

    /// A violation when the gate is off.
    fn needs_gate(&self, field: &str, gate: &str) -> Option<Violation> {
        (!self.config.has_gate(gate)).then(|| self.invalid(field, gate_is_off(gate)))
    }

    fn architecture(&self) -> &'a str {
        self.spec.architecture.as_deref().unwrap_or_default()
    }

    fn cpu(&self) -> Option<&'a Cpu> {
        self.spec.domain.cpu.as_ref()
    }

    fn memory(&self) -> Option<&'a Memory> {
        self.spec.domain.memory.as_ref()
    }

    fn firmware(&self) -> Option<&'a Firmware> {
        self.spec.domain.firmware.as_ref()
    }

    fn efi(&self) -> Option<&'a Efi> {
        self.firmware()?.bootloader.as_ref()?.efi.as_ref()
    }

    fn has_dedicated_cpus(&self) -> bool {
        self.cpu()
            .is_some_and(|cpu| cpu.dedicated_cpu_placement == Some(true))
    }
}

/// How to come by a gate.
pub(crate) fn gate_is_off(gate: &str) -> String {
    format!(
        "needs the feature gate {gate}, which is off; leave it out, or list the gate in \
         spec.configuration.developerConfiguration.featureGates of the KubeVirt object"
    )
}

/// Text that says something.
fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

/// How many of these hold.
fn count(given: &[bool]) -> usize {
    given.iter().filter(|given| **given).count()
}

/// Indices of elements whose key an earlier element has.
pub(crate) fn repeated<'a, T>(items: &'a [T], key: impl Fn(&'a T) -> &'a str) -> Vec<usize> {
    let mut seen = std::collections::BTreeSet::new();
    (0..items.len())
        .filter(|&i| items.get(i).is_some_and(|item| !seen.insert(key(item))))
        .collect()
}
