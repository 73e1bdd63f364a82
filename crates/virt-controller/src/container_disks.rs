//! How container disks get into pods: as image volumes that nodes mount, or as copies.
//!
//! Pure. A guest with an image volume never starts on a node that cannot mount it, and its node is
//! not known yet; so volumes are chosen only if every node that runs guests is known to mount them.
//! A copy works everywhere.

use std::cmp::Ordering;

use cluster_config::ClusterConfig;
use launcher_pod::ContainerDisks;

/// The feature gate by which an administrator chooses.
pub(crate) const GATE: &str = "ImageVolume";

/// Whether a node supports image volumes, according to its kubelet and runtime versions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ImageVolumes {
    #[default]
    Never,
    /// Supported, but off unless the administrator of the cluster switches them on.
    IfSwitchedOn,
    ByDefault,
}

/// The setting of the feature gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GateSetting {
    Off,
    Unset,
    On,
}

/// Kubelet versions from which on image volumes are supported, and on by default.
const KUBELET: Version = Version(1, 33);
const KUBELET_BY_DEFAULT: Version = Version(1, 35);
/// Container runtimes, and the version from which on they mount images.
const RUNTIMES: [(&str, Version); 2] = [("containerd", Version(2, 1)), ("cri-o", Version(1, 31))];
/// The embedded node, which is kubelet and runtime in one.
const OWN_NODE: &str = "ferrovirt";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32);

impl ImageVolumes {
    /// From the versions that a node reports, such as `v1.35.2` and `containerd://2.1.4`.
    pub(crate) fn of_node(kubelet: &str, runtime: &str) -> Self {
        let Some((name, runtime)) = runtime.split_once("://") else {
            return Self::Never;
        };
        if name == OWN_NODE {
            return Self::ByDefault;
        }
        let mut known = RUNTIMES.iter();
        let since = known
            .find(|(known, _)| *known == name)
            .map(|(_, since)| *since);
        let mounts = since
            .zip(Version::read(runtime))
            .is_some_and(|(since, is)| is >= since);
        match Version::read(kubelet) {
            Some(kubelet) if mounts && kubelet >= KUBELET_BY_DEFAULT => Self::ByDefault,
            Some(kubelet) if mounts && kubelet >= KUBELET => Self::IfSwitchedOn,
            _ => Self::Never,
        }
    }
}

impl Version {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.trim_start_matches('v').split(['.', '-', '+', '~']);
        let mut number = || parts.next()?.parse().ok();
        Some(Self(number()?, number()?))
    }
}

/// Chooses for a cluster whose nodes support image volumes like this.
pub(crate) fn choose(
    config: &ClusterConfig,
    nodes: impl IntoIterator<Item = ImageVolumes>,
) -> ContainerDisks {
    // Without nodes, image volumes: the first node will be an embedded one.
    let least = nodes.into_iter().min().unwrap_or(ImageVolumes::ByDefault);
    let needed = match gate_setting(config) {
        GateSetting::Off => return ContainerDisks::Copied,
        GateSetting::Unset => ImageVolumes::ByDefault,
        GateSetting::On => ImageVolumes::IfSwitchedOn,
    };
    match least.cmp(&needed) {
        Ordering::Less => ContainerDisks::Copied,
        Ordering::Equal | Ordering::Greater => ContainerDisks::ImageVolumes,
    }
}

fn gate_setting(config: &ClusterConfig) -> GateSetting {
    match (config.has_gate(GATE), config.gates.is_listed(GATE)) {
        (false, _) => GateSetting::Off,
        (true, false) => GateSetting::Unset,
        (true, true) => GateSetting::On,
    }
}

#[cfg(test)]
mod tests {
    use ImageVolumes::{ByDefault, IfSwitchedOn, Never};
    use serde_json::json;

    use super::*;

    #[test]
    fn support_follows_from_versions() {
        for (kubelet, runtime, expected) in [
            ("v1.36.0", "containerd://2.2.1", ByDefault),
            ("v1.35.0", "containerd://2.1.0", ByDefault),
            ("v1.35.0-rc.1", "containerd://2.1.0-beta.0", ByDefault),
            ("v1.35.4+k3s1", "containerd://2.1.5-k3s1", ByDefault),
            ("v1.35.1-eks-3abc", "containerd://2.1.5", ByDefault),
            ("v2.0.0", "containerd://3.0.0", ByDefault),
            ("v1.34.9", "containerd://2.1.0", IfSwitchedOn),
            ("v1.33.0", "cri-o://1.33.0", IfSwitchedOn),
            ("v1.32.9", "cri-o://1.32.0", Never),
            ("v1.9.0", "cri-o://1.31.0", Never),
            ("v1.35.0", "cri-o://1.31.0", ByDefault),
            ("v1.35.0", "cri-o://1.30.9", Never),
            // The newest runtimes without support, with the newest kubelet.
            ("v1.36.0", "containerd://2.0.5", Never),
            ("v1.36.0", "containerd://1.7.28", Never),
            ("v1.36.0", "docker://28.0.0", Never),
            ("v1.36.0", "unknown://9.9.9", Never),
            ("v1.36.0", "containerd://", Never),
            ("v1.36.0", "containerd", Never),
            ("", "containerd://2.1.0", Never),
            ("", "", Never),
            ("v0.1.0-ferrovirt", "ferrovirt://0.1.0", ByDefault),
        ] {
            let found = ImageVolumes::of_node(kubelet, runtime);
            assert_eq!(found, expected, "{kubelet} {runtime}");
        }
    }

    fn config(on: &[&str], off: &[&str]) -> ClusterConfig {
        let written = json!({"developerConfiguration":
                             {"featureGates": on, "disabledFeatureGates": off}});
        ClusterConfig::from_kubevirt(&serde_json::from_value(written).unwrap())
    }

    #[test]
    fn image_volumes_are_chosen_if_every_node_supports_them_and_the_gate_is_not_off() {
        use ContainerDisks::{Copied, ImageVolumes as Volumes};
        let nodes: [&[ImageVolumes]; 6] = [
            &[],
            &[ByDefault, ByDefault],
            &[IfSwitchedOn],
            &[ByDefault, IfSwitchedOn],
            &[Never],
            &[ByDefault, Never, ByDefault],
        ];
        let table = [
            (
                config(&[], &[]),
                [Volumes, Volumes, Copied, Copied, Copied, Copied],
            ),
            (
                config(&[GATE], &[]),
                [Volumes, Volumes, Volumes, Volumes, Copied, Copied],
            ),
            (config(&[], &[GATE]), [Copied; 6]),
            // An enabled gate wins over a disabled one; admission refuses both together, but older
            // objects may contain them.
            (
                config(&[GATE], &[GATE]),
                [Volumes, Volumes, Volumes, Volumes, Copied, Copied],
            ),
            (
                config(&["HostDisk"], &["Snapshot"]),
                [Volumes, Volumes, Copied, Copied, Copied, Copied],
            ),
        ];
        for (config, expected) in table {
            for (nodes, expected) in nodes.into_iter().zip(expected) {
                let found = choose(&config, nodes.iter().copied());
                assert_eq!(found, expected, "{:?} on {nodes:?}", config.gates);
            }
        }
    }
}
