//! Memory that a guest costs besides its own.

use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::quantity::Amount;
use kubevirt_api::vmi::Probe;

use crate::guest::{self, user_amount, vcpus};
use crate::{Acceleration, PodError, Settings};

const MIB: u64 = 1 << 20;

/// One row of the table: what it is for, and how many bytes this VMI needs of it.
struct Row(
    #[expect(dead_code, reason = "names the row for the reader")] &'static str,
    fn(&VirtualMachineInstance, &Settings) -> u64,
);

/// The whole table. PID 1, launcher, libvirtd and QEMU itself were measured at about 60 MiB
/// with one guest on the node, when nothing is shared; the base leaves as much again for peaks
/// such as start and screen capture. What other people's programs take (firmware, TPM, file
/// server, devices) is counted as is usual for them.
const TABLE: &[Row] = &[
    Row("PID 1, launcher, libvirtd, QEMU", |_, _| 110 * MIB),
    Row("per virtual CPU", |vmi, _| 8 * MIB * vcpus(vmi)),
    Row("I/O thread", |_, _| 8 * MIB),
    Row("screen", |vmi, _| {
        let attached = vmi.spec.domain.devices.autoattach_graphics_device != Some(false);
        if attached { 32 * MIB } else { 0 }
    }),
    Row(
        "translated code of an emulated guest",
        |_, settings| match settings.acceleration {
            Acceleration::Kvm => 0,
            Acceleration::Emulation => 48 * MIB,
        },
    ),
    Row("firmware of ARM machines", |vmi, _| {
        when(guest::architecture(vmi) == "arm64", 128)
    }),
    Row("mappings of passed-through devices", |vmi, _| {
        when(guest::has_vfio(vmi), 1024)
    }),
    Row("disk with metrics of the host", |vmi, _| {
        let volumes = &vmi.spec.volumes;
        when(volumes.iter().any(|v| v.downward_metrics.is_some()), 1)
    }),
    Row("probes that run in the pod", |vmi, _| {
        let probes = [&vmi.spec.readiness_probe, &vmi.spec.liveness_probe];
        4 * MIB * count(probes.into_iter().flatten().filter(|p| runs_in_pod(p)))
    }),
    Row("encrypted memory", |vmi, _| {
        let security = vmi.spec.domain.launch_security.as_ref();
        when(
            security.is_some_and(|s| s.sev.is_some() || s.snp.is_some()),
            256,
        )
    }),
    Row("TPM", |vmi, _| when(guest::has_tpm(vmi), 53)),
    Row("file server per shared filesystem", |vmi, _| {
        80 * MIB * count(vmi.spec.domain.devices.filesystems.iter())
    }),
];

/// Where the request is also the limit, going over it even once ends the guest.
const SLACK_BELOW_LIMIT: u64 = 100 * MIB;
/// One process, whatever the number of interfaces.
const PASST: u64 = 250 * MIB;

/// Bytes added to the memory request of the pod of a VMI.
pub fn memory_overhead(vmi: &VirtualMachineInstance, settings: &Settings) -> Result<u64, PodError> {
    let mut sum: u64 = TABLE.iter().map(|Row(_, bytes)| bytes(vmi, settings)).sum();
    // Page tables, for memory that was asked for outright.
    sum += user_amount(vmi, "requests", "memory")?.map_or(0, |m| m.units() / 512);
    if guest::has_dedicated_cpus(vmi) || guest::is_guaranteed(vmi)? {
        sum += SLACK_BELOW_LIMIT;
    }
    let own = settings.overhead_ratio.of(sum.saturating_add(added(vmi)?));
    Ok(own.saturating_add(of_bindings(vmi, settings)?))
}

/// What the user adds for reasons of their own.
fn added(vmi: &VirtualMachineInstance) -> Result<u64, PodError> {
    let memory = vmi.spec.domain.memory.as_ref();
    let reserved = memory.and_then(|memory| memory.reserved_overhead.as_ref());
    let Some(quantity) = reserved.and_then(|reserved| reserved.added_overhead.as_ref()) else {
        return Ok(0);
    };
    Amount::parse(quantity).map(Amount::units).map_err(|error| {
        PodError::invalid("spec.domain.memory.reservedOverhead.addedOverhead", &error)
    })
}

/// What network bindings take: each registered one says so itself, and counts once.
fn of_bindings(vmi: &VirtualMachineInstance, settings: &Settings) -> Result<u64, PodError> {
    let has_passt = guest::interfaces(vmi).any(|interface| interface.passt_binding.is_some());
    let mut sum = if has_passt { PASST } else { 0 };
    for (name, plugin) in &settings.binding_plugins {
        let is_used = guest::interfaces(vmi)
            .filter_map(|interface| interface.binding.as_ref())
            .any(|binding| binding.name == *name);
        let overhead = plugin.compute_resource_overhead.as_ref();
        let memory = overhead.and_then(|overhead| overhead.requests.get("memory"));
        if let Some(memory) = memory.filter(|_| is_used) {
            let field = format!("network.binding[{name}].computeResourceOverhead");
            let amount = Amount::parse(memory).map_err(|err| PodError::invalid(field, &err))?;
            sum += amount.units();
        }
    }
    Ok(sum)
}

fn runs_in_pod(probe: &Probe) -> bool {
    probe.exec.is_some() || probe.guest_agent_ping.is_some()
}

fn when(applies: bool, mebibytes: u64) -> u64 {
    if applies { mebibytes * MIB } else { 0 }
}

fn count<T>(all: impl Iterator<Item = T>) -> u64 {
    u64::try_from(all.count()).unwrap_or(u64::MAX)
}
