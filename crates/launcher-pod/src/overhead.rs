//! Memory that a guest costs besides its own.

use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::quantity::Amount;

use crate::resources::{user_amount, vcpus};
use crate::{Acceleration, PodError, Settings};

const MIB: u64 = 1 << 20;

/// One row of the table: what it is for, and how many bytes this VMI needs of it.
struct Row(
    #[expect(dead_code, reason = "names the row for the reader")] &'static str,
    fn(&VirtualMachineInstance, &Settings) -> u64,
);

/// The whole table. PID 1, launcher, libvirtd and QEMU itself were measured at about 60 MiB
/// with one guest on the node, when nothing is shared; the base leaves as much again for peaks
/// such as start and screen capture.
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
];

/// Bytes added to the memory request of the pod of a VMI.
pub fn memory_overhead(vmi: &VirtualMachineInstance, settings: &Settings) -> Result<u64, PodError> {
    let table: u64 = TABLE.iter().map(|Row(_, bytes)| bytes(vmi, settings)).sum();
    // Page tables, for memory that was asked for outright.
    let page_tables = user_amount(vmi, "requests", "memory")?.map_or(0, |m| m.units() / 512);
    Ok(table + page_tables + added(vmi)?)
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
