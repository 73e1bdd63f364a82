//! Memory that a guest needs besides its own.

use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::quantity::Amount;
use kubevirt_api::vmi::Probe;
use model::{Architecture, Binding, Guest, ResourceList, VolumeSource};

use crate::{Acceleration, PodError, Settings, guest, networks};

const MIB: u64 = 1 << 20;

/// A consumer of memory, and the bytes that it needs for this guest.
struct Row(
    #[expect(dead_code, reason = "names the row for the reader")] &'static str,
    fn(&Guest<'_>, &Settings) -> u64,
);

/// PID 1, launcher, libvirtd and QEMU itself were measured at about 60 MiB with one guest on the
/// node, when nothing is shared; the base leaves almost as much again for peaks such as start and
/// screen capture. Other programs (firmware, TPM, file server, devices) count with their usual
/// sizes.
const TABLE: &[Row] = &[
    Row("PID 1, launcher, libvirtd, QEMU", |_, _| 110 * MIB),
    Row("per virtual CPU", |guest, _| {
        guest.topology.vcpus().saturating_mul(8 * MIB)
    }),
    Row("I/O thread", |_, _| 8 * MIB),
    Row("screen", |guest, _| {
        let attached = guest.vmi.spec.domain.devices.autoattach_graphics_device != Some(false);
        if attached { 32 * MIB } else { 0 }
    }),
    Row(
        "translated code of an emulated guest",
        |_, settings| match settings.acceleration {
            Acceleration::Kvm => 0,
            Acceleration::Emulation => 48 * MIB,
        },
    ),
    Row("firmware of ARM machines", |guest, _| {
        when(guest.architecture == Architecture::Arm64, 128)
    }),
    Row("mappings of passed-through devices", |guest, _| {
        when(guest.has_passthrough(), 1024)
    }),
    Row("disk with metrics of the host", |guest, _| {
        let mut sources = guest.volumes.iter().map(|volume| volume.source);
        when(
            sources.any(|source| source == VolumeSource::DownwardMetrics),
            1,
        )
    }),
    Row("probes that run in the pod", |guest, _| {
        let spec = &guest.vmi.spec;
        let probes = [&spec.readiness_probe, &spec.liveness_probe];
        4 * MIB * count(probes.into_iter().flatten().filter(|p| runs_in_pod(p)))
    }),
    Row("encrypted memory", |guest, _| {
        let security = guest.vmi.spec.domain.launch_security.as_ref();
        when(
            security.is_some_and(|s| s.sev.is_some() || s.snp.is_some()),
            256,
        )
    }),
    Row("TPM", |guest, _| when(guest.tpm().is_some(), 53)),
    Row("file server per shared filesystem", |guest, _| {
        80 * MIB * count(guest.vmi.spec.domain.devices.filesystems.iter())
    }),
];

/// Where the request is also the limit, exceeding it once kills the guest.
const MARGIN_BELOW_LIMIT: u64 = 100 * MIB;
/// One process, whatever the number of interfaces.
const PASST: u64 = 250 * MIB;

/// Bytes added to the memory request of the pod of a VMI.
pub fn memory_overhead(vmi: &VirtualMachineInstance, settings: &Settings) -> Result<u64, PodError> {
    of(&Guest::of(vmi), settings)
}

pub(crate) fn of(guest: &Guest<'_>, settings: &Settings) -> Result<u64, PodError> {
    let rows = TABLE.iter();
    let mut sum: u64 = rows.map(|Row(_, bytes)| bytes(guest, settings)).sum();
    // Page tables, for memory that the user requests explicitly.
    let request = guest.resource(ResourceList::Requests, "memory")?;
    sum += request.map_or(0, |request| request.units() / 512);
    if guest.has_dedicated_cpus() || guest::is_guaranteed(guest)? {
        sum += MARGIN_BELOW_LIMIT;
    }
    let added = added_by_user(guest.vmi)?;
    let own = settings.overhead_ratio.of(sum.saturating_add(added));
    Ok(own.saturating_add(of_bindings(guest, settings)?))
}

/// Overhead that the user adds in the VMI.
fn added_by_user(vmi: &VirtualMachineInstance) -> Result<u64, PodError> {
    let memory = vmi.spec.domain.memory.as_ref();
    let reserved = memory.and_then(|memory| memory.reserved_overhead.as_ref());
    let Some(quantity) = reserved.and_then(|reserved| reserved.added_overhead.as_ref()) else {
        return Ok(0);
    };
    Amount::parse(quantity).map(Amount::units).map_err(|error| {
        PodError::invalid("spec.domain.memory.reservedOverhead.addedOverhead", &error)
    })
}

/// Overhead of network bindings. The registration of a plugin has its own; each counts once.
fn of_bindings(guest: &Guest<'_>, settings: &Settings) -> Result<u64, PodError> {
    let bindings = guest
        .plugged_interfaces()
        .map(|interface| interface.binding);
    let has_passt = bindings.clone().any(|binding| binding == Binding::Passt);
    let mut sum = if has_passt { PASST } else { 0 };
    for (name, plugin) in &settings.binding_plugins {
        let is_used = bindings
            .clone()
            .any(|binding| matches!(binding, Binding::Plugin(used) if used.name == *name));
        let overhead = plugin.compute_resource_overhead.as_ref();
        let memory = overhead.and_then(|overhead| overhead.requests.get("memory"));
        if let Some(memory) = memory.filter(|_| is_used) {
            let member = "computeResourceOverhead.requests.memory";
            let field = networks::registration_field(name, member);
            let amount = Amount::parse(memory).map_err(|error| PodError::invalid(field, &error))?;
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
