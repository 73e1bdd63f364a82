//! Volumes: each has one source and is used by a disk or filesystem.

use std::collections::BTreeSet;

use kubevirt_api::{
    quantity::Amount,
    volumes::{HostDiskType, Volume},
};
use model::{Referenced, Storage, VolumeSource};
use validation::Violation;

use super::{
    firmware::{is_clean_path, not_clean},
    input::{Input, Occasion, Origin, repeated},
    names::dns_label_problem,
};

pub(super) fn names(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for i in repeated(&input.spec.volumes, |volume| &volume.name) {
        let detail = "another volume has this name; names must be unique";
        found.push(input.duplicate(&format!("volumes[{i}].name"), detail));
    }
    for (path, volume) in paths(input) {
        if let Some(problem) = dns_label_problem(&volume.name) {
            found.push(input.invalid(&format!("{path}.name"), problem));
        }
    }
    found
}

pub(super) fn sources(input: &Input<'_>) -> Vec<Violation> {
    paths(input)
        .filter_map(|(path, volume)| {
            let given: Vec<_> = VolumeSource::all(volume)
                .map(|source| source.member())
                .collect();
            match given.as_slice() {
                [_] => None,
                [] => {
                    let detail = "no source; give one, such as containerDisk or emptyDisk";
                    Some(input.invalid(&path, detail))
                }
                several => {
                    let detail = format!(
                        "{} are all set; a volume has one source",
                        several.join(", ")
                    );
                    Some(input.invalid(&path, detail))
                }
            }
        })
        .collect()
}

/// Checked only for VMIs: defaults add a missing disk to a template.
pub(super) fn are_used(input: &Input<'_>) -> Vec<Violation> {
    if input.origin != Origin::Vmi {
        return Vec::new();
    }
    let devices = &input.spec.domain.devices;
    let disks = devices.disks.iter().map(|disk| &disk.name);
    let filesystems = devices.filesystems.iter().map(|one| &one.name);
    let used: BTreeSet<&String> = disks.chain(filesystems).collect();
    paths(input)
        .filter(|(_, volume)| volume.memory_dump.is_none() && !used.contains(&volume.name))
        .map(|(path, volume)| {
            let detail = format!(
                "no disk is named {:?}; add one to domain.devices.disks",
                volume.name
            );
            input.invalid(&format!("{path}.name"), detail)
        })
        .collect()
}

pub(super) fn data_volumes(input: &Input<'_>) -> Vec<Violation> {
    unnamed(input)
        .filter(|(object, _)| *object == Referenced::DataVolume)
        .map(|(_, field)| input.required(&field, "empty; name the DataVolume"))
        .collect()
}

pub(super) fn host_disks(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, volume) in paths(input) {
        let Some(disk) = &volume.host_disk else {
            continue;
        };
        let path = format!("{path}.hostDisk");
        found.extend(input.needs_gate(&path, "HostDisk"));
        if disk.path.is_empty() {
            let detail = "empty; name the file of the disk on the node";
            let field = input.at(&format!("{path}.path"));
            found.push(Violation::not_found(field, detail));
        } else if let Some(detail) = input.config.host_disks.refusal(&disk.path) {
            found.push(input.invalid(&format!("{path}.path"), detail));
        }
        if !disk.type_.is_known() {
            let choices = HostDiskType::KNOWN.join(" or ");
            let detail = format!("{:?} is unknown; use {choices}", disk.type_.as_str());
            found.push(input.invalid(&format!("{path}.type"), detail));
        }
        if disk.type_ == HostDiskType::Disk && disk.capacity.is_some() {
            let detail = "an existing disk has a fixed size; leave it out, or use DiskOrCreate";
            found.push(input.invalid(&format!("{path}.capacity"), detail));
        }
    }
    found
}

pub(super) fn references(input: &Input<'_>) -> Vec<Violation> {
    let detail = "empty; name the object that the volume contains";
    unnamed(input)
        .filter(|(object, _)| match object {
            Referenced::ConfigMap | Referenced::Secret | Referenced::ServiceAccount => true,
            // `data_volumes` reports the first; KubeVirt accepts the second.
            Referenced::DataVolume | Referenced::Claim => false,
        })
        .map(|(_, field)| input.invalid(&field, detail))
        .collect()
}

/// The objects that volumes should name and do not, each with the field of the name.
fn unnamed<'a>(input: &Input<'a>) -> impl Iterator<Item = (Referenced, String)> + use<'a> {
    paths(input).flat_map(|(path, volume)| {
        let sources = VolumeSource::all(volume);
        sources.flat_map(move |source| {
            let path = format!("{path}.{}", source.member());
            let references = source.references().into_iter();
            references
                .filter(|reference| reference.name.is_empty())
                .map(move |reference| (reference.object, format!("{path}.{}", reference.field)))
        })
    })
}

