//! The lists of checks of a new and of a changed VMI.

use std::collections::BTreeMap;

use cluster_config::ClusterConfig;
use kubevirt_api::VirtualMachineInstance;
use validation::{Rule, Subject, Violation};

use super::{
    input::{Check, Update},
    update, volumes,
};
use crate::checks::{self, Input, Occasion, Origin, Requester};

/// All checks of a change, in the order their violations are reported.
#[rustfmt::skip]
pub const ALL: &[Rule<Check>] = &[
    Rule::new("vmi-update.spec", Subject::VmiUpdate, "spec changed by a user", update::spec),
    Rule::new("vmi-update.labels", Subject::VmiUpdate, "reserved labels changed by a user", update::system_labels),
    Rule::new("vmi-update.node", Subject::VmiUpdate, "VMI of another node changed by virt-handler", update::node),
    Rule::new("vmi-update.vsock", Subject::VmiUpdate, "address on the vsock changed by a user", update::vsock_address),
    Rule::new("vmi-update.head-room", Subject::VmiUpdate, "hot-plug maximums changed while the guest runs", update::hotplug_maximums),
    Rule::new("vmi-update.utility-volumes", Subject::VmiUpdate, "utility volumes incomplete, repeated or changed", volumes::utility_volumes),
    Rule::new("vmi-update.counts", Subject::VmiUpdate, "numbers of volumes and of disks and filesystems differ", volumes::counts),
    Rule::new("vmi-update.permanent-volumes", Subject::VmiUpdate, "volumes changed that exist since boot", volumes::permanent_volumes),
    Rule::new("vmi-update.plugged-volumes", Subject::VmiUpdate, "hot-plugged volumes changed, or of a type that cannot be hot-plugged", volumes::plugged_volumes),
];

/// Checks a new VMI after defaults.
pub fn validate_create(
    vmi: &VirtualMachineInstance,
    config: &ClusterConfig,
    requester: Requester,
) -> Vec<Violation> {
    let none = BTreeMap::new();
    checks::run(&Input {
        spec: &vmi.spec,
        labels: vmi.metadata.labels.as_ref().unwrap_or(&none),
        annotations: vmi.metadata.annotations.as_ref().unwrap_or(&none),
        config,
        origin: Origin::Vmi,
        occasion: Occasion::Creation,
        requester,
    })
}

/// Checks a changed VMI.
pub fn validate_update(update: &Update<'_>) -> Vec<Violation> {
    ALL.iter()
        .flat_map(|rule| rule.attribute((rule.apply)(update)))
        .collect()
}
