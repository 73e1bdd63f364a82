//! Changes of a VMI's volumes: hot-plug and unplug by components.

use std::collections::BTreeSet;

use kubevirt_api::{
    VirtualMachineInstance,
    disks::Disk,
    vmi::{UtilityVolume, UtilityVolumeType},
    volumes::Volume,
};
use validation::Violation;

use super::input::{Update, is_by_user};
use crate::checks::{gate_is_off, hotplugged_disk_problems, repeated};

pub(super) fn utility_volumes(update: &Update<'_>) -> Vec<Violation> {
    let (old, new) = (
        &update.old.spec.utility_volumes,
        &update.new.spec.utility_volumes,
    );
    // What is there already does not block other changes once its gate is off.
    if is_by_user(update) || new.is_empty() || old == new {
        return Vec::new();
    }
    let gate = "UtilityVolumes";
    let mut found = Vec::new();
    // Backups need their own gate, and no second one.
    let is_backup = |volume: &UtilityVolume| volume.type_ == Some(UtilityVolumeType::Backup);
    let is_covered = update.config.has_gate("IncrementalBackup") && new.iter().all(is_backup);
    if !is_covered && !update.config.has_gate(gate) {
        found.push(Violation::invalid("spec.utilityVolumes", gate_is_off(gate)));
    }
    for i in repeated(new, |volume| &volume.name) {
        let detail = "another utility volume has this name; names must be unique";
        let field = format!("spec.utilityVolumes[{i}].name");
        found.push(Violation::duplicate(field, detail));
    }
    for (i, volume) in new.iter().enumerate() {
        found.extend(utility_volume(update, old, i, volume));
    }
    found
}

fn utility_volume(
    update: &Update<'_>,
    old: &[UtilityVolume],
    i: usize,
    volume: &UtilityVolume,
) -> Vec<Violation> {
    let path = format!("spec.utilityVolumes[{i}]");
    let mut found = Vec::new();
    for (field, value) in [("name", &volume.name), ("claimName", &volume.claim_name)] {
        if value.is_empty() {
            let detail = "empty; name the volume and its PVC";
            found.push(Violation::required(format!("{path}.{field}"), detail));
        }
    }
    let volumes = &update.new.spec.volumes;
    if volumes.iter().any(|other| other.name == volume.name) {
        let detail = "a volume of the guest has this name; use another one";
        found.push(Violation::duplicate(format!("{path}.name"), detail));
    }
    if is_permanent(update, &volume.name) {
        let detail = "this volume exists since boot; it cannot become a utility volume";
        found.push(Violation::invalid(format!("{path}.name"), detail));
    }
    let before = old.iter().find(|other| other.name == volume.name);
    if before.is_some_and(|before| before != volume) {
        let detail = "an attached utility volume is immutable; remove it first";
        found.push(Violation::invalid(path, detail));
    }
    found
}

pub(super) fn counts(update: &Update<'_>) -> Vec<Violation> {
    let spec = &update.new.spec;
    // Existing mismatches do not block unrelated changes.
    let is_same = spec.volumes == update.old.spec.volumes
        && spec.domain.devices.disks == update.old.spec.domain.devices.disks;
    if is_by_user(update) || is_same {
        return Vec::new();
    }
    let may_be_empty = update.config.has_gate("DeclarativeHotplugVolumes");
    let has_volume = |name: &str| spec.volumes.iter().any(|volume| volume.name == name);
    let disks = spec.domain.devices.disks.iter();
    let disks =
        disks.filter(|disk| !(disk.cdrom.is_some() && may_be_empty && !has_volume(&disk.name)));
    let users = disks.count() + spec.domain.devices.filesystems.len();
    let volumes = spec.volumes.iter();
    let volumes = volumes
        .filter(|volume| volume.memory_dump.is_none())
        .count();
    if users == volumes {
        return Vec::new();
    }
    let detail = format!(
        "{users} disks and filesystems for {volumes} volumes; each volume needs exactly one"
    );
    vec![Violation::invalid("spec.domain.devices.disks", detail)]
}

/// Whether a volume exists since boot: the status lists it without hot-plug information.
fn is_permanent(update: &Update<'_>, name: &str) -> bool {
    let status = update.old.status.as_ref();
    status.is_some_and(|status| {
        let mut volumes = status.volume_status.iter();
        volumes.any(|volume| volume.name == name && volume.hotplug_volume.is_none())
    })
}

