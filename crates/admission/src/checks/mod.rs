//! The checks of a guest's spec: a list of pure functions, each about one thing. The list is the
//! specification.
//!
//! Checks see the spec after defaults, so they need not think of absent values that have one.

mod compute;
mod devices;
mod disks;
mod firmware;
mod identity;
mod networks;
mod volumes;

use std::collections::BTreeMap;

use kubevirt_api::vmi::VirtualMachineInstanceSpec;

use crate::{
    ClusterConfig,
    rules::Rule,
    unsupported,
    violation::{Cause, Violation},
};

/// What a check may look at.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// After defaults.
    pub spec: &'a VirtualMachineInstanceSpec,
    pub labels: &'a BTreeMap<String, String>,
    pub annotations: &'a BTreeMap<String, String>,
    pub config: &'a ClusterConfig,
    pub origin: Origin,
    pub requester: Requester,
}

/// Whose spec it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Instance,
    TemplateOfVm,
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
pub const ALL: &[Rule<Check>] = &[
    Rule::new("identity.labels", "1.1", "labels", identity::labels),
    Rule::new(
        "identity.annotations",
        "1.1",
        "annotations",
        identity::annotations,
    ),
    Rule::new(
        "identity.host-name",
        "1.1",
        "host name",
        identity::host_name,
    ),
    Rule::new(
        "identity.service-account",
        "1.1",
        "service account",
        identity::service_account,
    ),
    Rule::new(
        "identity.architecture",
        "1.1",
        "architecture",
        identity::architecture,
    ),
    Rule::new(
        "identity.strategies",
        "1.1",
        "strategies",
        identity::strategies,
    ),
    Rule::new(
        "identity.grace-period",
        "1.1",
        "grace period",
        identity::grace_period,
    ),
    Rule::new("identity.dns", "1.1", "dns", identity::dns),
    Rule::new("identity.probes", "1.1", "probes", identity::probes),
    Rule::new(
        "compute.memory-is-given",
        "1.2",
        "memory is given",
        compute::memory_is_given,
    ),
    Rule::new(
        "compute.memory-quantities",
        "1.2",
        "memory quantities",
        compute::memory_quantities,
    ),
    Rule::new(
        "compute.cpu-quantities",
        "1.2",
        "cpu quantities",
        compute::cpu_quantities,
    ),
    Rule::new(
        "compute.cpu-topology",
        "1.2",
        "cpu topology",
        compute::cpu_topology,
    ),
    Rule::new(
        "compute.cpu-features",
        "1.2",
        "cpu features",
        compute::cpu_features,
    ),
    Rule::new(
        "compute.cpu-isolation",
        "1.2",
        "cpu isolation",
        compute::cpu_isolation,
    ),
    Rule::new("compute.machine", "1.2", "machine", compute::machine),
    Rule::new(
        "compute.io-threads",
        "1.2",
        "io threads",
        compute::io_threads,
    ),
    Rule::new(
        "firmware.bootloader",
        "1.3",
        "bootloader",
        firmware::bootloader,
    ),
    Rule::new(
        "firmware.secure-boot",
        "1.3",
        "secure boot",
        firmware::secure_boot,
    ),
    Rule::new(
        "firmware.kernel-boot",
        "1.3",
        "kernel boot",
        firmware::kernel_boot,
    ),
    Rule::new("firmware.hyperv", "1.3", "hyperv", firmware::hyperv),
    Rule::new("firmware.uuid", "1.3", "uuid", firmware::uuid),
    Rule::new("devices.inputs", "1.4", "inputs", devices::inputs),
    Rule::new("devices.video", "1.4", "video", devices::video),
    Rule::new("disks.names", "1.5", "names", disks::names),
    Rule::new("disks.targets", "1.5", "targets", disks::targets),
    Rule::new("disks.buses", "1.5", "buses", disks::buses),
    Rule::new("disks.boot-order", "1.5", "boot order", disks::boot_order),
    Rule::new("disks.tuning", "1.5", "tuning", disks::tuning),
    Rule::new(
        "disks.block-sizes",
        "1.5",
        "block sizes",
        disks::block_sizes,
    ),
    Rule::new("volumes.names", "1.6", "names", volumes::names),
    Rule::new("volumes.sources", "1.6", "sources", volumes::sources),
    Rule::new("volumes.are-used", "1.6", "are used", volumes::are_used),
    Rule::new(
        "volumes.cloud-init",
        "1.6",
        "cloud init",
        volumes::cloud_init,
    ),
    Rule::new(
        "volumes.container-disks",
        "1.6",
        "container disks",
        volumes::container_disks,
    ),
    Rule::new(
        "volumes.empty-disks",
        "1.6",
        "empty disks",
        volumes::empty_disks,
    ),
    Rule::new(
        "volumes.utility-volumes",
        "1.6",
        "utility volumes",
        volumes::utility_volumes,
    ),
    Rule::new("networks.names", "1.7", "names", networks::names),
    Rule::new("networks.types", "1.7", "types", networks::types),
    Rule::new(
        "networks.pod-network-is-single",
        "1.7",
        "pod network is single",
        networks::pod_network_is_single,
    ),
    Rule::new(
        "networks.interface-names",
        "1.7",
        "interface names",
        networks::interface_names,
    ),
    Rule::new("networks.bindings", "1.7", "bindings", networks::bindings),
    Rule::new(
        "networks.masquerade",
        "1.7",
        "masquerade",
        networks::masquerade,
    ),
    Rule::new(
        "networks.states-and-models",
        "1.7",
        "states and models",
        networks::states_and_models,
    ),
    Rule::new(
        "networks.mac-addresses",
        "1.7",
        "mac addresses",
        networks::mac_addresses,
    ),
    Rule::new("networks.ports", "1.7", "ports", networks::ports),
    Rule::new(
        "networks.dhcp-options",
        "1.7",
        "dhcp options",
        networks::dhcp_options,
    ),
    Rule::new(
        "unsupported",
        "-",
        "what this version cannot run yet",
        not_supported_yet,
    ),
];

