//! Disks as the guest sees them.

use std::collections::BTreeSet;

use kubevirt_api::disks::{CustomBlockSize, Disk, DiskBus, DiskErrorPolicy, DriverCache};

use super::{Input, dns_label_fault, repeated};
use crate::violation::Violation;

const MAX_SERIAL: usize = 256;
const BLOCK_SIZES: std::ops::RangeInclusive<u64> = 512..=2_097_152;
const SATA_BLOCK_SIZE: u64 = 512;

pub(super) fn names(input: &Input<'_>) -> Vec<Violation> {
    let disks = &input.spec.domain.devices.disks;
    let mut found = Vec::new();
    for i in repeated(disks, |disk| &disk.name) {
        let detail = "another disk has this name; names must be unique";
        found.push(input.duplicate(&format!("domain.devices.disks[{i}].name"), detail));
    }
    for (path, disk) in paths(input) {
        if let Some(fault) = dns_label_fault(&disk.name) {
            found.push(input.invalid(&format!("{path}.name"), fault));
        } else if !input
            .spec
            .volumes
            .iter()
            .any(|volume| volume.name == disk.name)
        {
            let detail = format!(
                "no volume is named {:?}; add one to volumes, or give the disk the name of one",
                disk.name
            );
            found.push(input.invalid(&format!("{path}.name"), detail));
        }
    }
    found
}

pub(super) fn targets(input: &Input<'_>) -> Vec<Violation> {
    paths(input)
        .filter(|(_, disk)| {
            [
                disk.disk.is_some(),
                disk.lun.is_some(),
                disk.cdrom.is_some(),
            ]
            .iter()
            .filter(|given| **given)
            .count()
                > 1
        })
        .map(|(path, _)| input.invalid(&path, "more than one of disk, lun and cdrom; choose one"))
        .collect()
}

pub(super) fn buses(input: &Input<'_>) -> Vec<Violation> {
    paths(input)
        .flat_map(|(path, disk)| bus_faults(input, &path, disk))
        .collect()
}

fn bus_faults(input: &Input<'_>, path: &str, disk: &Disk) -> Vec<Violation> {
    let mut found = Vec::new();
    let Some((target, bus)) = bus_of(disk) else {
        return found;
    };
    let field = format!("{path}.{target}.bus");
    let bus_is = |wanted: &[DiskBus]| wanted.contains(bus);
    if !bus.is_known() {
        let choices = DiskBus::KNOWN.join(", ");
        let detail = format!("{:?} is unknown; use one of {choices}", bus.as_str());
        found.push(input.invalid(&field, detail));
    } else if target == "cdrom" && bus_is(&[DiskBus::Virtio]) {
        found.push(input.invalid(&field, "a cdrom cannot be virtio; use sata, scsi or usb"));
    } else if input.architecture() == "arm64" && !bus_is(&[DiskBus::Virtio, DiskBus::Scsi]) {
        let detail = format!(
            "{} does not work on arm64; use virtio or scsi",
            bus.as_str()
        );
        found.push(input.not_supported(&field, detail));
    }
    let target_disk = disk.disk.as_ref();
    let is_readonly = target_disk.is_some_and(|target| target.readonly == Some(true));
    if bus_is(&[DiskBus::Sata]) && is_readonly {
        let detail = "a sata disk cannot be read-only; use bus virtio, or cdrom";
        found.push(input.invalid(&field, detail));
    }
    if let Some(address) = target_disk.and_then(|target| target.pci_address.as_deref()) {
        let field = format!("{path}.disk.pciAddress");
        if !bus_is(&[DiskBus::Virtio]) {
            found.push(input.invalid(
                &field,
                "only virtio disks have a PCI address; use bus virtio",
            ));
        }
        if !is_pci_address(address) {
            found.push(input.invalid(&field, pci_fault(address)));
        }
    }
    if disk.dedicated_io_thread == Some(true) && !bus_is(&[DiskBus::Virtio]) {
        let detail = "only virtio disks have I/O threads; use bus virtio";
        found.push(input.not_supported(&format!("{path}.dedicatedIOThread"), detail));
    }
    found
}

pub(super) fn boot_order(input: &Input<'_>) -> Vec<Violation> {
    let devices = &input.spec.domain.devices;
    let disks = devices
        .disks
        .iter()
        .enumerate()
        .map(|(i, disk)| ("disks", i, disk.boot_order));
    let interfaces = devices
        .interfaces
        .iter()
        .enumerate()
        .map(|(i, interface)| ("interfaces", i, interface.boot_order));
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (list, i, order) in disks.chain(interfaces) {
        let Some(order) = order else { continue };
        let field = format!("domain.devices.{list}[{i}].bootOrder");
        if order == 0 {
            found.push(input.invalid(&field, "0 is no place in an order; count from 1"));
        } else if !seen.insert(order) {
            let detail = format!("another disk or interface has place {order}; each needs its own");
            found.push(input.invalid(&field, detail));
        }
    }
    found
}

