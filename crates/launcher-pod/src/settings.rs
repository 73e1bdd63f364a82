//! What the cluster and its nodes are like, as far as pods care.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::cluster_config::{InterfaceBindingPlugin, ResourceRequirementsWithoutClaims};
use kubevirt_api::quantity::{Amount, NotAQuantity};

/// Of the whole cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub launcher_image: String,
    /// Of the launcher image.
    pub image_pull_policy: String,
    /// Secrets for the launcher image.
    pub image_pull_secrets: Vec<String>,
    pub acceleration: Acceleration,
    pub container_disks: ContainerDisks,
    /// Every launcher pod asks for these labels of its node.
    pub node_selectors: BTreeMap<String, String>,
    /// How many virtual CPUs share a real one.
    pub cpu_allocation_ratio: u32,
    /// How much guest memory stands on a hundredth of requested memory.
    pub memory_overcommit_percent: u32,
    /// Factor for the memory counted besides the guest's.
    pub overhead_ratio: Ratio,
    pub runtime_class: Option<String>,
    /// A seccomp profile on the nodes, instead of the runtime's own.
    pub seccomp_profile: Option<String>,
    /// `SELinux` type of launcher pods.
    pub selinux_type: Option<String>,
    /// Resource names that guests may ask for; `None` lets them ask for any.
    pub permitted_devices: Option<BTreeSet<String>>,
    /// Network bindings that the administrator registered.
    pub binding_plugins: BTreeMap<String, InterfaceBindingPlugin>,
    /// For the init containers of container disks, instead of what is built in.
    pub container_disk_resources: Option<ResourceRequirementsWithoutClaims>,
    pub features: BTreeSet<Feature>,
}

impl Settings {
    /// What a cluster does that is not told otherwise.
    pub fn usual(launcher_image: impl Into<String>, acceleration: Acceleration) -> Self {
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
    /// By software; the pod then asks for no KVM device.
    Emulation,
}

/// How the images of container disks get into the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerDisks {
    /// Mounted as volumes by the node.
    ImageVolumes,
    /// Copied by an init container that runs in the image, for clusters without image volumes.
    Copied,
}

/// What a pod has only where something makes use of it. Off unless named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Nodes must offer every Hyper-V enlightenment that a guest switches on.
    HypervStrictCheck,
    /// Nodes may run guests of other architectures.
    CrossArchitecture,
    /// Backup tools freeze the guest by a program in the pod.
    BackupHooks,
    /// A paused guest's pod is not ready; somebody writes the condition into the pod's status.
    UnpausedGate,
    /// Disks may come while the guest runs.
    HotplugDisks,
    /// Devices are passed through by way of `iommufd`.
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
