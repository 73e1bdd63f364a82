//! Files of another object that the guest sees as a disk: everything that depends on which object
//! they come from, except the volume of the pod.

use kubevirt_api::volumes::{
    ConfigMapVolumeSource, DownwardApiVolumeSource, SecretVolumeSource, SysprepSource,
};

use super::reference::{Reference, Referenced};
use crate::paths::PRIVATE;

/// Default label of the images.
pub const FILES_LABEL: &str = "cfgdata";
/// The label that Windows Setup searches for.
const ANSWERS_LABEL: &str = "unattendCD";

/// Files that the pod mounts from another object, and the guest sees as a disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Files<'a> {
    ConfigMap(&'a ConfigMapVolumeSource),
    Secret(&'a SecretVolumeSource),
    DownwardApi(&'a DownwardApiVolumeSource),
    Sysprep(&'a SysprepSource),
}

impl<'a> Files<'a> {
    /// Name of the member of the wire type.
    pub(super) fn member(self) -> &'static str {
        match self {
            Self::ConfigMap(_) => "configMap",
            Self::Secret(_) => "secret",
            Self::DownwardApi(_) => "downwardAPI",
            Self::Sysprep(_) => "sysprep",
        }
    }

    fn directory_name(self) -> &'static str {
        match self {
            Self::ConfigMap(_) => "config-map",
            Self::Secret(_) => "secret",
            Self::DownwardApi(_) => "downwardapi",
            Self::Sysprep(_) => "sysprep",
        }
    }

    /// The directory in which the pod mounts the files.
    pub fn directory(self, volume: &str) -> String {
        format!("{PRIVATE}/{}/{volume}", self.directory_name())
    }

    /// The image that the launcher makes of them.
    pub fn image(self, volume: &str) -> String {
        format!("{PRIVATE}/{}-disks/{volume}.iso", self.directory_name())
    }

    /// The label of the image.
    pub fn label(self) -> &'a str {
        let label = match self {
            Self::ConfigMap(source) => source.volume_label.as_deref(),
            Self::Secret(source) => source.volume_label.as_deref(),
            Self::DownwardApi(source) => source.volume_label.as_deref(),
            Self::Sysprep(_) => Some(ANSWERS_LABEL),
        };
        let label = label.filter(|label| !label.is_empty());
        label.unwrap_or(FILES_LABEL)
    }

    pub(super) fn references(self) -> Vec<Reference<'a>> {
        match self {
            Self::ConfigMap(source) => {
                let name = source.name.as_deref().unwrap_or_default();
                let reference = Reference::new(Referenced::ConfigMap, name, "name");
                vec![reference.optional_if(source.optional)]
            }
            Self::Secret(source) => {
                let name = source.secret_name.as_deref().unwrap_or_default();
                let reference = Reference::new(Referenced::Secret, name, "secretName");
                vec![reference.optional_if(source.optional)]
            }
            Self::DownwardApi(_) => Vec::new(),
            Self::Sysprep(source) => {
                let secret = source.secret.as_ref().map(|secret| secret.name.as_str());
                let map = source.config_map.as_ref().map(|map| map.name.as_str());
                let secret = Reference::named(Referenced::Secret, secret, "secret.name");
                let map = Reference::named(Referenced::ConfigMap, map, "configMap.name");
                secret.into_iter().chain(map).collect()
            }
        }
    }
}
