//! The input of checks, and what all checks share.

use std::collections::BTreeMap;

use cluster_config::ClusterConfig;
use instancetype::TEMPLATE_PATH;
use kubevirt_api::{
    domain::{Cpu, Memory},
    firmware::{Efi, Firmware},
    vmi::VirtualMachineInstanceSpec,
};
use validation::{Cause, Violation};

/// Input of a check.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// After defaults.
    pub spec: &'a VirtualMachineInstanceSpec,
    pub labels: &'a BTreeMap<String, String>,
    pub annotations: &'a BTreeMap<String, String>,
    pub config: &'a ClusterConfig,
    pub origin: Origin,
    pub occasion: Occasion,
    pub requester: Requester,
}

/// The object that contains the spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Vmi,
    VmTemplate,
    /// `spec.template` of a replica set.
    ReplicaSetTemplate,
    /// The VMI template in the VM template of a pool.
    PoolTemplate,
}

impl Origin {
    /// Path of the spec in the object.
    pub fn path(self) -> &'static str {
        match self {
            Self::Vmi => "spec",
            Self::VmTemplate | Self::ReplicaSetTemplate => TEMPLATE_PATH,
            Self::PoolTemplate => "spec.virtualMachineTemplate.spec.template.spec",
        }
    }
}

/// The operation on the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    Creation,
    Change,
}

/// The kind of user who sends the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// A component of Ferrovirt.
    Component,
    User,
}

pub type Check = fn(&Input<'_>) -> Vec<Violation>;

impl<'a> Input<'a> {
    /// Path of the spec in the object.
    pub fn path(&self) -> &'static str {
        self.origin.path()
    }

    pub fn metadata_path(&self) -> &'static str {
        match self.origin {
            Origin::Vmi => "metadata",
            Origin::VmTemplate | Origin::ReplicaSetTemplate => "spec.template.metadata",
            Origin::PoolTemplate => "spec.virtualMachineTemplate.spec.template.metadata",
        }
    }

    /// Path of a field below the spec.
    pub(super) fn at(&self, field: &str) -> String {
        format!("{}.{field}", self.path())
    }

    pub(super) fn invalid(&self, field: &str, detail: impl std::fmt::Display) -> Violation {
        Violation::new(Cause::Invalid, self.at(field), detail)
    }

    pub(super) fn required(&self, field: &str, detail: impl std::fmt::Display) -> Violation {
        Violation::new(Cause::Required, self.at(field), detail)
    }

    pub(super) fn duplicate(&self, field: &str, detail: impl std::fmt::Display) -> Violation {
        Violation::new(Cause::Duplicate, self.at(field), detail)
    }

    pub(super) fn not_supported(&self, field: &str, detail: impl std::fmt::Display) -> Violation {
        Violation::new(Cause::NotSupported, self.at(field), detail)
    }

    /// A violation when the gate is off.
    pub(super) fn needs_gate(&self, field: &str, gate: &str) -> Option<Violation> {
        (!self.config.has_gate(gate)).then(|| self.invalid(field, gate_is_off(gate)))
    }

    pub(super) fn architecture(&self) -> &'a str {
        self.spec.architecture.as_deref().unwrap_or_default()
    }

    pub(super) fn cpu(&self) -> Option<&'a Cpu> {
        self.spec.domain.cpu.as_ref()
    }

    pub(super) fn memory(&self) -> Option<&'a Memory> {
        self.spec.domain.memory.as_ref()
    }

    pub(super) fn firmware(&self) -> Option<&'a Firmware> {
        self.spec.domain.firmware.as_ref()
    }

    pub(super) fn efi(&self) -> Option<&'a Efi> {
        self.firmware()?.bootloader.as_ref()?.efi.as_ref()
    }

    pub(super) fn has_dedicated_cpus(&self) -> bool {
        self.cpu()
            .is_some_and(|cpu| cpu.dedicated_cpu_placement == Some(true))
    }
}

/// Message that a feature gate must be enabled.
pub(crate) fn gate_is_off(gate: &str) -> String {
    format!(
        "needs the feature gate {gate}, which is off; leave it out, or list the gate in \
         spec.configuration.developerConfiguration.featureGates of the KubeVirt object"
    )
}

/// A string that is present and not empty.
pub(super) fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

/// Number of true values.
pub(super) fn count(given: &[bool]) -> usize {
    given.iter().filter(|given| **given).count()
}

/// Indices of elements that repeat the key of an earlier element.
pub(crate) fn repeated<'a, T>(items: &'a [T], key: impl Fn(&'a T) -> &'a str) -> Vec<usize> {
    let mut seen = std::collections::BTreeSet::new();
    (0..items.len())
        .filter(|&i| items.get(i).is_some_and(|item| !seen.insert(key(item))))
        .collect()
}
