//! The disks that a guest gets while it runs: the guest at its start without them, and the device of
//! each. Pure.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use domain_xml::{Facts, Input, VolumeFacts};
use k8s_openapi::api::core::v1::Pod;
use kubevirt_api::VirtualMachineInstance;
use launcher_channel::{HotDisk, HotDiskKind};
use model::{Guest, Supported, Target, paths};

use super::PrepareError;
use crate::volumes::{Claims, hot_step};

/// Whether volumes can be brought into the pod.
pub(crate) fn takes_volumes(pod: &Pod) -> bool {
    let spec = pod.spec.iter();
    let mut volumes = spec.flat_map(|spec| spec.volumes.iter().flatten());
    volumes.any(|volume| volume.name == paths::HOTPLUG_VOLUME)
}

/// The VMI as its guest is started: without the volumes that another pod brings, and their disks. Drives
/// for media stay, and are empty.
pub(crate) fn at_start<'a>(
    vmi: &'a VirtualMachineInstance,
    pod: &Pod,
) -> Cow<'a, VirtualMachineInstance> {
    let guest = Guest::of(vmi);
    let volumes = guest.volumes.iter();
    let plugged: BTreeSet<&str> = volumes
        .filter(|volume| guest.is_hotplugged(volume))
        .map(|volume| volume.name)
        .collect();
    if plugged.is_empty() || !takes_volumes(pod) {
        return Cow::Borrowed(vmi);
    }
    let mut rest = vmi.clone();
    let is_plugged = |name: &str| plugged.contains(name);
    rest.spec.volumes.retain(|volume| !is_plugged(&volume.name));
    let disks = &mut rest.spec.domain.devices.disks;
    disks.retain(|disk| !is_plugged(&disk.name) || disk.cdrom.is_some());
    Cow::Owned(rest)
}

/// The hot-plugged disks that the guest is to have: of the volumes in `found`, and its empty drives.
pub(crate) fn hot_disks(
    vmi: &VirtualMachineInstance,
    pod: &Pod,
    facts: &Facts,
    found: &BTreeMap<String, VolumeFacts>,
) -> Result<Vec<HotDisk>, PrepareError> {
    let mut whole = at_start(vmi, pod).into_owned();
    let volumes = vmi.spec.volumes.iter();
    whole.spec.volumes.extend(
        volumes
            .filter(|volume| found.contains_key(&volume.name))
            .cloned(),
    );
    // After those of the start, which keep their names.
    let disks = vmi.spec.domain.devices.disks.iter();
    whole.spec.domain.devices.disks.extend(
        disks
            .filter(|disk| found.contains_key(&disk.name) && disk.cdrom.is_none())
            .cloned(),
    );
    let guest = Supported::of(&whole)?;
    let mut facts = facts.clone();
    facts.hotplugged = found.keys().cloned().collect();
    facts
        .volumes
        .extend(found.iter().map(|(name, facts)| (name.clone(), *facts)));
    let input = Input {
        guest: &guest,
        facts: &facts,
    };
    let claims = Claims::hotplugged(vmi);
    let is_concerned = |disk: &&model::Disk<'_>| match disk.target {
        Target::CdRom { .. } => {
            found.contains_key(disk.name()) || guest.volume(disk.name()).is_none()
        }
        Target::Disk | Target::Lun { .. } => found.contains_key(disk.name()),
    };
    let disks = guest.disks.iter().filter(is_concerned);
    disks
        .map(|disk| {
            let rendered = domain_xml::hot_disk(&input, disk.name())?;
            let volume = guest.volume(disk.name());
            let prepare = volume.and_then(|volume| {
                let claim = volume.source.claim()?;
                Some(hot_step(volume, claim, &claims))
            });
            Ok(HotDisk {
                volume: disk.name().to_owned(),
                xml: rendered.xml,
                source: rendered.source,
                kind: match disk.target {
                    Target::CdRom { .. } => HotDiskKind::Medium,
                    Target::Disk | Target::Lun { .. } => HotDiskKind::Disk,
                },
                prepare,
            })
        })
        .collect()
}
