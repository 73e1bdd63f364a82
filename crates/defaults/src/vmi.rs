//! Defaults that the webhook fills into a new `VirtualMachineInstance`. Their order matters: later
//! rules depend on the values of earlier ones.

use cluster_config::ClusterConfig;
use kubevirt_api::{
    VirtualMachineInstance, annotations, finalizers,
    vmi::VirtualMachineInstanceSpec,
    vmi_status::{
        CpuTopology, MemoryStatus, VirtualMachineInstancePhase,
        VirtualMachineInstancePhaseTransitionTimestamp,
    },
};
use validation::{Rule, Subject, Violation};

use crate::{controller, devices, environment::Environment, features, machine, network};

/// User id of the QEMU process.
pub const RUNTIME_USER: u64 = 107;

/// A spec that is being completed.
#[derive(Debug)]
pub struct Draft<'a> {
    pub spec: &'a mut VirtualMachineInstanceSpec,
    pub config: &'a ClusterConfig,
    pub env: Environment<'a>,
    /// Path of the spec in violations.
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

/// All defaults of the spec, in the order they are applied.
#[rustfmt::skip]
pub const SPEC: &[Rule<Fill>] = &[
    Rule::new("default.architecture", Subject::VmiDefaults, "architecture of the cluster", always!(|draft| machine::set_architecture(draft.spec, draft.config))),
    Rule::new("default.machine", Subject::VmiDefaults, "machine type of the architecture", always!(|draft| machine::set_machine(draft.spec, draft.config))),
    Rule::new("default.cpu-request", Subject::VmiDefaults, "CPU request, from the limit or the cluster", always!(|draft| machine::set_cpu_request(&mut draft.spec.domain, draft.config))),
    Rule::new("default.guest-memory", Subject::VmiDefaults, "guest memory, from request, limit or huge page", always!(|draft| machine::set_guest_memory(&mut draft.spec.domain))),
    Rule::new("default.cpu-topology", Subject::VmiDefaults, "sockets, as many as the pod may use", always!(|draft| machine::set_cpu_topology(&mut draft.spec.domain))),
    Rule::new("default.pull-policy", Subject::VmiDefaults, "pull policy of container disks, by the tag", always!(|draft| devices::set_pull_policies(draft.spec))),
    Rule::new("default.eviction-strategy", Subject::VmiDefaults, "eviction strategy of the cluster", always!(|draft| set_eviction_strategy(draft))),
    Rule::new("default.pod-network", Subject::VmiDefaults, "pod network of a guest without networks", |draft| network::set_default(draft.spec, draft.config, draft.path)),
    Rule::new("default.disks", Subject::VmiDefaults, "disks of volumes without disk", always!(|draft| controller::set_disks(draft.spec))),
    Rule::new("default.acpi", Subject::VmiDefaults, "ACPI, off on s390x", always!(|draft| features::set_acpi(draft.spec))),
    Rule::new("default.identity", Subject::VmiDefaults, "firmware UUID", always!(|draft| machine::set_identity(draft.spec, draft.env))),
    Rule::new("default.features", Subject::VmiDefaults, "features that are present are enabled", always!(|draft| features::set_present(draft.spec))),
    Rule::new("default.timers", Subject::VmiDefaults, "timers that are listed are present", always!(|draft| features::set_timers(&mut draft.spec.domain))),
    Rule::new("default.disk-targets", Subject::VmiDefaults, "targets of disks, state of CD-ROM drives", always!(|draft| devices::set_targets(draft.spec))),
    Rule::new("default.input-device", Subject::VmiDefaults, "a tablet, if an input device is to be attached and none is listed", always!(|draft| controller::set_input(draft.spec))),
    Rule::new("default.inputs", Subject::VmiDefaults, "bus and type of inputs", always!(|draft| devices::set_inputs(&mut draft.spec.domain.devices))),
    Rule::new("default.probes", Subject::VmiDefaults, "periods and thresholds of probes", always!(|draft| devices::set_probes(draft.spec))),
    Rule::new("default.hyperv", Subject::VmiDefaults, "enlightenments that others depend on", always!(|draft| features::complete_hyperv(&mut draft.spec.domain))),
    Rule::new("default.buses", Subject::VmiDefaults, "bus of disks, by architecture", always!(|draft| devices::set_buses(draft.spec))),
    Rule::new("default.bootloader", Subject::VmiDefaults, "EFI without secure boot on arm64", always!(|draft| machine::set_bootloader(draft.spec))),
    Rule::new("default.watchdog", Subject::VmiDefaults, "model and action of the watchdog", always!(|draft| devices::set_watchdog(draft.spec))),
    Rule::new("default.cpu-model", Subject::VmiDefaults, "CPU model of cluster or architecture", always!(|draft| machine::set_cpu_model(draft.spec, draft.config))),
    Rule::new("default.max-sockets", Subject::VmiDefaults, "maximum of hot-pluggable sockets", always!(|draft| machine::set_max_sockets(draft.spec, draft.config))),
    Rule::new("default.max-guest", Subject::VmiDefaults, "maximum of hot-pluggable memory", always!(|draft| machine::set_max_guest(draft.spec, draft.config))),
];