pub(super) fn downward_metrics(input: &Input<'_>) -> Vec<Violation> {
    paths(input)
        .filter(|(_, volume)| volume.downward_metrics.is_some())
        .filter_map(|(path, _)| {
            input.needs_gate(&format!("{path}.downwardMetrics"), "DownwardMetrics")
        })
        .collect()
}

pub(super) fn singles(input: &Input<'_>) -> Vec<Violation> {
    let sources = || input.spec.volumes.iter().map(VolumeSource::of);
    ["serviceAccount", "downwardMetrics", "memoryDump"]
        .into_iter()
        .filter(|kind| sources().filter(|source| source.member() == *kind).count() > 1)
        .map(|kind| {
            let detail = format!("more than one {kind} volume; keep one");
            input.invalid("volumes", detail)
        })
        .collect()
}

/// System directories in a guest's pod.
const SYSTEM_DIRECTORIES: [&str; 2] = ["/var/run/kubevirt", "/var/run/libvirt"];

/// Checked only for VMIs, after their defaults.
pub(super) fn container_paths(input: &Input<'_>) -> Vec<Violation> {
    if input.origin != Origin::Vmi {
        return Vec::new();
    }
    let devices = &input.spec.domain.devices;
    let mut found = Vec::new();
    for (path, volume) in paths(input) {
        let Some(source) = &volume.container_path else {
            continue;
        };
        if devices.disks.iter().any(|disk| disk.name == volume.name) {
            let detail = "a directory cannot be a disk; use domain.devices.filesystems instead";
            found.push(input.invalid(&path, detail));
        } else if !devices
            .filesystems
            .iter()
            .any(|one| one.name == volume.name)
        {
            let detail = "unused; add a filesystem of this name to domain.devices.filesystems";
            found.push(input.invalid(&path, detail));
        }
        let is_below = |directory: &str| {
            let rest = source.path.strip_prefix(directory);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if SYSTEM_DIRECTORIES.into_iter().any(is_below) {
            let detail = format!("{:?} is a system directory; use another", source.path);
            found.push(input.invalid(&format!("{path}.containerPath.path"), detail));
        }
    }
    found
}

/// PVCs that are used as filesystems.
pub(super) fn virtiofs(input: &Input<'_>) -> Vec<Violation> {
    let gate = "EnableVirtioFsStorageVolumes";
    let filesystems = input.spec.domain.devices.filesystems.iter().enumerate();
    filesystems
        .filter(|(_, filesystem)| {
            let volumes = &mut input.spec.volumes.iter();
            volumes.any(|volume| {
                volume.name == filesystem.name
                    && matches!(VolumeSource::of(volume).storage(), Storage::Claim(_))
            })
        })
        .filter_map(|(i, _)| input.needs_gate(&format!("domain.devices.filesystems[{i}]"), gate))
        .collect()
}

pub(super) fn container_disks(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, volume) in paths(input) {
        let Some(disk) = &volume.container_disk else {
            continue;
        };
        if disk.image.is_empty() {
            let detail = "empty; name the image that holds the disk";
            found.push(input.required(&format!("{path}.containerDisk.image"), detail));
        }
        if let Some(at) = disk
            .path
            .as_deref()
            .filter(|at| !at.is_empty() && !is_clean_path(at))
        {
            found.push(input.invalid(&format!("{path}.containerDisk.path"), not_clean(at)));
        }
    }
    found
}

pub(super) fn empty_disks(input: &Input<'_>) -> Vec<Violation> {
    paths(input)
        .filter_map(|(path, volume)| {
            let capacity = &volume.empty_disk.as_ref()?.capacity;
            let detail = match Amount::parse(capacity) {
                Ok(amount) if amount > Amount::ZERO => return None,
                Ok(_) => "a disk needs a positive size, such as 2Gi".to_owned(),
                Err(error) => error.to_string(),
            };
            Some(input.invalid(&format!("{path}.emptyDisk.capacity"), detail))
        })
        .collect()
}

pub(super) fn utility_volumes(input: &Input<'_>) -> Vec<Violation> {
    if input.spec.utility_volumes.is_empty() || input.occasion == Occasion::Change {
        return Vec::new();
    }
    vec![input.invalid(
        "utilityVolumes",
        "reserved for the system; leave the list empty",
    )]
}

pub(super) fn paths<'a>(input: &Input<'a>) -> impl Iterator<Item = (String, &'a Volume)> + use<'a> {
    input
        .spec
        .volumes
        .iter()
        .enumerate()
        .map(|(i, volume)| (format!("volumes[{i}]"), volume))
}
