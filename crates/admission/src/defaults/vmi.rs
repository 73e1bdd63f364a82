//! What the webhook fills in for a new `VirtualMachineInstance`, in the order that counts: later
//! rules build on what earlier ones filled in.

use kubevirt_api::{
    VirtualMachineInstance, annotations, finalizers,
    vmi::VirtualMachineInstanceSpec,
    vmi_status::{
        CpuTopology, MemoryStatus, VirtualMachineInstancePhase,
        VirtualMachineInstancePhaseTransitionTimestamp,
    },
};

use super::{Surroundings, controller, devices, features, machine, network};
use crate::{ClusterConfig, rules::Rule, violation::Violation};

/// User that the hypervisor runs as.
pub const RUNTIME_USER: u64 = 107;

/// A spec on its way to being complete.
#[derive(Debug)]
pub struct Draft<'a> {
    pub spec: &'a mut VirtualMachineInstanceSpec,
    pub config: &'a ClusterConfig,
    pub around: Surroundings<'a>,
    /// Where violations say the spec is.
    pub path: &'a str,
}

pub type Fill = fn(&mut Draft<'_>) -> Result<(), Violation>;

/// A default that cannot fail.
macro_rules! always {
    ($fill:expr) => {
        |draft| {
            let fill: fn(&mut Draft<'_>) = $fill;
            fill(draft);
            Ok(())
        }
    };
}

/// Every default of the spec.
#[rustfmt::skip]
pub const SPEC: &[Rule<Fill>] = &[
    Rule::new("default.architecture", "D3.3", "architecture of the cluster", always!(|draft| machine::set_architecture(draft.spec, draft.config))),
    Rule::new("default.machine", "D3.4", "machine type of the architecture", always!(|draft| machine::set_machine(draft.spec, draft.config))),
    Rule::new("default.cpu-request", "D3.5", "CPU request, from the limit or the cluster", always!(|draft| machine::set_cpu_request(&mut draft.spec.domain, draft.config))),
    Rule::new("default.guest-memory", "D3.6", "guest memory, from request, limit or huge page", always!(|draft| machine::set_guest_memory(&mut draft.spec.domain))),
    Rule::new("default.cpu-topology", "D3.7", "sockets, as many as the pod may use", always!(|draft| machine::set_cpu_topology(&mut draft.spec.domain))),
    Rule::new("default.pull-policy", "D3.8", "pull policy of container disks, by the tag", always!(|draft| devices::set_pull_policies(draft.spec))),
    Rule::new("default.eviction-strategy", "D3.9", "eviction strategy of the cluster", always!(|draft| set_eviction_strategy(draft))),
    Rule::new("default.pod-network", "D3.10", "pod network of a guest that names none", |draft| network::set_default(draft.spec, draft.config, draft.path)),
    Rule::new("default.disks", "D3.11", "disks of volumes that nothing shows", always!(|draft| controller::set_disks(draft.spec))),
    Rule::new("default.acpi", "D3.12", "ACPI, off on s390x", always!(|draft| features::set_acpi(draft.spec))),
    Rule::new("default.identity", "D3.13", "identity of the firmware", always!(|draft| machine::set_identity(draft.spec, draft.around))),
    Rule::new("default.features", "D3.13", "features that are there are on", always!(|draft| features::set_present(draft.spec))),
    Rule::new("default.timers", "D3.13", "timers that are there are present", always!(|draft| features::set_timers(&mut draft.spec.domain))),
    Rule::new("default.disk-targets", "D3.13", "disks without target, drives without state", always!(|draft| devices::set_targets(draft.spec))),
    Rule::new("default.inputs", "D3.13", "bus and type of inputs", always!(|draft| devices::set_inputs(&mut draft.spec.domain.devices))),
    Rule::new("default.probes", "D3.13", "times and thresholds of probes", always!(|draft| devices::set_probes(draft.spec))),
    Rule::new("default.hyperv", "D3.14", "enlightenments that others depend on", always!(|draft| features::complete_hyperv(&mut draft.spec.domain))),
    Rule::new("default.buses", "D3.15", "bus of disks, by architecture", always!(|draft| devices::set_buses(draft.spec))),
    Rule::new("default.bootloader", "D3.15", "EFI without secure boot on arm64", always!(|draft| machine::set_bootloader(draft.spec))),
    Rule::new("default.watchdog", "D3.15", "kind and action of the watchdog", always!(|draft| devices::set_watchdog(draft.spec))),
    Rule::new("default.cpu-model", "D3.16", "CPU model of cluster or architecture", always!(|draft| machine::set_cpu_model(draft.spec, draft.config))),
    Rule::new("default.max-sockets", "D3.18", "sockets that may be plugged", always!(|draft| machine::set_max_sockets(draft.spec, draft.config))),
    Rule::new("default.max-guest", "D3.18", "memory that may be plugged", always!(|draft| machine::set_max_guest(draft.spec, draft.config))),
];

/// The first rule that is not part of the outline.
const AFTER_OUTLINE: &str = "default.acpi";

/// What a default of the whole object may look at.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub config: &'a ClusterConfig,
    pub around: Surroundings<'a>,
}

pub type FillObject = fn(&mut VirtualMachineInstance, &Context<'_>);

/// Every default beside the spec; they come after it.
#[rustfmt::skip]
pub const OBJECT: &[Rule<FillObject>] = &[
    Rule::new("default.status-size", "D3.17", "memory and CPUs at the start, in the status", set_size),
    Rule::new("default.pci-topology", "D3.19", "layout of PCI ports", set_pci_topology),
    Rule::new("default.emulator-threads", "D3.20", "whether emulator threads fill up a core", set_emulator_threads),
    Rule::new("default.tdx-quotes", "D3.21", "where TDX guests get their quotes", set_quote_service),
    Rule::new("default.runtime-user", "D3.22", "user of the hypervisor", set_runtime_user),
    Rule::new("default.finalizer", "D3.23", "finalizer, and phase Pending", set_beginning),
];

/// Fills in a new object: spec, annotations, finalizer and the first status.
pub fn set(
    vmi: &mut VirtualMachineInstance,
    config: &ClusterConfig,
    around: Surroundings<'_>,
) -> Result<(), Vec<Violation>> {
    set_spec(&mut vmi.spec, config, around, "spec")?;
    for rule in OBJECT {
        (rule.apply)(vmi, &Context { config, around });
    }
    Ok(())
}

/// The spec alone, as for the template of a VM; `path` is where violations say it is.
pub fn set_spec(
    spec: &mut VirtualMachineInstanceSpec,
    config: &ClusterConfig,
    around: Surroundings<'_>,
    path: &str,
) -> Result<(), Vec<Violation>> {
    let mut draft = Draft {
        spec,
        config,
        around,
        path,
    };
    for rule in SPEC {
        (rule.apply)(&mut draft).map_err(|violation| vec![violation.of(rule.id)])?;
    }
    Ok(())
}

/// The part of the spec that says what a VM is, as far as its author sees it when it is written
/// out: everything up to devices, before they get their details.
pub fn set_outline(
    spec: &mut VirtualMachineInstanceSpec,
    config: &ClusterConfig,
    around: Surroundings<'_>,
    path: &str,
) -> Result<(), Vec<Violation>> {
    let mut draft = Draft {
        spec,
        config,
        around,
        path,
    };
    for rule in SPEC.iter().take_while(|rule| rule.id != AFTER_OUTLINE) {
        (rule.apply)(&mut draft).map_err(|violation| vec![violation.of(rule.id)])?;
    }
    Ok(())
}

fn set_eviction_strategy(draft: &mut Draft<'_>) {
    let strategy = &mut draft.spec.eviction_strategy;
    strategy.get_or_insert_with(|| draft.config.eviction_strategy.clone());
}

fn set_size(vmi: &mut VirtualMachineInstance, _: &Context<'_>) {
    let domain = &vmi.spec.domain;
    let guest = domain
        .memory
        .as_ref()
        .and_then(|memory| memory.guest.clone());
    let topology = domain.cpu.as_ref().map(|cpu| CpuTopology {
        cores: cpu.cores,
        sockets: cpu.sockets,
        threads: cpu.threads,
    });
    let status = vmi.status.get_or_insert_default();
    if status.memory.is_none() {
        status.memory = guest.map(|guest| MemoryStatus {
            guest_at_boot: Some(guest.clone()),
            guest_current: Some(guest.clone()),
            guest_requested: Some(guest),
            ..MemoryStatus::default()
        });
    }
    if status.current_cpu_topology.is_none() {
        status.current_cpu_topology = topology;
    }
}

fn annotate(vmi: &mut VirtualMachineInstance, key: &str, value: &str) {
    let annotations = vmi.metadata.annotations.get_or_insert_default();
    annotations
        .entry(key.to_owned())
        .or_insert_with(|| value.to_owned());
}

fn set_pci_topology(vmi: &mut VirtualMachineInstance, _: &Context<'_>) {
    if machine::takes_pci_topology_v3(&vmi.spec) {
        let value = annotations::PCI_TOPOLOGY_VERSION_V3;
        annotate(vmi, annotations::PCI_TOPOLOGY_VERSION, value);
    }
}

fn set_emulator_threads(vmi: &mut VirtualMachineInstance, context: &Context<'_>) {
    let cpu = vmi.spec.domain.cpu.as_ref();
    let is_isolated = cpu.is_some_and(|cpu| cpu.isolate_emulator_thread == Some(true));
    let wish = context.config.even_emulator_threads.as_deref();
    if let Some(wish) = wish.filter(|_| is_isolated && context.config.has_gate("AlignCPUs")) {
        annotate(
            vmi,
            annotations::EMULATOR_THREAD_COMPLETE_TO_EVEN_PARITY,
            wish,
        );
    }
}

fn set_quote_service(vmi: &mut VirtualMachineInstance, context: &Context<'_>) {
    let security = vmi.spec.domain.launch_security.as_ref();
    if security.is_some_and(|security| security.tdx.is_some()) {
        let socket = &context.config.quote_service_socket;
        annotate(vmi, annotations::QGS_SOCKET_PATH, socket);
    }
}

fn set_runtime_user(vmi: &mut VirtualMachineInstance, context: &Context<'_>) {
    if !context.config.has_gate("Root") {
        vmi.status.get_or_insert_default().runtime_user = Some(RUNTIME_USER);
    }
}

fn set_beginning(vmi: &mut VirtualMachineInstance, context: &Context<'_>) {
    let finalizers = vmi.metadata.finalizers.get_or_insert_default();
    let is_ours = |finalizer: &String| finalizer == finalizers::VMI;
    if !finalizers.iter().any(is_ours) {
        finalizers.push(finalizers::VMI.to_owned());
    }
    let phase = VirtualMachineInstancePhase::Pending;
    let status = vmi.status.get_or_insert_default();
    status.phase = Some(phase.clone());
    status.phase_transition_timestamps = vec![VirtualMachineInstancePhaseTransitionTimestamp {
        phase: Some(phase),
        phase_transition_timestamp: Some(context.around.now.clone()),
    }];
}