pub(super) fn tuning(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, disk) in paths(input) {
        if let Some(serial) = &disk.serial {
            let fits = serial.len() <= MAX_SERIAL
                && serial
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"_.+-".contains(&b));
            if !fits {
                let detail = format!(
                    "use at most {MAX_SERIAL} characters out of letters, digits and _ . + -"
                );
                found.push(input.invalid(&format!("{path}.serial"), detail));
            }
        }
        if let Some(cache @ DriverCache::Other(word)) = &disk.cache
            && !word.is_empty()
        {
            let detail = format!(
                "{:?} is unknown; use none, writethrough or writeback",
                cache.as_str()
            );
            found.push(input.invalid(&format!("{path}.cache"), detail));
        }
        if let Some(io) = disk
            .io
            .as_ref()
            .filter(|io| !io.is_known() && !io.as_str().is_empty())
        {
            let detail = format!("{:?} is unknown; use native or threads", io.as_str());
            found.push(input.not_supported(&format!("{path}.io"), detail));
        }
        if let Some(policy) = disk
            .error_policy
            .as_ref()
            .filter(|policy| !policy.is_known())
        {
            let choices = DiskErrorPolicy::KNOWN.join(", ");
            let detail = format!("{:?} is unknown; use one of {choices}", policy.as_str());
            found.push(input.invalid(&format!("{path}.errorPolicy"), detail));
        }
    }
    found
}

pub(super) fn block_sizes(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, disk) in paths(input) {
        let Some(size) = &disk.block_size else {
            continue;
        };
        let Some(custom) = &size.custom else { continue };
        let field = format!("{path}.blockSize");
        let matches_volume = size
            .match_volume
            .as_ref()
            .is_some_and(|state| state.enabled != Some(false));
        if matches_volume {
            let detail = "custom together with matchVolume; choose one";
            found.push(input.invalid(&field, detail));
        }
        let is_sata = bus_of(disk).is_some_and(|(_, bus)| *bus == DiskBus::Sata);
        if let Some(detail) = block_size_fault(custom, is_sata) {
            found.push(input.invalid(&format!("{field}.custom"), detail));
        }
    }
    found
}

fn block_size_fault(custom: &CustomBlockSize, is_sata: bool) -> Option<String> {
    let logical = custom.logical.unwrap_or(0);
    let physical = custom.physical.unwrap_or(0);
    let fits = |size: u64| BLOCK_SIZES.contains(&size) && size.is_power_of_two();
    if !fits(logical) || !fits(physical) {
        return Some(format!(
            "logical and physical must be powers of two from {} to {}",
            BLOCK_SIZES.start(),
            BLOCK_SIZES.end()
        ));
    }
    if logical > physical {
        return Some("logical must not be larger than physical".to_owned());
    }
    if is_sata && logical != SATA_BLOCK_SIZE {
        return Some(format!("a sata disk needs logical: {SATA_BLOCK_SIZE}"));
    }
    custom
        .discard_granularity
        .filter(|granularity| !granularity.is_multiple_of(logical))
        .map(|_| "discardGranularity must be a multiple of logical".to_owned())
}

fn paths<'a>(input: &Input<'a>) -> impl Iterator<Item = (String, &'a Disk)> + use<'a> {
    let disks = &input.spec.domain.devices.disks;
    disks
        .iter()
        .enumerate()
        .map(|(i, disk)| (format!("domain.devices.disks[{i}]"), disk))
}

/// The kind of target and its bus.
fn bus_of(disk: &Disk) -> Option<(&'static str, &DiskBus)> {
    let disk_bus = disk.disk.as_ref().and_then(|target| target.bus.as_ref());
    let lun_bus = disk.lun.as_ref().and_then(|target| target.bus.as_ref());
    let cdrom_bus = disk.cdrom.as_ref().and_then(|target| target.bus.as_ref());
    disk_bus
        .map(|bus| ("disk", bus))
        .or_else(|| lun_bus.map(|bus| ("lun", bus)))
        .or_else(|| cdrom_bus.map(|bus| ("cdrom", bus)))
}

/// `0000:81:01.0`
pub(super) fn is_pci_address(address: &str) -> bool {
    let parts: Vec<&str> = address.split([':', '.']).collect();
    let separators: Vec<char> = address.chars().filter(|c| [':', '.'].contains(c)).collect();
    let is_hex = |part: &str, digits: usize| {
        part.len() == digits && part.bytes().all(|b| b.is_ascii_hexdigit())
    };
    separators == [':', ':', '.']
        && match parts.as_slice() {
            [domain, bus, slot, function] => {
                is_hex(domain, 4) && is_hex(bus, 2) && is_hex(slot, 2) && is_hex(function, 1)
            }
            _ => false,
        }
}

pub(super) fn pci_fault(address: &str) -> String {
    format!("{address:?} is no PCI address; write one such as 0000:81:01.0")
}
