//! What the webhook fills in for a new `VirtualMachineInstance`, in the order that counts: later
//! rules build on what earlier ones filled in.

use kubevirt_api::{
    VirtualMachineInstance, annotations, finalizers,
    vmi::VirtualMachineInstanceSpec,
    vmi_status::{
        CpuTopology, MemoryStatus, VirtualMachineInstancePhase,
        VirtualMachineInstancePhaseTransitionTimestamp, VirtualMachineInstanceStatus,
    },
};

use super::{Surroundings, controller, devices, machine, network};
use crate::{ClusterConfig, violation::Violation};

/// User that the hypervisor runs as.
pub const RUNTIME_USER: u64 = 107;

/// Fills in a new object: spec, finalizer and the first status.
pub fn set(
    vmi: &mut VirtualMachineInstance,
    config: &ClusterConfig,
    around: Surroundings<'_>,
) -> Result<(), Vec<Violation>> {
    set_spec(&mut vmi.spec, config, around, "spec")?;
    if machine::takes_pci_topology_v3(&vmi.spec) {
        vmi.metadata
            .annotations
            .get_or_insert_default()
            .entry(annotations::PCI_TOPOLOGY_VERSION.to_owned())
            .or_insert_with(|| annotations::PCI_TOPOLOGY_VERSION_V3.to_owned());
    }
    let finalizers = vmi.metadata.finalizers.get_or_insert_default();
    if !finalizers
        .iter()
        .any(|finalizer| finalizer == finalizers::VMI)
    {
        finalizers.push(finalizers::VMI.to_owned());
    }
    set_status(vmi, around);
    Ok(())
}

/// The spec alone, as for the template of a VM; `path` is where violations say it is.
pub fn set_spec(
    spec: &mut VirtualMachineInstanceSpec,
    config: &ClusterConfig,
    around: Surroundings<'_>,
    path: &str,
) -> Result<(), Vec<Violation>> {
    machine::set_architecture(spec, config);
    machine::set_machine(spec, config);
    machine::set_cpu_request(&mut spec.domain, config);
    machine::set_guest_memory(&mut spec.domain);
    machine::set_cpu_topology(&mut spec.domain);
    devices::set_pull_policies(spec);
    spec.eviction_strategy
        .get_or_insert_with(|| config.eviction_strategy.clone());
    network::set_default(spec, config, path).map_err(|violation| vec![violation])?;
    controller::set_disks(spec);
    machine::set_firmware(spec, around);
    machine::set_features(spec);
    machine::set_timers(&mut spec.domain);
    devices::set_disks(spec);
    devices::set_inputs(&mut spec.domain.devices);
    devices::set_watchdog(spec);
    devices::set_probes(spec);
    machine::set_cpu_model(spec, config);
    machine::set_head_room(spec, config);
    Ok(())
}

fn set_status(vmi: &mut VirtualMachineInstance, around: Surroundings<'_>) {
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
    let phase = VirtualMachineInstancePhase::Pending;
    vmi.status = Some(VirtualMachineInstanceStatus {
        phase: Some(phase.clone()),
        phase_transition_timestamps: vec![VirtualMachineInstancePhaseTransitionTimestamp {
            phase: Some(phase),
            phase_transition_timestamp: Some(around.now.clone()),
        }],
        current_cpu_topology: topology,
        memory: guest.map(|guest| MemoryStatus {
            guest_at_boot: Some(guest.clone()),
            guest_current: Some(guest.clone()),
            guest_requested: Some(guest),
            ..MemoryStatus::default()
        }),
        runtime_user: Some(RUNTIME_USER),
        ..vmi.status.take().unwrap_or_default()
    });
}
