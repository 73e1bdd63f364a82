//! Shared filesystems: directories of the pod that the guest mounts.

use crate::{Volume, VolumeSource, paths};

/// A filesystem of the VMI.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Filesystem<'a> {
    /// Position in `spec.domain.devices.filesystems`.
    pub index: usize,
    /// Name of the filesystem and of its volume; the guest mounts it by this name.
    pub name: &'a str,
}

/// A directory of the pod that a guest mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedDirectory {
    pub path: String,
    /// The guest cannot write to it.
    pub is_read_only: bool,
}

impl Filesystem<'_> {
    /// Path in the VMI.
    pub fn field(&self) -> String {
        format!("spec.domain.devices.filesystems[{}]", self.index)
    }

    /// The directory behind it; `None` if its volume is missing or has no directory.
    pub fn directory(&self, volumes: &[Volume<'_>]) -> Option<SharedDirectory> {
        let volume = volumes.iter().find(|volume| volume.name == self.name);
        volume.and_then(Volume::shared_directory)
    }
}

impl Volume<'_> {
    /// The directory that a filesystem of this volume shares; `None` if the volume has none.
    pub fn shared_directory(&self) -> Option<SharedDirectory> {
        let read_only = |path: String| SharedDirectory {
            path,
            is_read_only: true,
        };
        match self.source {
            VolumeSource::PersistentVolumeClaim(claim) | VolumeSource::DataVolume(claim) => {
                Some(SharedDirectory {
                    path: paths::filesystem(self.name),
                    is_read_only: claim.is_read_only,
                })
            }
            VolumeSource::Files(files) => Some(read_only(files.directory(self.name))),
            VolumeSource::ServiceAccount(_) => Some(read_only(paths::SERVICE_ACCOUNT.to_owned())),
            VolumeSource::ContainerPath(source) => Some(read_only(source.path.clone())),
            VolumeSource::HostDisk(_)
            | VolumeSource::CloudInit(_)
            | VolumeSource::ContainerDisk(_)
            | VolumeSource::Ephemeral(_)
            | VolumeSource::EmptyDisk(_)
            | VolumeSource::DownwardMetrics
            | VolumeSource::MemoryDump(_)
            | VolumeSource::SavedState(_)
            | VolumeSource::Missing => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use kubevirt_api::VirtualMachineInstance;
    use serde_json::json;

    use super::*;
    use crate::Guest;

    #[test]
    fn only_volumes_of_files_have_a_directory() {
        let private = "/var/run/kubevirt-private";
        for (source, expected) in [
            (
                json!({"persistentVolumeClaim": {"claimName": "c"}}),
                Some((format!("{private}/filesystems/v"), false)),
            ),
            (
                json!({"persistentVolumeClaim": {"claimName": "c", "readOnly": true}}),
                Some((format!("{private}/filesystems/v"), true)),
            ),
            (
                json!({"dataVolume": {"name": "c"}}),
                Some((format!("{private}/filesystems/v"), false)),
            ),
            (
                json!({"configMap": {"name": "c"}}),
                Some((format!("{private}/config-map/v"), true)),
            ),
            (
                json!({"secret": {"secretName": "c"}}),
                Some((format!("{private}/secret/v"), true)),
            ),
            (
                json!({"downwardAPI": {"fields": []}}),
                Some((format!("{private}/downwardapi/v"), true)),
            ),
            (
                json!({"serviceAccount": {"serviceAccountName": "c"}}),
                Some((paths::SERVICE_ACCOUNT.to_owned(), true)),
            ),
            (
                json!({"containerPath": {"path": "/var/run/secrets/x"}}),
                Some(("/var/run/secrets/x".to_owned(), true)),
            ),
            (json!({"emptyDisk": {"capacity": "1Gi"}}), None),
            (json!({"containerDisk": {"image": "i"}}), None),
            (json!({}), None),
        ] {
            let mut volume = source.clone();
            volume["name"] = json!("v");
            let vmi: VirtualMachineInstance = serde_json::from_value(json!({"spec": {
                "volumes": [volume],
                "domain": {"devices": {"filesystems": [{"name": "v", "virtiofs": {}}]}},
            }}))
            .expect("a VMI");
            let guest = Guest::of(&vmi);
            let found = guest.filesystems[0].directory(&guest.volumes);
            let found = found.map(|found| (found.path, found.is_read_only));
            assert_eq!(found, expected, "{source}");
        }
    }
}
