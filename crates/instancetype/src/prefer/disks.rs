//! Preferred properties of disks, CD-ROMs and LUNs.

use kubevirt_api::{
    disks::{Disk, DiskBus, DriverCache, DriverIo},
    preference::DevicePreferences,
};

use crate::target::{Preference, Target, fill};

pub(super) fn set_disks(target: &mut Target<'_>, preference: &Preference) {
    let Some(wanted) = &preference.devices else {
        return;
    };
    for disk in &mut target.spec.domain.devices.disks {
        if disk.lun.is_none() && disk.cdrom.is_none() {
            set_disk(disk, wanted);
        }
    }
}

fn set_disk(disk: &mut Disk, wanted: &DevicePreferences) {
    // A disk without target is of type disk.
    let target = disk.disk.get_or_insert_default();
    fill_bus(&mut target.bus, wanted.preferred_disk_bus.as_ref());
    let is_virtio = target.bus == Some(DiskBus::Virtio);
    fill(
        &mut disk.block_size,
        wanted.preferred_disk_block_size.as_ref(),
    );
    let has_cache = disk
        .cache
        .as_ref()
        .is_some_and(|own| !own.as_str().is_empty());
    let cache: Option<&DriverCache> = wanted.preferred_disk_cache.as_ref();
    if let Some(cache) = cache.filter(|_| !has_cache) {
        disk.cache = Some(cache.clone());
    }
    let has_io = disk.io.as_ref().is_some_and(|own| !own.as_str().is_empty());
    let io: Option<&DriverIo> = wanted.preferred_disk_io.as_ref();
    if let Some(io) = io.filter(|_| !has_io) {
        disk.io = Some(io.clone());
    }
    // Other buses do not support dedicated I/O threads.
    let thread = wanted.preferred_disk_dedicated_io_thread.as_ref();
    fill(&mut disk.dedicated_io_thread, thread.filter(|_| is_virtio));
}

pub(super) fn set_drives(target: &mut Target<'_>, preference: &Preference) {
    let Some(wanted) = &preference.devices else {
        return;
    };
    for disk in &mut target.spec.domain.devices.disks {
        if let Some(cdrom) = &mut disk.cdrom {
            fill_bus(&mut cdrom.bus, wanted.preferred_cdrom_bus.as_ref());
        }
        if let Some(lun) = &mut disk.lun {
            fill_bus(&mut lun.bus, wanted.preferred_lun_bus.as_ref());
        }
    }
}

fn fill_bus(bus: &mut Option<DiskBus>, preferred: Option<&DiskBus>) {
    let is_unset = bus.as_ref().is_none_or(|bus| bus.as_str().is_empty());
    if let Some(preferred) = preferred.filter(|_| is_unset) {
        *bus = Some(preferred.clone());
    }
}
