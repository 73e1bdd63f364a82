//! Whether a running guest could be migrated, alone and with its storage: pure.

mod obstacles;
mod state;
#[cfg(test)]
mod tests;
mod volumes;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::{
    VirtualMachineInstance,
    conditions::{self, ConditionValue},
    vmi_status::{VirtualMachineInstanceConditionType as Condition, VirtualMachineInstanceStatus},
};
use model::RegisteredBindings;
use reasons::Reason;

pub(crate) use state::StateSharing;
pub(crate) use volumes::{copied_disks, moved_disks};

/// How a guest moves that cannot leave its node.
const WITHIN_NODE: &str = "a migration moves the guest to another pod of its node";

/// Where a node can move its guests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    #[default]
    OtherNodes,
    /// Only to other pods of the node itself: a single host has no other node.
    OwnNode,
}

/// The input of the decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Input<'a> {
    pub(super) vmi: &'a VirtualMachineInstance,
    /// The CPU model of this host is obsolete, so no other node offers it.
    pub(super) host_model_is_obsolete: bool,
    pub(super) reach: Reach,
    /// Interfaces whose link in the pod cannot be in a second pod of the node; `None` while that is unknown.
    pub(super) bound_interfaces: Option<&'a [String]>,
    /// Which pods can have the firmware variables that the guest keeps.
    pub(super) state: StateSharing,
    /// The network bindings that the cluster has.
    pub(super) bindings: &'a RegisteredBindings,
}

/// Why a guest cannot be migrated.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Obstacle {
    reason: Reason,
    message: String,
}

/// Sets the conditions `LiveMigratable` and `StorageLiveMigratable`, and the migration method.
///
/// Within a node they stay as they are while it is unknown how the pod is connected. Otherwise
/// `LiveMigratable` has the first obstacle in the fixed order, disks last; `StorageLiveMigratable`
/// has all obstacles but disks.
pub(super) fn set(status: &mut VirtualMachineInstanceStatus, input: &Input<'_>, now: &Time) {
    let is_unknown = input.reach == Reach::OwnNode && input.bound_interfaces.is_none();
    if is_unknown && conditions::find(&status.conditions, &Condition::LiveMigratable).is_some() {
        // The pod is being prepared again, by a virt-handler that was restarted.
        return;
    }
    let others = obstacles::find(input);
    let volumes = volumes::assess(input.vmi, input.reach);
    let first = others.first().or(volumes.obstacle.as_ref());
    let list = &mut status.conditions;
    let live = match (first, input.reach) {
        (Some(first), _) => ConditionValue::fails(first.reason, &first.message),
        (None, Reach::OtherNodes) => ConditionValue::holds(),
        (None, Reach::OwnNode) => ConditionValue {
            status: conditions::TRUE,
            reason: Reason::OnlyWithinNode.as_str(),
            message: WITHIN_NODE,
        },
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
