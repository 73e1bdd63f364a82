//! Volumes that no user names: for the launcher's own files, and for features of the guest.

use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, DownwardAPIVolumeSource, EmptyDirVolumeSource, ObjectFieldSelector,
    Volume, VolumeMount,
};
use kubevirt_api::annotations;
use model::paths;

use super::storage::{HOST_TO_CONTAINER, Storage, empty_dir, mount, read_only};
use crate::{ContainerDisks, Feature, Input, init, networks};

/// In every pod: name and mount path.
const ALWAYS: [(&str, &str); 5] = [
    ("private", paths::PRIVATE),
    ("public", paths::PUBLIC),
    ("sockets", paths::SOCKETS),
    ("libvirt-runtime", paths::LIBVIRT_RUNTIME),
    ("ephemeral-disks", paths::EPHEMERAL_DISKS),
];
const HUGE_PAGES: [(&str, &str); 2] = [
    ("hugepages", "/dev/hugepages"),
    ("hugetblfs-dir", "/dev/hugepages/libvirt/qemu"),
];
/// libvirt's own directories, so that the parts of the state claim can be mounted into them.
const LIBVIRT: [(&str, &str); 2] = [
    ("private-libvirt", paths::LIBVIRT),
    ("private-libvirt-qemu", paths::LIBVIRT_QEMU),
];

pub(super) fn add(all: &mut Storage, input: &Input<'_>) {
    let Input {
        guest, settings, ..
    } = input;
    let vmi = guest.vmi;
    let devices = &vmi.spec.domain.devices;
    for (name, path) in ALWAYS {
        all.add_empty_dir(name, path);
    }
    if settings.container_disks == ContainerDisks::Copied && init::has_images(input) {
        all.volumes.push(empty_dir(
            init::PROGRAM_VOLUME,
            EmptyDirVolumeSource::default(),
        ));
        all.volumes.push(empty_dir(
            init::DISKS_VOLUME,
            EmptyDirVolumeSource::default(),
        ));
    }
    if settings.has(Feature::HotplugDisks) && devices.disable_hotplug != Some(true) {
        let mount = VolumeMount {
            mount_propagation: Some(HOST_TO_CONTAINER.to_owned()),
            ..mount(paths::HOTPLUG_VOLUME, paths::HOTPLUG_DISKS)
        };
        let volume = empty_dir(paths::HOTPLUG_VOLUME, EmptyDirVolumeSource::default());
        all.add(volume, mount);
    }
    if !devices.filesystems.is_empty() {
        all.add_empty_dir("virtiofs-containers", paths::VIRTIOFS_CONTAINERS);
    }
    if guest.page_size().is_some() {
        for (name, path) in HUGE_PAGES {
            let source = EmptyDirVolumeSource {
                medium: Some("HugePages".to_owned()),
                size_limit: None,
            };
            all.add(empty_dir(name, source), mount(name, path));
        }
    }
    if networks::needs_device_info(input) {
        let name = networks::DEVICE_INFO_VOLUME;
        let mount = mount(name, networks::DEVICE_INFO_PATH);
        all.add(device_info(name), read_only(mount));
    }
    if !guest.kept_state().is_empty() {
        for (name, path) in LIBVIRT {
            all.add_empty_dir(name, path);
        }
    }
}

/// An annotation of the pod as a file: the devices behind its networks are known only once the
/// pod's network is there.
fn device_info(name: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        downward_api: Some(DownwardAPIVolumeSource {
            items: Some(vec![DownwardAPIVolumeFile {
                path: "network-info".to_owned(),
                field_ref: Some(ObjectFieldSelector {
                    api_version: None,
                    field_path: format!("metadata.annotations['{}']", annotations::NETWORK_INFO),
                }),
                ..DownwardAPIVolumeFile::default()
            }]),
            default_mode: None,
        }),
        ..Volume::default()
    }
}
