//! Architecture, machine type, CPU, memory, firmware and features.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::{
    domain::{CpuFeature, DomainSpec, ResourceRequirements},
    features::{FeatureHyperv, FeatureState, Features},
    firmware::Efi,
    quantity::Amount,
    vmi::VirtualMachineInstanceSpec,
};

use super::Surroundings;
use crate::{
    ClusterConfig,
    cluster_config::{DEFAULT_CPU_REQUEST, Rollout},
};

/// Most virtual CPUs a guest may be able to grow to.
const MAX_VCPUS: u32 = 512;
const SPINLOCK_RETRIES: u32 = 4096;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

pub(super) fn set_architecture(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    if architecture(spec).is_empty() {
        spec.architecture = Some(config.default_architecture.clone());
    }
}

pub(super) fn set_machine(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    let Some(machines) = config.machines_of(architecture(spec)) else {
        return;
    };
    let machine = spec.domain.machine.get_or_insert_default();
    if machine.type_.as_deref().unwrap_or_default().is_empty() {
        machine.type_ = Some(machines.default_type.clone());
    }
}

/// Whether a new guest gets the current layout of PCI hot-plug ports.
pub(super) fn takes_pci_topology_v3(spec: &VirtualMachineInstanceSpec) -> bool {
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

/// A CPU limit without a request is a request too; else the administrator's value counts.
pub(super) fn set_cpu_request(domain: &mut DomainSpec, config: &ClusterConfig) {
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

/// The guest gets what the pod asks for, when it does not say otherwise.
pub(super) fn set_guest_memory(domain: &mut DomainSpec) {
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

/// A topology that is not given at all is made of sockets: as many as the pod may use.
pub(super) fn set_cpu_topology(domain: &mut DomainSpec) {
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

/// Sets the model of the CPU; on arm64 only the host's own works.
pub(super) fn set_cpu_model(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
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

pub(super) fn set_firmware(spec: &mut VirtualMachineInstanceSpec, around: Surroundings<'_>) {
    let is_arm = architecture(spec) == "arm64";
    let firmware = spec.domain.firmware.get_or_insert_default();
    if firmware.uuid.as_deref().unwrap_or_default().is_empty() {
        firmware.uuid = Some((around.new_uuid)().to_string());
    }
    if is_arm {
        let bootloader = firmware.bootloader.get_or_insert_default();
        if bootloader.bios.is_none() {
            let efi = bootloader.efi.get_or_insert_with(Efi::default);
            efi.secure_boot.get_or_insert(false);
        }
    }
}

pub(super) fn set_features(spec: &mut VirtualMachineInstanceSpec) {
    let acpi_default = architecture(spec) != "s390x";
    let features = spec.domain.features.get_or_insert_default();
    let acpi = features.acpi.get_or_insert_default();
    acpi.enabled.get_or_insert(acpi_default);
    for state in [&mut features.smm, &mut features.pvspinlock]
        .into_iter()
        .flatten()
    {
        enable(state);
    }
    if let Some(apic) = &mut features.apic {
        apic.enabled.get_or_insert(true);
    }
    let needs_vmx = complete_hyperv(features);
    if needs_vmx {
        require_vmx(&mut spec.domain);
    }
}

/// Switches on what other enlightenments depend on; says whether the guest needs `vmx`.
fn complete_hyperv(features: &mut Features) -> bool {
    let Some(hyperv) = &mut features.hyperv else {
        return false;
    };
    enable_present(hyperv);
    let evmcs = is_on(hyperv.evmcs.as_ref());
    if evmcs {
        enable(hyperv.vapic.get_or_insert_default());
    }
    if hyperv
        .synictimer
        .as_ref()
        .is_some_and(|timer| timer.enabled == Some(true))
    {
        enable(hyperv.synic.get_or_insert_default());
    }
    let needs_vpindex = is_on(hyperv.ipi.as_ref())
        || is_on(hyperv.synic.as_ref())
        || hyperv
            .tlbflush
            .as_ref()
            .is_some_and(|flush| flush.enabled == Some(true));
    if needs_vpindex {
        enable(hyperv.vpindex.get_or_insert_default());
    }
    evmcs
}

fn enable_present(hyperv: &mut FeatureHyperv) {
    let states = [
        &mut hyperv.relaxed,
        &mut hyperv.vapic,
        &mut hyperv.vpindex,
        &mut hyperv.runtime,
        &mut hyperv.synic,
        &mut hyperv.reset,
        &mut hyperv.frequencies,
        &mut hyperv.reenlightenment,
        &mut hyperv.ipi,
        &mut hyperv.evmcs,
    ];
    states.into_iter().flatten().for_each(enable);
    if let Some(vendor) = &mut hyperv.vendorid {
        vendor.enabled.get_or_insert(true);
    }
    if let Some(flush) = &mut hyperv.tlbflush {
        flush.enabled.get_or_insert(true);
        [&mut flush.direct, &mut flush.extended]
            .into_iter()
            .flatten()
            .for_each(enable);
    }
    if let Some(timer) = &mut hyperv.synictimer {
        timer.enabled.get_or_insert(true);
        timer.direct.iter_mut().for_each(enable);
    }
    if let Some(spinlocks) = &mut hyperv.spinlocks
        && *spinlocks.enabled.get_or_insert(true)
    {
        spinlocks.spinlocks.get_or_insert(SPINLOCK_RETRIES);
    }
}

fn enable(state: &mut FeatureState) {
    state.enabled.get_or_insert(true);
}

fn is_on(state: Option<&FeatureState>) -> bool {
    state.is_some_and(|state| state.enabled == Some(true))
}

fn require_vmx(domain: &mut DomainSpec) {
    let features = &mut domain.cpu.get_or_insert_default().features;
    if !features.iter().any(|feature| feature.name == "vmx") {
        features.push(CpuFeature {
            name: "vmx".to_owned(),
            policy: Some("require".to_owned()),
        });
    }
}

pub(super) fn set_timers(domain: &mut DomainSpec) {
    let Some(timer) = domain.clock.as_mut().and_then(|clock| clock.timer.as_mut()) else {
        return;
    };
    let present = [
        timer.hpet.as_mut().map(|timer| &mut timer.present),
        timer.kvm.as_mut().map(|timer| &mut timer.present),
        timer.pit.as_mut().map(|timer| &mut timer.present),
        timer.rtc.as_mut().map(|timer| &mut timer.present),
        timer.hyperv.as_mut().map(|timer| &mut timer.present),
    ];
    for present in present.into_iter().flatten() {
        present.get_or_insert(true);
    }
}

/// How far CPU and memory may grow while the guest runs.
pub(super) fn set_head_room(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    if config.rollout != Rollout::LiveUpdate || architecture(spec) == "arm64" {
        return;
    }
    set_max_sockets(&mut spec.domain, config);
    if architecture(spec) == "amd64" {
        set_max_guest(&mut spec.domain, config);
    }
}

fn set_max_sockets(domain: &mut DomainSpec, config: &ClusterConfig) {
    let cpu = domain.cpu.get_or_insert_default();
    let sockets = cpu.sockets.unwrap_or(0);
    if cpu.max_sockets.unwrap_or(0) != 0 || sockets == 0 {
        return;
    }
    let per_socket = cpu
        .cores
        .unwrap_or(1)
        .max(1)
        .saturating_mul(cpu.threads.unwrap_or(1).max(1));
    let wished = match config.max_cpu_sockets {
        Some(max) if max > 0 => max.max(sockets),
        _ => sockets.saturating_mul(config.max_hotplug_ratio),
    };
    let max = if wished.saturating_mul(per_socket) > MAX_VCPUS {
        (MAX_VCPUS / per_socket).max(sockets)
    } else {
        wished
    };
    cpu.max_sockets = Some(max);
}

fn set_max_guest(domain: &mut DomainSpec, config: &ClusterConfig) {
    let is_special = domain.launch_security.is_some()
        || domain.cpu.as_ref().is_some_and(|cpu| {
            cpu.realtime.is_some()
                || cpu
                    .numa
                    .as_ref()
                    .is_some_and(|numa| numa.guest_mapping_passthrough.is_some())
        });
    let Some(memory) = domain.memory.as_mut() else {
        return;
    };
    if is_special || memory.max_guest.is_some() {
        return;
    }
    let Some(Ok(guest)) = memory.guest.as_ref().map(Amount::parse) else {
        return;
    };
    let text = match &config.max_guest {
        Some(max) => max.clone(),
        None => guest.times(config.max_hotplug_ratio).to_binary(),
    };
    let Ok(max) = Amount::parse(&text) else {
        return;
    };
    let has_big_pages = memory
        .hugepages
        .as_ref()
        .and_then(|hugepages| hugepages.page_size.clone())
        .is_some_and(|size| Amount::parse(&Quantity(size)) == Ok(Amount::of(GIB)));
    let step = if has_big_pages { GIB } else { 2 * MIB };
    let fits = guest.is_multiple_of(step) && max.is_multiple_of(step);
    if fits && guest <= max && guest >= Amount::of(GIB) {
        memory.max_guest = Some(text);
    }
}

pub(super) fn architecture(spec: &VirtualMachineInstanceSpec) -> &str {
    spec.architecture.as_deref().unwrap_or_default()
}