/// Runs every check.
pub fn run(input: &Input<'_>) -> Vec<Violation> {
    ALL.iter()
        .flat_map(|rule| rule.sign((rule.apply)(input)))
        .collect()
}

fn not_supported_yet(input: &Input<'_>) -> Vec<Violation> {
    unsupported::in_vmi(input.spec, input.path())
}

impl Input<'_> {
    /// Where the spec is in the object.
    pub fn path(&self) -> &'static str {
        match self.origin {
            Origin::Instance => "spec",
            Origin::TemplateOfVm => "spec.template.spec",
        }
    }

    pub fn metadata_path(&self) -> &'static str {
        match self.origin {
            Origin::Instance => "metadata",
            Origin::TemplateOfVm => "spec.template.metadata",
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

    fn architecture(&self) -> &str {
        self.spec.architecture.as_deref().unwrap_or_default()
    }
}

/// What is wrong with a name that must be a DNS label, if anything.
fn dns_label_fault(name: &str) -> Option<String> {
    let fits = !name.is_empty()
        && name.len() <= 63
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-');
    (!fits).then(|| {
        format!(
            "{name:?} is no DNS label; use at most 63 lower-case letters, digits and dashes, \
             with a letter or digit at both ends"
        )
    })
}

/// What is wrong with a name that must be a DNS subdomain, if anything.
fn dns_subdomain_fault(name: &str) -> Option<String> {
    let fits = name.len() <= 253 && name.split('.').all(|part| dns_label_fault(part).is_none());
    (!fits).then(|| {
        format!(
            "{name:?} is no DNS subdomain; use lower-case letters, digits, dashes and dots, with \
             a letter or digit at both ends of each part"
        )
    })
}

/// Indices of elements whose key an earlier element has.
fn repeated<'a, T>(items: &'a [T], key: impl Fn(&'a T) -> &'a str) -> Vec<usize> {
    let mut seen = std::collections::BTreeSet::new();
    (0..items.len())
        .filter(|&i| items.get(i).is_some_and(|item| !seen.insert(key(item))))
        .collect()
}

#[cfg(test)]
mod tests;
