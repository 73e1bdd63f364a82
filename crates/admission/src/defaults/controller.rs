//! What the VM controller fills in when it makes an instance out of a template.

use std::collections::BTreeSet;

use kubevirt_api::{devices::Input, disks::Disk, vmi::VirtualMachineInstanceSpec, volumes::Volume};
use uuid::Uuid;

use super::network;
use crate::{ClusterConfig, violation::Violation};

/// Name space of the identities that are derived from names. Fixed for ever: guests whose
/// template has no identity keep theirs by it.
const FIRMWARE_NAMESPACE: Uuid = Uuid::from_u128(0x6a1a_24a1_4061_4607_8bf4_a396_3d0c_5895);

/// Completes the copy of a template's spec; `path` is where violations say it is.
pub fn complete(
    spec: &mut VirtualMachineInstanceSpec,
    vm_name: &str,
    config: &ClusterConfig,
    path: &str,
) -> Result<(), Vec<Violation>> {
    set_firmware_uuid(spec, vm_name);
    set_devices(spec, config, path)
}

/// The devices that a template need not name: disks, network, input.
pub(crate) fn set_devices(
    spec: &mut VirtualMachineInstanceSpec,
    config: &ClusterConfig,
    path: &str,
) -> Result<(), Vec<Violation>> {
    set_disks(spec);
    network::set_default(spec, config, path).map_err(|violation| vec![violation])?;
    set_input(spec);
    Ok(())
}

/// The identity of a guest whose template has none: always the same for the same name.
pub fn firmware_uuid(vm_name: &str) -> Uuid {
    Uuid::new_v5(&FIRMWARE_NAMESPACE, vm_name.as_bytes())
}

fn set_firmware_uuid(spec: &mut VirtualMachineInstanceSpec, vm_name: &str) {
    let uuid = &mut spec.domain.firmware.get_or_insert_default().uuid;
    if uuid.as_deref().unwrap_or_default().is_empty() {
        *uuid = Some(firmware_uuid(vm_name).to_string());
    }
}

/// Gives every volume that nothing shows a disk. Memory dumps are not for the guest.
pub(super) fn set_disks(spec: &mut VirtualMachineInstanceSpec) {
    let devices = &mut spec.domain.devices;
    // A set: manifests may hold very many of both.
    let disks = devices.disks.iter().map(|disk| &disk.name);
    let filesystems = devices.filesystems.iter().map(|one| &one.name);
    let mut shown: BTreeSet<String> = disks.chain(filesystems).cloned().collect();
    for volume in spec
        .volumes
        .iter()
        .filter(|volume| volume.memory_dump.is_none())
    {
        if shown.insert(volume.name.clone()) {
            devices.disks.push(disk_for(volume));
        }
    }
}

fn disk_for(volume: &Volume) -> Disk {
    Disk {
        name: volume.name.clone(),
        ..Disk::default()
    }
}

fn set_input(spec: &mut VirtualMachineInstanceSpec) {
    let devices = &mut spec.domain.devices;
    if devices.autoattach_input_device == Some(true) && devices.inputs.is_empty() {
        devices.inputs.push(Input {
            name: "default-0".to_owned(),
            ..Input::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_derived_from_the_name_alone() {
        assert_eq!(firmware_uuid("tiny"), firmware_uuid("tiny"));
        assert_ne!(firmware_uuid("tiny"), firmware_uuid("tiny2"));
        assert_eq!(firmware_uuid("tiny").get_version_num(), 5);
    }

    #[test]
    fn template_is_completed_and_what_is_there_stays() {
        let mut spec = VirtualMachineInstanceSpec {
            volumes: vec![
                Volume {
                    name: "a".to_owned(),
                    ..Volume::default()
                },
                Volume {
                    name: "b".to_owned(),
                    ..Volume::default()
                },
            ],
            ..VirtualMachineInstanceSpec::default()
        };
        spec.domain.devices.disks.push(Disk {
            name: "b".to_owned(),
            boot_order: Some(1),
            ..Disk::default()
        });
        spec.domain.devices.autoattach_input_device = Some(true);
        complete(&mut spec, "tiny", &ClusterConfig::default(), "spec").expect("completes");
        let names: Vec<_> = spec
            .domain
            .devices
            .disks
            .iter()
            .map(|disk| (&*disk.name, disk.boot_order))
            .collect();
        assert_eq!(names, [("b", Some(1)), ("a", None)]);
        assert_eq!(spec.networks.len(), 1);
        assert_eq!(spec.domain.devices.inputs[0].name, "default-0");
        let uuid = spec.domain.firmware.expect("firmware").uuid;
        assert_eq!(uuid, Some(firmware_uuid("tiny").to_string()));
    }
}
