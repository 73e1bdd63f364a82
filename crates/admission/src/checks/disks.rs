//! Disks.

use std::collections::BTreeSet;

use cluster_config::Permission;
use kubevirt_api::disks::{CustomBlockSize, Disk, DiskBus, DiskErrorPolicy};
use model::{Device, PciAddress, Storage, Target, VolumeSource};
use validation::{Cause, Violation};

use super::{
    input::{Input, repeated},
    names::dns_label_problem,
};

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
        if let Some(problem) = dns_label_problem(&disk.name) {
            found.push(input.invalid(&format!("{path}.name"), problem));
        }
    }
    found
}

pub(super) fn volumes(input: &Input<'_>) -> Vec<Violation> {
    // A CD-ROM drive can be empty if its medium is inserted later.
    let may_be_empty = input.config.has_gate("DeclarativeHotplugVolumes");
    let names = names_of(input, |_| true);
    paths(input)
        .filter(|(_, disk)| !(disk.cdrom.is_some() && may_be_empty))
        .filter(|(_, disk)| !names.contains(&*disk.name))
        .map(|(path, disk)| {
            let detail = format!(
                "no volume is named {:?}; add one to volumes, or give the disk the name of one",
                disk.name
            );
            input.invalid(&format!("{path}.name"), detail)
        })
        .collect()
}

/// Names of the volumes that satisfy a predicate. A set keeps the lookups fast for many disks.
fn names_of<'a>(
    input: &Input<'a>,
    predicate: impl Fn(VolumeSource<'_>) -> bool,
) -> BTreeSet<&'a str> {
    let volumes = input.spec.volumes.iter();
    volumes
        .filter(|volume| predicate(VolumeSource::of(volume)))
        .map(|volume| &*volume.name)
        .collect()
}

pub(super) fn targets(input: &Input<'_>) -> Vec<Violation> {
    paths(input)
        .filter(|(_, disk)| Device::all(disk).count() > 1)
        .map(|(path, _)| input.invalid(&path, "more than one of disk, lun and cdrom; choose one"))
        .collect()
}

pub(super) fn luns(input: &Input<'_>) -> Vec<Violation> {
    let others = names_of(input, |source| {
        !matches!(source.storage(), Storage::Claim(_))
    });
    paths(input)
        .filter(|(_, disk)| disk.lun.is_some() && others.contains(&*disk.name))
        .map(|(path, _)| {
            let detail = "only persistentVolumeClaim and dataVolume support lun; use disk";
            input.invalid(&format!("{path}.lun"), detail)
        })
        .collect()
}

pub(super) fn downward_metrics(input: &Input<'_>) -> Vec<Violation> {
    let metrics = names_of(input, |source| source == VolumeSource::DownwardMetrics);
    let mut found = Vec::new();
    for (path, disk) in paths(input) {
        if !metrics.contains(&*disk.name) {
            continue;
        }
        match with_bus(disk) {
            Some((Target::Disk, DiskBus::Virtio)) => {}
            Some((Target::Disk, _)) => {
                let detail = "downward metrics need bus virtio";
                found.push(input.invalid(&format!("{path}.disk.bus"), detail));
            }
            _ => {
                let detail = "downward metrics need a disk target; write disk: {bus: virtio}";
                found.push(input.required(&path, detail));
            }
        }
    }
    found
}

pub(super) fn buses(input: &Input<'_>) -> Vec<Violation> {
    paths(input)
        .filter_map(|(path, disk)| {
            let (target, bus) = with_bus(disk)?;
            let problem = bus_problem(disk, target, bus, input.architecture())?;
            let field = input.at(&format!("{path}.{}.bus", target.member()));
            Some(Violation::new(problem.cause, field, problem.detail))
        })
        .collect()
}

struct BusProblem {
    cause: Cause,
    detail: String,
}

