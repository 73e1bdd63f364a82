//! The guest as a whole.

use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::firmware::KernelBootContainer;

use crate::{
    Architecture, Bootloader, CpuModel, Disk, Interface, LinkState, MAX_QUEUES, Topology, Volume,
};

/// Longest host name.
const MAX_HOSTNAME: usize = 63;

/// A VMI, parsed. What only one crate reads stays in [`Guest::vmi`].
#[derive(Debug, Clone)]
pub struct Guest<'a> {
    pub vmi: &'a VirtualMachineInstance,
    pub volumes: Vec<Volume<'a>>,
    pub disks: Vec<Disk<'a>>,
    pub interfaces: Vec<Interface<'a>>,
    pub architecture: Architecture<'a>,
    pub topology: Topology,
    pub cpu_model: CpuModel<'a>,
    pub bootloader: Bootloader,
}

impl<'a> Guest<'a> {
    pub fn of(vmi: &'a VirtualMachineInstance) -> Self {
        let spec = &vmi.spec;
        let devices = &spec.domain.devices;
        let volumes = spec.volumes.iter().enumerate();
        let disks = devices.disks.iter().enumerate();
        let interfaces = devices.interfaces.iter().enumerate();
        let cpu = spec.domain.cpu.as_ref();
        Self {
            vmi,
            volumes: volumes
                .map(|(index, volume)| Volume::of(index, volume))
                .collect(),
            disks: disks.map(|(index, disk)| Disk::of(index, disk)).collect(),
            interfaces: interfaces
                .map(|(index, spec)| Interface::of(index, spec, &vmi.spec.networks))
                .collect(),
            architecture: Architecture::of(spec.architecture.as_deref()),
            topology: Topology::of(cpu),
            cpu_model: CpuModel::of(cpu),
            bootloader: Bootloader::of(spec.domain.firmware.as_ref()),
        }
    }

    pub fn name(&self) -> &'a str {
        self.vmi.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn namespace(&self) -> &'a str {
        self.vmi.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The name under which libvirt knows the guest.
    pub fn domain_name(&self) -> String {
        format!("{}_{}", self.namespace(), self.name())
    }

    /// Host name of guest and pod: the first label of the given one, or of the VMI's name.
    pub fn hostname(&self) -> String {
        let given = self.vmi.spec.hostname.as_deref();
        let name = given
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| self.name());
        let first = name.split('.').next().unwrap_or_default();
        let cut: String = first.chars().take(MAX_HOSTNAME).collect();
        cut.trim_end_matches('-').to_owned()
    }

    pub fn volume(&self, name: &str) -> Option<&Volume<'a>> {
        self.volumes.iter().find(|volume| volume.name == name)
    }

    /// Interfaces that are plugged in.
    pub fn plugged_interfaces(&self) -> impl Iterator<Item = &Interface<'a>> + Clone {
        let interfaces = self.interfaces.iter();
        interfaces.filter(|interface| interface.link != LinkState::Absent)
    }

    /// Whether the volume is shared as a filesystem and not shown as a disk.
    pub fn is_filesystem(&self, volume: &str) -> bool {
        let filesystems = &self.vmi.spec.domain.devices.filesystems;
        filesystems
            .iter()
            .any(|filesystem| filesystem.name == volume)
    }

    /// Number of queues of a multi-queue interface: only virtio has them.
    pub fn queues(&self, interface: &Interface<'_>) -> Option<u32> {
        let devices = &self.vmi.spec.domain.devices;
        let is_multiqueue = devices.network_interface_multiqueue == Some(true);
        let vcpus = u32::try_from(self.topology.vcpus()).unwrap_or(MAX_QUEUES);
        (is_multiqueue && interface.emulated_model().is_none()).then(|| vcpus.min(MAX_QUEUES))
    }

    /// The image that the guest's kernel comes from.
    pub fn kernel_boot(&self) -> Option<&'a KernelBootContainer> {
        let firmware = self.vmi.spec.domain.firmware.as_ref()?;
        firmware.kernel_boot.as_ref()?.container.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn vmi(json: Value) -> VirtualMachineInstance {
        serde_json::from_value(json).expect("a VMI")
    }

    #[test]
    fn hostname_is_the_first_label_and_fits() {
        let long = format!("{}-{}", "a".repeat(62), "b".repeat(10));
        for (given, name, expected) in [
            (None, "web.example.org", "web"),
            (Some(""), "web", "web"),
            (Some("shop.example.org"), "web", "shop"),
            (None, long.as_str(), &"a".repeat(62)),
        ] {
            let vmi = vmi(json!({"metadata": {"name": name}, "spec": {"hostname": given}}));
            assert_eq!(Guest::of(&vmi).hostname(), *expected);
        }
    }

    #[test]
    fn queues_follow_the_cpus_of_virtio_interfaces() {
        let cases = [
            (None, true, 3, Some(3)),
            (Some("virtio"), true, 3, Some(3)),
            (Some("e1000e"), true, 3, None),
            (None, false, 3, None),
            (None, true, 400, Some(256)),
        ];
        for (model, multiqueue, sockets, expected) in cases {
            let vmi = vmi(json!({"spec": {"domain": {
                "cpu": {"sockets": sockets},
                "devices": {
                    "networkInterfaceMultiqueue": multiqueue,
                    "interfaces": [{"name": "n", "model": model, "masquerade": {}}],
                },
            }}}));
            let guest = Guest::of(&vmi);
            let found = guest.queues(&guest.interfaces[0]);
            assert_eq!(found, expected, "{model:?} {multiqueue} {sockets}");
        }
    }

    #[test]
    fn absent_interfaces_are_not_plugged() {
        let vmi = vmi(json!({"spec": {"domain": {"devices": {"interfaces": [
            {"name": "a", "masquerade": {}, "state": "absent"},
            {"name": "b", "masquerade": {}, "state": "down"},
            {"name": "c", "masquerade": {}},
        ]}}}}));
        let guest = Guest::of(&vmi);
        let plugged: Vec<_> = guest.plugged_interfaces().map(Interface::name).collect();
        assert_eq!(plugged, ["b", "c"]);
    }
}
