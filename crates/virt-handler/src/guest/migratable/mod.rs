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

pub(crate) use volumes::copied_disks;

/// Why even a guest without obstacles cannot be migrated.
const NOT_SUPPORTED: &str = "a single host has no other node that a guest could migrate to";

/// The input of the decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Input<'a> {
    pub(super) vmi: &'a VirtualMachineInstance,
    /// The CPU model of this host is obsolete, so no other node offers it.
    pub(super) host_model_is_obsolete: bool,
    /// This node can exchange guests with others.
    pub(super) can_migrate: bool,
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
    let mut others = obstacles::find(input);
    let volumes = volumes::assess(input.vmi);
    let first = others.first().or(volumes.obstacle.as_ref()).cloned();
    let unsupported = Obstacle {
        reason: Reason::LiveMigrationNotSupported,
        message: NOT_SUPPORTED.to_owned(),
    };
    let first = first.or_else(|| (!input.can_migrate).then(|| unsupported.clone()));
    if !input.can_migrate {
        others.push(unsupported);
    }
    let list = &mut status.conditions;
    let live = match &first {
        Some(first) => ConditionValue::fails(first.reason, &first.message),
        None => ConditionValue::holds(),
    };
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
