//! Defaults that the VM controller fills into a VMI that it creates from a template.

use std::collections::BTreeSet;

use cluster_config::ClusterConfig;
use kubevirt_api::{devices::Input, disks::Disk, vmi::VirtualMachineInstanceSpec, volumes::Volume};
use uuid::Uuid;
use validation::Violation;

use crate::network;

/// Namespace of the UUIDs that are derived from VM names. Never change it: guests without a UUID in
/// the template keep their identity by it.
const FIRMWARE_NAMESPACE: Uuid = Uuid::from_u128(0x6a1a_24a1_4061_4607_8bf4_a396_3d0c_5895);

/// Adds the default devices: disks, network, input.
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

/// The firmware UUID of a guest whose template has none, derived from the VM's name.
pub fn firmware_uuid(vm_name: &str) -> Uuid {
    Uuid::new_v5(&FIRMWARE_NAMESPACE, vm_name.as_bytes())
}

/// Adds a disk for every volume without disk or filesystem, except memory dumps.
pub(crate) fn set_disks(spec: &mut VirtualMachineInstanceSpec) {
    let devices = &mut spec.domain.devices;
    // A set keeps this linear for manifests with very many volumes.
    let disks = devices.disks.iter().map(|disk| &disk.name);
    let filesystems = devices.filesystems.iter().map(|one| &one.name);
    let mut used: BTreeSet<String> = disks.chain(filesystems).cloned().collect();
    for volume in spec
        .volumes
        .iter()
        .filter(|volume| volume.memory_dump.is_none())
    {
        if used.insert(volume.name.clone()) {
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

pub(crate) fn set_input(spec: &mut VirtualMachineInstanceSpec) {
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
    fn firmware_uuid_depends_on_the_name_only() {
        assert_eq!(firmware_uuid("tiny"), firmware_uuid("tiny"));
        assert_ne!(firmware_uuid("tiny"), firmware_uuid("tiny2"));
        assert_eq!(firmware_uuid("tiny").get_version_num(), 5);
    }

    #[test]
    fn devices_are_added_and_existing_ones_are_kept() {
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
        set_devices(&mut spec, &ClusterConfig::default(), "spec").expect("completes");
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
    }
}
