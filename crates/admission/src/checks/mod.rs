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
    ClusterConfig, unsupported,
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
pub const ALL: &[Check] = &[
    identity::labels,
    identity::annotations,
    identity::host_name,
    identity::service_account,
    identity::architecture,
    identity::strategies,
    identity::grace_period,
    identity::dns,
    identity::probes,
    compute::memory_is_given,
    compute::memory_quantities,
    compute::cpu_quantities,
    compute::cpu_topology,
    compute::cpu_features,
    compute::cpu_isolation,
    compute::machine,
    compute::io_threads,
    firmware::bootloader,
    firmware::secure_boot,
    firmware::kernel_boot,
    firmware::hyperv,
    firmware::uuid,
    devices::inputs,
    devices::video,
    disks::names,
    disks::targets,
    disks::buses,
    disks::boot_order,
    disks::tuning,
    disks::block_sizes,
    volumes::names,
    volumes::sources,
    volumes::are_used,
    volumes::cloud_init,
    volumes::container_disks,
    volumes::empty_disks,
    volumes::utility_volumes,
    networks::names,
    networks::types,
    networks::pod_network_is_single,
    networks::interface_names,
    networks::bindings,
    networks::masquerade,
    networks::states_and_models,
    networks::mac_addresses,
    networks::ports,
    networks::dhcp_options,
    not_supported_yet,
];

/// Runs every check.
pub fn run(input: &Input<'_>) -> Vec<Violation> {
    ALL.iter().flat_map(|check| check(input)).collect()
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