fn bus_problem(
    disk: &Disk,
    target: Target,
    bus: &DiskBus,
    architecture: &str,
) -> Option<BusProblem> {
    let invalid = |detail: String| {
        Some(BusProblem {
            cause: Cause::Invalid,
            detail,
        })
    };
    let name = bus.as_str();
    if !bus.is_known() && !name.is_empty() {
        let choices = DiskBus::KNOWN.join(", ");
        return invalid(format!("{name:?} is unknown; use one of {choices}"));
    }
    if matches!(target, Target::CdRom { .. }) && *bus == DiskBus::Virtio {
        return invalid("a cdrom cannot be virtio; use sata, scsi or usb".to_owned());
    }
    let mut devices = Device::all(disk);
    let is_readonly = devices.any(|one| one.target == Target::Disk && one.is_read_only);
    if *bus == DiskBus::Sata && is_readonly {
        return invalid("a sata disk cannot be read-only; use bus virtio, or cdrom".to_owned());
    }
    let works_on_arm = name.is_empty() || matches!(bus, DiskBus::Virtio | DiskBus::Scsi);
    if architecture == "arm64" && !works_on_arm {
        return Some(BusProblem {
            cause: Cause::NotSupported,
            detail: format!("{name} does not work on arm64; use virtio or scsi"),
        });
    }
    None
}

pub(super) fn pci_addresses(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut used = BTreeSet::new();
    for (path, disk) in paths(input) {
        let Some(target) = &disk.disk else { continue };
        let Some(address) = &target.pci_address else {
            continue;
        };
        let field = format!("{path}.disk.pciAddress");
        if target.bus != Some(DiskBus::Virtio) {
            let detail = "only virtio disks support a PCI address; use bus virtio";
            found.push(input.invalid(&field, detail));
        }
        let detail = match PciAddress::parse(address) {
            None => pci_address_problem(address),
            Some(parsed) if used.insert(parsed) => continue,
            Some(parsed) => format!("{parsed} is the address of another disk; choose another"),
        };
        found.push(input.invalid(&field, detail));
    }
    found
}

pub(super) fn io_threads(input: &Input<'_>) -> Vec<Violation> {
    paths(input)
        .filter(|(_, disk)| disk.dedicated_io_thread == Some(true))
        .filter(|(_, disk)| with_bus(disk).is_some_and(|(_, bus)| *bus != DiskBus::Virtio))
        .map(|(path, _)| {
            let detail = "only virtio disks support I/O threads; use bus virtio";
            input.not_supported(&format!("{path}.dedicatedIOThread"), detail)
        })
        .collect()
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
    let mut used = BTreeSet::new();
    let mut found = Vec::new();
    for (list, i, order) in disks.chain(interfaces) {
        let Some(order) = order else { continue };
        let field = format!("domain.devices.{list}[{i}].bootOrder");
        if order == 0 {
            found.push(input.invalid(&field, "0 is not a valid boot order; count from 1"));
        } else if !used.insert(order) {
            let detail =
                format!("another disk or interface has boot order {order}; each must be unique");
            found.push(input.invalid(&field, detail));
        }
    }
    found
}

pub(super) fn serials(input: &Input<'_>) -> Vec<Violation> {
    paths(input)
        .filter(|(_, disk)| {
            disk.serial.as_ref().is_some_and(|serial| {
                serial.len() > MAX_SERIAL
                    || !serial
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b"_.+-".contains(&b))
            })
        })
        .map(|(path, _)| {
            let detail = format!("use at most {MAX_SERIAL} letters, digits and _ . + -");
            input.invalid(&format!("{path}.serial"), detail)
        })
        .collect()
}

pub(super) fn caches(input: &Input<'_>) -> Vec<Violation> {
    let unknown = paths(input).filter_map(|(path, disk)| {
        let cache = disk.cache.as_ref()?;
        (!cache.is_known() && !cache.as_str().is_empty()).then(|| (path, cache.as_str()))
    });
    unknown
        .map(|(path, value)| {
            let detail = format!("{value:?} is unknown; use none, writethrough or writeback");
            input.invalid(&format!("{path}.cache"), detail)
        })
        .collect()
}

pub(super) fn io(input: &Input<'_>) -> Vec<Violation> {
    let unknown = paths(input).filter_map(|(path, disk)| {
        let io = disk.io.as_ref()?;
        (!io.is_known() && !io.as_str().is_empty()).then(|| (path, io.as_str()))
    });
    unknown
        .map(|(path, value)| {
            let detail = format!("{value:?} is unknown; use native or threads");
            input.not_supported(&format!("{path}.io"), detail)
        })
        .collect()
}