fn is_migrated(update: &Update<'_>, name: &str) -> bool {
    // The write that gives a volume its new claim ends the list.
    let mut states = [&update.old.status, &update.new.status]
        .into_iter()
        .flatten();
    states.any(|status| {
        let mut volumes = status.migrated_volumes.iter();
        volumes.any(|volume| volume.volume_name == name)
    })
}

fn volume_of<'a>(vmi: &'a VirtualMachineInstance, name: &str) -> Option<&'a Volume> {
    vmi.spec.volumes.iter().find(|volume| volume.name == name)
}

fn disk_of<'a>(vmi: &'a VirtualMachineInstance, name: &str) -> Option<&'a Disk> {
    let disks = &vmi.spec.domain.devices.disks;
    disks.iter().find(|disk| disk.name == name)
}

pub(super) fn permanent_volumes(update: &Update<'_>) -> Vec<Violation> {
    if is_by_user(update) {
        return Vec::new();
    }
    let (old, new) = (update.old, update.new);
    let lists = old.spec.volumes.iter().chain(&new.spec.volumes);
    let names: BTreeSet<&str> = lists.map(|volume| &*volume.name).collect();
    let mut found = Vec::new();
    for name in names.into_iter().filter(|name| is_permanent(update, name)) {
        let detail = match (volume_of(old, name), volume_of(new, name)) {
            (Some(_), None) => "exists since boot; it cannot be removed",
            (None, Some(_)) => "exists since boot; it cannot be added again",
            (Some(before), Some(after)) if before != after && !is_migrated(update, name) => {
                "exists since boot; it cannot be changed"
            }
            _ if disk_of(old, name) != disk_of(new, name) => {
                "exists since boot; its disk cannot be changed"
            }
            _ => continue,
        };
        let detail = format!("volume {name:?} {detail}");
        found.push(Violation::invalid("spec.volumes", detail));
    }
    found
}

pub(super) fn plugged_volumes(update: &Update<'_>) -> Vec<Violation> {
    if is_by_user(update) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (i, volume) in update.new.spec.volumes.iter().enumerate() {
        let name = &*volume.name;
        let field = format!("spec.volumes[{i}]");
        if is_permanent(update, name) {
            continue;
        }
        match volume_of(update.old, name) {
            Some(before) => found.extend(still_plugged(update, &field, before, volume)),
            None => found.extend(newly_plugged(update, &field, volume)),
        }
    }
    found
}

fn still_plugged(
    update: &Update<'_>,
    field: &str,
    before: &Volume,
    after: &Volume,
) -> Option<Violation> {
    let disks = [update.old, update.new].map(|vmi| disk_of(vmi, &after.name));
    let detail = match disks {
        _ if before != after && !is_migrated(update, &after.name) => {
            "a hot-plugged volume is immutable; unplug it first"
        }
        [Some(_), None] => "its disk was removed; unplug the volume with it",
        [Some(before), Some(after)] if before != after => {
            "the disk of a hot-plugged volume is immutable; unplug it first"
        }
        _ => return None,
    };
    Some(Violation::invalid(field, detail))
}

fn newly_plugged(update: &Update<'_>, field: &str, volume: &Volume) -> Vec<Violation> {
    let mut found = Vec::new();
    let is_dump = volume.memory_dump.is_some();
    let is_claim = volume.persistent_volume_claim.is_some() || volume.data_volume.is_some();
    if !is_claim && !is_dump {
        let detail = "only persistentVolumeClaim and dataVolume can be hot-plugged";
        found.push(Violation::invalid(field, detail));
    }
    let disks = update.new.spec.domain.devices.disks.iter().enumerate();
    let mut disks = disks.filter(|(_, disk)| disk.name == volume.name);
    if let Some((i, disk)) = disks.next() {
        // Inserting a medium into an existing CD-ROM drive is not a hot-plug of a disk.
        let is_medium = disk.cdrom.is_some() && disk_of(update.old, &disk.name) == Some(disk);
        let problems = hotplugged_disk_problems(disk);
        let problems = problems.into_iter().filter(|_| !is_medium);
        found.extend(problems.map(|problem| {
            let path = format!("spec.domain.devices.disks[{i}]");
            let field = match problem.field {
                "" => path,
                at => format!("{path}.{at}"),
            };
            Violation::invalid(field, problem.detail)
        }));
    }
    found
}
