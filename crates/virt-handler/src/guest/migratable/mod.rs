//! Whether a running guest could be migrated, alone and with its storage: pure.

mod obstacles;
#[cfg(test)]
mod tests;
mod volumes;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::{
    VirtualMachineInstance,
    conditions::{self, ConditionValue},
    vmi_status::{VirtualMachineInstanceConditionType as Condition, VirtualMachineInstanceStatus},
};
use reasons::Reason;

/// The input of the decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Input<'a> {
    pub(super) vmi: &'a VirtualMachineInstance,
    /// The CPU model of this host is obsolete, so no other node offers it.
    pub(super) host_model_is_obsolete: bool,
}

/// Why a guest cannot be migrated.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Obstacle {
    reason: Reason,
    message: String,
}

/// Sets the conditions `LiveMigratable` and `StorageLiveMigratable`, and the migration method.
///
/// `LiveMigratable` has the first obstacle in the fixed order, disks last; `StorageLiveMigratable`
/// has all obstacles but disks.
pub(super) fn set(status: &mut VirtualMachineInstanceStatus, input: &Input<'_>, now: &Time) {
    let others = obstacles::find(input);
    let volumes = volumes::assess(input.vmi);
    let first = others.first().or(volumes.obstacle.as_ref());
    let list = &mut status.conditions;
    let live = first.map_or_else(ConditionValue::holds, |obstacle| {
        ConditionValue::fails(obstacle.reason, &obstacle.message)
    });
    conditions::set(list, Condition::LiveMigratable, &live, now);
    let messages: Vec<&str> = others.iter().map(|one| one.message.as_str()).collect();
    let message = messages.join("; ");
    let storage = if others.is_empty() {
        ConditionValue::holds()
    } else {
        ConditionValue::fails(Reason::NotMigratable, &message)
    };
    conditions::set(list, Condition::StorageLiveMigratable, &storage, now);
    status.migration_method = Some(volumes.method);
}