/// The first rule after the outline.
const AFTER_OUTLINE: &str = "default.acpi";

/// Input of a default of the whole object.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub config: &'a ClusterConfig,
    pub env: Environment<'a>,
}

pub type FillObject = fn(&mut VirtualMachineInstance, &Context<'_>);

/// All defaults outside the spec, applied after those of the spec.
#[rustfmt::skip]
pub const OBJECT: &[Rule<FillObject>] = &[
    Rule::new("default.status-size", Subject::VmiDefaults, "memory and CPUs at boot, in the status", set_size),
    Rule::new("default.pci-topology", Subject::VmiDefaults, "layout of PCI ports", set_pci_topology),
    Rule::new("default.emulator-threads", Subject::VmiDefaults, "whether emulator threads occupy a whole core", set_emulator_threads),
    Rule::new("default.tdx-quotes", Subject::VmiDefaults, "quote generation socket of TDX guests", set_quote_service),
    Rule::new("default.runtime-user", Subject::VmiDefaults, "user of the QEMU process", set_runtime_user),
    Rule::new("default.finalizer", Subject::VmiDefaults, "finalizer, and phase Pending", set_initial_state),
];

/// Fills in a new object: spec, annotations, finalizer and the first status.
pub fn set(
    vmi: &mut VirtualMachineInstance,
    config: &ClusterConfig,
    env: Environment<'_>,
) -> Result<(), Vec<Violation>> {
    set_spec(&mut vmi.spec, config, env, "spec")?;
    for rule in OBJECT {
        (rule.apply)(vmi, &Context { config, env });
    }
    Ok(())
}

/// Fills in the spec alone, as for the template of a VM; `path` is its path in violations.
pub fn set_spec(
    spec: &mut VirtualMachineInstanceSpec,
    config: &ClusterConfig,
    env: Environment<'_>,
    path: &str,
) -> Result<(), Vec<Violation>> {
    let draft = Draft {
        spec,
        config,
        env,
        path,
    };
    fill(draft, SPEC)
}

/// Fills in the outline of a spec, for a VM whose instance type is expanded: everything except the
/// details of devices.
pub fn set_outline(
    spec: &mut VirtualMachineInstanceSpec,
    config: &ClusterConfig,
    env: Environment<'_>,
    path: &str,
) -> Result<(), Vec<Violation>> {
    let draft = Draft {
        spec,
        config,
        env,
        path,
    };
    fill(
        draft,
        SPEC.iter().take_while(|rule| rule.id != AFTER_OUTLINE),
    )
}

fn fill<'a>(
    mut draft: Draft<'_>,
    rules: impl IntoIterator<Item = &'a Rule<Fill>>,
) -> Result<(), Vec<Violation>> {
    for rule in rules {
        (rule.apply)(&mut draft).map_err(|violation| vec![violation.reported_by(rule.id)])?;
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
    let parity = context.config.even_emulator_threads.as_deref();
    if let Some(parity) = parity.filter(|_| is_isolated && context.config.has_gate("AlignCPUs")) {
        annotate(
            vmi,
            annotations::EMULATOR_THREAD_COMPLETE_TO_EVEN_PARITY,
            parity,
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

fn set_initial_state(vmi: &mut VirtualMachineInstance, context: &Context<'_>) {
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
        phase_transition_timestamp: Some(context.env.now.clone()),
    }];
}