pub(super) fn error_policies(input: &Input<'_>) -> Vec<Violation> {
    let unknown = paths(input).filter_map(|(path, disk)| {
        let policy = disk.error_policy.as_ref()?;
        (!policy.is_known()).then(|| (path, policy.as_str()))
    });
    unknown
        .map(|(path, value)| {
            let choices = DiskErrorPolicy::KNOWN.join(", ");
            let detail = format!("{value:?} is unknown; use one of {choices}");
            input.invalid(&format!("{path}.errorPolicy"), detail)
        })
        .collect()
}

pub(super) fn reservations(input: &Input<'_>) -> Vec<Violation> {
    if input.config.persistent_reservation == Permission::Allowed {
        return Vec::new();
    }
    paths(input)
        .filter(|(_, disk)| {
            let reserving = Target::Lun { is_reserving: true };
            Device::all(disk).any(|device| device.target == reserving)
        })
        .map(|(path, _)| {
            let detail = "needs the feature gate PersistentReservation, or \
                          persistentReservationConfiguration.enabled: true, in the KubeVirt object";
            input.invalid(&format!("{path}.lun.reservation"), detail)
        })
        .collect()
}

/// A problem of a disk.
pub(crate) struct DiskProblem {
    /// Path below the disk; empty for the disk itself.
    pub(crate) field: &'static str,
    pub(crate) detail: String,
}

/// Problems of a disk that is hot-plugged.
pub(crate) fn hotplugged_disk_problems(disk: &Disk) -> Vec<DiskProblem> {
    let problem = |field, detail: &str| DiskProblem {
        field,
        detail: detail.to_owned(),
    };
    let mut found = Vec::new();
    let target = with_bus(disk);
    match target {
        Some((Target::Disk, bus)) if !matches!(bus, DiskBus::Scsi | DiskBus::Virtio) => {
            let detail = "hot-plugged disks must be scsi or virtio";
            found.push(problem("disk.bus", detail));
        }
        Some((Target::Lun { .. }, bus)) if *bus != DiskBus::Scsi => {
            found.push(problem("lun.bus", "hot-plugged luns must be scsi"));
        }
        _ if disk.lun.is_none() && disk.disk.is_none() => {
            found.push(problem("", "only disk and lun can be hot-plugged"));
        }
        _ => {}
    }
    let is_virtio = target.is_some_and(|(_, bus)| *bus == DiskBus::Virtio);
    if disk.dedicated_io_thread == Some(true) && !is_virtio {
        let detail = "only virtio disks support I/O threads";
        found.push(problem("dedicatedIOThread", detail));
    }
    if disk.boot_order == Some(0) {
        let detail = "0 is not a valid boot order; count from 1";
        found.push(problem("bootOrder", detail));
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
            let detail = "custom and matchVolume are both set; choose one";
            found.push(input.invalid(&field, detail));
        }
        let bus = with_bus(disk).map(|(_, bus)| bus);
        if let Some(detail) = block_size_problem(custom, bus) {
            found.push(input.invalid(&format!("{field}.custom"), detail));
        }
    }
    found
}

fn block_size_problem(custom: &CustomBlockSize, bus: Option<&DiskBus>) -> Option<String> {
    let logical = custom.logical.unwrap_or(0);
    let physical = custom.physical.unwrap_or(0);
    let is_valid = |size: u64| BLOCK_SIZES.contains(&size) && size.is_power_of_two();
    if !is_valid(logical) || !is_valid(physical) {
        return Some(format!(
            "logical and physical must be powers of two from {} to {}",
            BLOCK_SIZES.start(),
            BLOCK_SIZES.end()
        ));
    }
    if logical > physical {
        return Some("logical must not be larger than physical".to_owned());
    }
    if bus == Some(&DiskBus::Sata) && logical != SATA_BLOCK_SIZE {
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

/// The device of a disk that has a bus.
fn with_bus(disk: &Disk) -> Option<(Target, &DiskBus)> {
    Device::all(disk).find_map(|device| Some((device.target, device.bus?)))
}

pub(super) fn pci_address_problem(address: &str) -> String {
    format!("{address:?} is not a PCI address; use the form 0000:81:01.0")
}
