//! The guest as a whole.

use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::annotations;
use kubevirt_api::domain::MemLockRequirement;
use kubevirt_api::firmware::KernelBootContainer;

use crate::{
    Architecture, Binding, Bootloader, CpuModel, Credential, DeviceSource, Disk, Filesystem,
    HostDevice, Interface, KeptState, LinkState, MAX_QUEUES, Topology, Tpm, Volume, VolumeSource,
};

/// Longest host name.
const MAX_HOSTNAME: usize = 63;

/// A VMI, parsed. What only one crate reads stays in [`Guest::vmi`].
#[derive(Debug, Clone)]
pub struct Guest<'a> {
    pub vmi: &'a VirtualMachineInstance,
    pub volumes: Vec<Volume<'a>>,
    pub disks: Vec<Disk<'a>>,
    pub filesystems: Vec<Filesystem<'a>>,
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
        let filesystems = devices.filesystems.iter().enumerate();
        let interfaces = devices.interfaces.iter().enumerate();
        let cpu = spec.domain.cpu.as_ref();
        Self {
            vmi,
            volumes: volumes
                .map(|(index, volume)| Volume::of(index, volume))
                .collect(),
            disks: disks.map(|(index, disk)| Disk::of(index, disk)).collect(),
            filesystems: filesystems
                .map(|(index, one)| Filesystem {
                    index,
                    name: &one.name,
                })
                .collect(),
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

    /// Whether the guest goes on from a saved state.
    pub fn goes_on(&self) -> bool {
        let mut sources = self.volumes.iter().map(|volume| &volume.source);
        sources.any(|source| matches!(source, VolumeSource::SavedState(_)))
    }

    /// Interfaces that are plugged in.
    pub fn plugged_interfaces(&self) -> impl Iterator<Item = &Interface<'a>> + Clone {
        let interfaces = self.interfaces.iter();
        interfaces.filter(|interface| interface.link != LinkState::Absent)
    }

    /// Whether the volume is shared as a filesystem and not shown as a disk.
    pub fn is_filesystem(&self, volume: &str) -> bool {
        let mut filesystems = self.filesystems.iter();
        filesystems.any(|filesystem| filesystem.name == volume)
    }

    /// Whether the volume is attached while the guest runs, where that is supported: only disks and the
    /// volume of a memory dump can be.
    pub fn is_hotplugged(&self, volume: &Volume<'_>) -> bool {
        let takes_disks = self.vmi.spec.domain.devices.disable_hotplug != Some(true);
        volume.source.is_hotpluggable()
            && !self.is_filesystem(volume.name)
            && (takes_disks || volume.source.is_memory_dump())
    }

    /// Number of queues of a multi-queue interface: only virtio has them.
    pub fn queues(&self, interface: &Interface<'_>) -> Option<u32> {
        let devices = &self.vmi.spec.domain.devices;
        let is_multiqueue = devices.network_interface_multiqueue == Some(true);
        // Those of a running guest stay, whatever processors it gets.
        let status = self.vmi.status.iter().flat_map(|status| &status.interfaces);
        let mut reported = status.filter(|one| one.name.as_deref() == Some(interface.name()));
        let reported = reported.find_map(|one| u32::try_from(one.queue_count?).ok());
        let vcpus = u32::try_from(self.topology.vcpus()).unwrap_or(MAX_QUEUES);
        let vcpus = reported.filter(|count| *count > 0).unwrap_or(vcpus);
        let has_queues =
            interface.emulated_model().is_none() && interface.binding != Binding::Passt;
        (is_multiqueue && has_queues).then(|| vcpus.min(MAX_QUEUES))
    }

    pub fn tpm(&self) -> Option<Tpm> {
        Tpm::of(self.vmi.spec.domain.devices.tpm.as_ref())
    }

    /// The Ignition configuration in the VMI's annotation. Text that does not mention Ignition is none.
    pub fn ignition(&self) -> Option<&'a str> {
        let annotations = self.vmi.metadata.annotations.as_ref()?;
        let text = annotations.get(annotations::IGNITION_DATA)?;
        text.contains("ignition").then_some(text)
    }

    /// What the guest keeps from run to run besides its disks.
    pub fn kept_state(&self) -> Vec<KeptState> {
        KeptState::of(&self.vmi.spec.domain)
    }

    /// Keys and passwords for users of the guest.
    pub fn credentials(&self) -> impl Iterator<Item = Credential<'a>> + use<'a> {
        let credentials = self.vmi.spec.access_credentials.iter();
        credentials.filter_map(Credential::of)
    }

    /// Whether the memory of the guest is encrypted.
    pub fn is_confidential(&self) -> bool {
        self.vmi.spec.domain.launch_security.is_some()
    }

    /// Whether the virtual CPUs run with realtime priority.
    pub fn is_realtime(&self) -> bool {
        let cpu = self.vmi.spec.domain.cpu.as_ref();
        cpu.is_some_and(|cpu| cpu.realtime.is_some())
    }

    /// Whether QEMU locks memory: devices access it, or its latency matters.
    pub fn locks_memory(&self) -> bool {
        let spec = &self.vmi.spec.domain;
        let memory = spec.memory.as_ref();
        let reserved = memory.and_then(|memory| memory.reserved_overhead.as_ref());
        let is_required = reserved
            .is_some_and(|reserved| reserved.mem_lock == Some(MemLockRequirement::Required));
        is_required || self.is_realtime() || self.is_confidential() || self.has_passthrough()
    }

    /// The devices of the node that the guest drives itself, without interfaces.
    pub fn host_devices(&self) -> Vec<HostDevice<'a>> {
        HostDevice::all(self.vmi)
    }

    /// Claims and requests of the devices that the guest drives itself, also as interfaces.
    pub fn device_claims(&self) -> Vec<(&'a str, &'a str)> {
        let devices = self.host_devices().into_iter();
        let devices = devices.filter_map(|device| match device.source {
            DeviceSource::Claim { claim, request } => Some((claim, request.unwrap_or_default())),
            DeviceSource::Resource(_) | DeviceSource::Missing => None,
        });
        let networks = self.vmi.spec.networks.iter();
        let networks = networks.filter_map(|network| network.resource_claim.as_ref()?.names());
        devices.chain(networks).collect()
    }

    /// Whether the guest drives devices of the host itself.
    pub fn has_passthrough(&self) -> bool {
        let mut interfaces = self.plugged_interfaces();
        !self.host_devices().is_empty()
            || interfaces.any(|interface| interface.binding == Binding::Sriov)
    }

    /// Whether other processes of the pod access the guest's memory.
    pub fn shares_memory(&self) -> bool {
        let mut interfaces = self.plugged_interfaces();
        !self.filesystems.is_empty() || interfaces.any(|one| one.binding == Binding::Passt)
    }

    /// Size of the huge pages behind the guest's memory, as the VMI writes it.
    pub fn page_size(&self) -> Option<&'a str> {
        let memory = self.vmi.spec.domain.memory.as_ref()?;
        let size = memory.hugepages.as_ref()?.page_size.as_deref()?;
        Some(size).filter(|size| !size.is_empty())
    }

    /// Whether the guest has CPUs of its own.
    pub fn has_dedicated_cpus(&self) -> bool {
        let cpu = self.vmi.spec.domain.cpu.as_ref();
        cpu.is_some_and(|cpu| cpu.dedicated_cpu_placement == Some(true))
    }

    /// Whether the guest's other threads have a CPU of their own beside those of its virtual CPUs.
    pub fn isolates_emulator(&self) -> bool {
        let cpu = self.vmi.spec.domain.cpu.as_ref();
        self.has_dedicated_cpus()
            && cpu.is_some_and(|cpu| cpu.isolate_emulator_thread == Some(true))
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
    fn memory_is_locked_for_devices_latency_and_on_request() {
        let reserved = |value: &str| json!({"memory": {"reservedOverhead": {"memLock": value}}});
        for (domain, expected) in [
            (json!({}), false),
            (reserved("NotRequired"), false),
            (reserved("Required"), true),
            (json!({"cpu": {"realtime": {}}}), true),
            (json!({"launchSecurity": {"sev": {}}}), true),
            (json!({"devices": {"gpus": [{"name": "a"}]}}), true),
            (
                json!({"devices": {"interfaces": [{"name": "a", "sriov": {}}]}}),
                true,
            ),
        ] {
            let vmi = vmi(json!({"spec": {"domain": domain}}));
            assert_eq!(Guest::of(&vmi).locks_memory(), expected, "{domain}");
        }
    }

    #[test]
    fn ignition_is_an_annotation_that_mentions_it() {
        let key = annotations::IGNITION_DATA;
        let configuration = r#"{"ignition": {"version": "3.4.0"}}"#;
        for (annotations, expected) in [
            (json!({}), None),
            (json!({key: ""}), None),
            (json!({key: "{}"}), None),
            (json!({key: configuration}), Some(configuration)),
        ] {
            let vmi = vmi(json!({"metadata": {"annotations": annotations}}));
            assert_eq!(Guest::of(&vmi).ignition(), expected, "{annotations}");
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
