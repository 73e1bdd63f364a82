//! Checks of a `VirtualMachineInstance`.

mod input;

mod update;
mod volumes;

mod list;

use cluster_config::ClusterConfig;
use kubevirt_api::VirtualMachineInstance;

use crate::{
    checks::Origin,
    guest_warnings::{Described, guest_warnings},
};

pub use input::{Caller, Check, Identity, Update};
pub use list::{ALL, validate_create, validate_update};

/// Warnings for the author of a VMI.
pub fn warnings(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Vec<String> {
    let guest = Described {
        spec: &vmi.spec,
        spec_path: Origin::Vmi.path(),
    };
    guest_warnings(&guest, config)
}
