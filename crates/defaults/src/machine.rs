//! Defaults of architecture, machine type, CPU, memory and firmware.

use cluster_config::{ClusterConfig, DEFAULT_CPU_REQUEST, Rollout};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::{
    domain::{DomainSpec, ResourceRequirements},
    firmware::Efi,
    quantity::Amount,
    vmi::VirtualMachineInstanceSpec,
};

use crate::{environment::Environment, growth};

/// Maximum of virtual CPUs after hot-plug.
const MAX_VCPUS: u32 = 512;

pub(crate) fn set_architecture(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    if architecture(spec).is_empty() {
        spec.architecture = Some(config.default_architecture.clone());
    }
}

pub(crate) fn set_machine(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    let Some(machines) = config.machines_of(architecture(spec)) else {
        return;
    };
    let machine = spec.domain.machine.get_or_insert_default();
    if machine.type_.as_deref().unwrap_or_default().is_empty() {
        machine.type_ = Some(machines.default_type.clone());
    }
}

/// Whether a new guest uses the current layout of PCI hot-plug ports.
pub(crate) fn takes_pci_topology_v3(spec: &VirtualMachineInstanceSpec) -> bool {
    let machine = spec
        .domain
        .machine
        .clone()
        .unwrap_or_default()
        .type_
        .unwrap_or_default();
    matches!(architecture(spec), "" | "amd64" | "arm64")
        && (machine.is_empty() || machine.contains("q35") || machine.starts_with("virt"))
}

/// The CPU request defaults to the limit, otherwise to the administrator's value.
pub(crate) fn set_cpu_request(domain: &mut DomainSpec, config: &ClusterConfig) {
    let is_dedicated = domain
        .cpu
        .as_ref()
        .is_some_and(|cpu| cpu.dedicated_cpu_placement == Some(true));
    let written = domain.resources.clone().unwrap_or_default();
    if written.requests.contains_key("cpu") {
        return;
    }
    let request = match written.limits.get("cpu") {
        Some(limit) => limit.clone(),
        None if config.cpu_request.0 != DEFAULT_CPU_REQUEST && !is_dedicated => {
            config.cpu_request.clone()
        }
        None => return,
    };
    domain
        .resources
        .get_or_insert_default()
        .requests
        .insert("cpu".to_owned(), request);
}

/// Guest memory defaults to the pod's request, limit or huge page size.
pub(crate) fn set_guest_memory(domain: &mut DomainSpec) {
    let resources = domain.resources.clone().unwrap_or_default();
    let memory = domain.memory.clone().unwrap_or_default();
    if memory.guest.is_some() {
        return;
    }
    let page_size = memory
        .hugepages
        .and_then(|hugepages| hugepages.page_size)
        .map(Quantity);
    let guest = memory_of(&resources).cloned().or(page_size);
    if guest.is_some() {
        domain.memory.get_or_insert_default().guest = guest;
    }
}

fn memory_of(resources: &ResourceRequirements) -> Option<&Quantity> {
    resources
        .requests
        .get("memory")
        .or_else(|| resources.limits.get("memory"))
}

/// Without a topology, the guest gets as many sockets as the pod has CPUs.
pub(crate) fn set_cpu_topology(domain: &mut DomainSpec) {
    let resources = domain.resources.clone().unwrap_or_default();
    let cpu = domain.cpu.get_or_insert_default();
    let is_given = [cpu.sockets, cpu.cores, cpu.threads]
        .iter()
        .any(|n| n.unwrap_or(0) != 0);
    if is_given {
        return;
    }
    let cpus = resources
        .limits
        .get("cpu")
        .or_else(|| resources.requests.get("cpu"))
        .and_then(|cpus| Amount::parse(cpus).ok())
        .map_or(1, Amount::units);
    cpu.sockets = Some(u32::try_from(cpus).unwrap_or(u32::MAX).max(1));
    cpu.cores = Some(1);
    cpu.threads = Some(1);
}

/// Sets the CPU model; arm64 supports only that of the host.
pub(crate) fn set_cpu_model(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    let is_arm = architecture(spec) == "arm64";
    let cpu = spec.domain.cpu.get_or_insert_default();
    if cpu.model.as_deref().unwrap_or_default().is_empty() {
        cpu.model = Some(match &config.cpu_model {
            _ if is_arm => "host-passthrough".to_owned(),
            Some(model) => model.clone(),
            None => "host-model".to_owned(),
        });
    }
}

pub(crate) fn set_identity(spec: &mut VirtualMachineInstanceSpec, env: Environment<'_>) {
    let firmware = spec.domain.firmware.get_or_insert_default();
    if firmware.uuid.as_deref().unwrap_or_default().is_empty() {
        firmware.uuid = Some((env.new_uuid)().to_string());
    }
}

pub(crate) fn set_bootloader(spec: &mut VirtualMachineInstanceSpec) {
    if architecture(spec) != "arm64" {
        return;
    }
    let firmware = spec.domain.firmware.get_or_insert_default();
    let bootloader = firmware.bootloader.get_or_insert_default();
    if bootloader.bios.is_none() {
        let efi = bootloader.efi.get_or_insert_with(Efi::default);
        efi.secure_boot.get_or_insert(false);
    }
}

/// Whether a guest's CPUs may grow while it runs.
fn may_grow(spec: &VirtualMachineInstanceSpec, config: &ClusterConfig) -> bool {
    config.rollout == Rollout::LiveUpdate && architecture(spec) != "arm64"
}

pub(crate) fn set_max_sockets(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    if !may_grow(spec, config) {
        return;
    }
    let cpu = spec.domain.cpu.get_or_insert_default();
    let sockets = cpu.sockets.unwrap_or(0);
    if cpu.max_sockets.unwrap_or(0) != 0 || sockets == 0 {
        return;
    }
    let per_socket = cpu
        .cores
        .unwrap_or(1)
        .max(1)
        .saturating_mul(cpu.threads.unwrap_or(1).max(1));
    let desired = match config.max_cpu_sockets {
        Some(max) if max > 0 => max.max(sockets),
        _ => sockets.saturating_mul(config.max_hotplug_ratio),
    };
    let max = if desired.saturating_mul(per_socket) > MAX_VCPUS {
        (MAX_VCPUS / per_socket).max(sockets)
    } else {
        desired
    };
    cpu.max_sockets = Some(max);
}

pub(crate) fn set_max_guest(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    if !may_grow(spec, config) {
        return;
    }
    let memory = spec.domain.memory.as_ref();
    let Some(guest) = memory.and_then(|memory| memory.guest.as_ref()) else {
        return;
    };
    if memory.is_some_and(|memory| memory.max_guest.is_some()) {
        return;
    }
    let max = match (&config.max_guest, Amount::parse(guest)) {
        (Some(max), _) => max.clone(),
        (None, Ok(guest)) => guest.times(config.max_hotplug_ratio).to_binary(),
        (None, Err(_)) => return,
    };
    let are_quantities = [guest, &max].iter().all(|one| Amount::parse(one).is_ok());
    let problem = growth::problem(&spec.domain, architecture(spec), Some(guest), &max);
    if are_quantities && problem.is_none() {
        spec.domain.memory.get_or_insert_default().max_guest = Some(max);
    }
}

pub(crate) fn architecture(spec: &VirtualMachineInstanceSpec) -> &str {
    spec.architecture.as_deref().unwrap_or_default()
}
