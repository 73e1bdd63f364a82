//! Settings of the cluster and its nodes that pods depend on.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::cluster_config::{InterfaceBindingPlugin, ResourceRequirementsWithoutClaims};
use kubevirt_api::quantity::{Amount, NotAQuantity};

/// Settings of the whole cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub launcher_image: String,
    /// Pull policy of the launcher image.
    pub image_pull_policy: String,
    /// Secrets for the launcher image.
    pub image_pull_secrets: Vec<String>,
    pub acceleration: Acceleration,
    pub container_disks: ContainerDisks,
    /// Labels that every launcher pod requires of its node.
    pub node_selectors: BTreeMap<String, String>,
    /// Virtual CPUs per physical CPU.
    pub cpu_allocation_ratio: u32,
    /// Guest memory as a percentage of the requested memory.
    pub memory_overcommit_percent: u32,
    /// Factor for the memory overhead.
    pub overhead_ratio: Ratio,
    pub runtime_class: Option<String>,
    /// A seccomp profile on the nodes that replaces the runtime's default.
    pub seccomp_profile: Option<String>,
    /// `SELinux` type of launcher pods.
    pub selinux_type: Option<String>,
    /// Resource names that guests may request; `None` permits all.
    pub permitted_devices: Option<BTreeSet<String>>,
    /// Network bindings that the administrator registered.
    pub binding_plugins: BTreeMap<String, InterfaceBindingPlugin>,
    /// Resources for the init containers of container disks that replace the defaults.
    pub container_disk_resources: Option<ResourceRequirementsWithoutClaims>,
    /// Resources for hook sidecars that replace the defaults.
    pub hook_sidecar_resources: Option<ResourceRequirementsWithoutClaims>,
    /// Verbosity of launchers, as `KubeVirt` counts it; 2 without a value.
    pub log_verbosity: Option<u64>,
    /// Environment variables of the launcher, such as the format of its log.
    pub variables: BTreeMap<String, String>,
    pub features: BTreeSet<Feature>,
}

impl Settings {
    /// The settings of a cluster without any configuration.
    pub fn defaults(launcher_image: impl Into<String>, acceleration: Acceleration) -> Self {
        Self {
            launcher_image: launcher_image.into(),
            image_pull_policy: "IfNotPresent".into(),
            image_pull_secrets: Vec::new(),
            acceleration,
            container_disks: ContainerDisks::ImageVolumes,
            node_selectors: BTreeMap::new(),
            cpu_allocation_ratio: 10,
            memory_overcommit_percent: 100,
            overhead_ratio: Ratio::ONE,
            runtime_class: None,
            seccomp_profile: None,
            selinux_type: None,
            permitted_devices: None,
            binding_plugins: BTreeMap::new(),
            container_disk_resources: None,
            hook_sidecar_resources: None,
            log_verbosity: None,
            variables: BTreeMap::new(),
            features: BTreeSet::new(),
        }
    }

    pub(crate) fn has(&self, feature: Feature) -> bool {
        self.features.contains(&feature)
    }
}

/// How guests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acceleration {
    Kvm,
    /// By software; the pod requests no KVM device.
    Emulation,
}

/// How the images of container disks get into the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerDisks {
    /// The node mounts them as volumes.
    ImageVolumes,
    /// An init container in the image copies them, for clusters without image volumes.
    Copied,
}

/// Parts of a pod that only some clusters use. Off unless listed in [`Settings::features`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Nodes must offer every Hyper-V enlightenment that a guest enables.
    HypervStrictCheck,
    /// Nodes may run guests of other architectures.
    CrossArchitecture,
    /// Backup tools freeze the guest with a program in the pod.
    BackupHooks,
    /// A readiness gate keeps a paused guest's pod unready; another component writes its condition.
    UnpausedGate,
    /// Disks may be attached while the guest runs.
    HotplugDisks,
    /// Devices are passed through with `iommufd`.
    Iommufd,
}

/// A factor, exact to the thousandth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    thousandths: u64,
}

impl Ratio {
    pub const ONE: Self = Self { thousandths: 1000 };
    pub const TWO: Self = Self { thousandths: 2000 };

    /// Reads a number such as `1.5`.
    pub fn parse(text: &str) -> Result<Self, NotAQuantity> {
        let amount = Amount::parse(&Quantity(text.to_owned()))?;
        Ok(Self {
            thousandths: amount.millis(),
        })
    }

    #[must_use]
    pub fn at_least(self, least: Self) -> Self {
        if self.thousandths < least.thousandths {
            least
        } else {
            self
        }
    }

    pub(crate) fn of(self, bytes: u64) -> u64 {
        let scaled = (u128::from(bytes) * u128::from(self.thousandths)).div_ceil(1000);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}
