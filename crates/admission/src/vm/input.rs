//! The input of the checks of a VM.

use cluster_config::ClusterConfig;
use defaults::Environment;
use kubevirt_api::{
    VirtualMachine, VirtualMachineInstance, instancetype::VirtualMachineInstancetypeSpec,
    preference::VirtualMachinePreferenceSpec, vmi::VirtualMachineInstanceSpec,
};
use validation::Violation;

use crate::checks::{Occasion, Requester};

/// The objects that a VM refers to. Those that do not exist are `None`, like those it does not refer
/// to: a missing object is reported when the VM starts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found<'a> {
    pub instancetype: Option<&'a VirtualMachineInstancetypeSpec>,
    pub preference: Option<&'a VirtualMachinePreferenceSpec>,
    /// The VMI of the same name.
    pub vmi: Option<&'a VirtualMachineInstance>,
}

/// Input of a check.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub vm: &'a VirtualMachine,
    pub old: Option<&'a VirtualMachine>,
    pub found: Found<'a>,
    pub config: &'a ClusterConfig,
    pub requester: Requester,
    pub env: Environment<'a>,
}

impl<'a> Input<'a> {
    pub(super) fn occasion(&self) -> Occasion {
        match self.old {
            Some(_) => Occasion::Change,
            None => Occasion::Creation,
        }
    }

    pub(super) fn template(&self) -> Option<&'a VirtualMachineInstanceSpec> {
        self.vm.spec.template.spec.as_ref()
    }
}

pub type Check = fn(&Input<'_>) -> Vec<Violation>;
