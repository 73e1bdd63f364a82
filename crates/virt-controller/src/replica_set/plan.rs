//! Pure planning: maps the observed state to the steps of one reconcile.

use std::sync::Arc;
use std::time::Duration;

use kubevirt_api::conditions::{self, Condition as _};
use kubevirt_api::vmi_status::{
    VirtualMachineInstanceConditionType as Type, VirtualMachineInstancePhase as Phase,
};
use reasons::Reason;

use super::observe::Observed;
use crate::view::Guest;

/// VMIs that are created or deleted in one reconcile.
pub(super) const BURST: usize = 250;
/// Requeue time while the cache does not show created VMIs yet.
const AWAIT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(super) enum Step {
    Adopt(Arc<Guest>),
    /// The selector no longer matches: give up the ownership.
    Release(Arc<Guest>),
    Delete(Arc<Guest>),
    Create(usize),
}

#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// Active members, and how many of them are ready.
    pub(super) replicas: usize,
    pub(super) ready: usize,
    pub(super) requeue_in: Option<Duration>,
}

pub(super) fn plan(observed: &Observed) -> Plan {
    let mut active: Vec<&Arc<Guest>> = observed
        .members
        .iter()
        .filter(|vmi| !vmi.is_final() && !vmi.is_deleting() && !is_pod_terminating(vmi))
        .collect();
    let mut plan = Plan {
        steps: Vec::new(),
        replicas: active.len(),
        ready: active.iter().filter(|vmi| is_ready(vmi)).count(),
        requeue_in: (observed.awaited > 0).then_some(AWAIT),
    };
    let set = observed.set.as_ref();
    if set.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let unmatched = observed.unmatched.iter().map(Arc::clone).map(Step::Release);
    plan.steps.extend(unmatched);
    let orphans = observed.orphans.iter().map(Arc::clone).map(Step::Adopt);
    plan.steps.extend(orphans);
    if set.spec.paused == Some(true) {
        return plan;
    }
    let is_over =
        |vmi: &&Arc<Guest>| (vmi.is_final() || is_pod_terminating(vmi)) && !vmi.is_deleting();
    let over = observed.members.iter().filter(is_over).map(Arc::clone);
    plan.steps.extend(over.take(BURST).map(Step::Delete));

    let wanted = usize::try_from(set.spec.replicas.unwrap_or(1)).unwrap_or(0);
    let there = active.len() + observed.awaited + observed.orphans.len();
    if there < wanted {
        plan.steps.push(Step::Create((wanted - there).min(BURST)));
    } else if active.len() > wanted {
        active.sort_by_key(|vmi| deletion_order(vmi));
        let surplus = active.len() - wanted;
        let least = active.into_iter().take(surplus.min(BURST)).map(Arc::clone);
        plan.steps.extend(least.map(Step::Delete));
    }
    plan
}

/// The order of deletion: VMIs that do not run yet, then VMIs that are not ready, then the youngest.
fn deletion_order(vmi: &Guest) -> (bool, bool, std::cmp::Reverse<i64>, String) {
    let created = vmi.metadata.creation_timestamp.as_ref();
    let age = created.map_or(0, |time| time.0.as_second());
    (
        *vmi.phase() == Phase::Running,
        is_ready(vmi),
        std::cmp::Reverse(age),
        vmi.metadata.name.clone().unwrap_or_default(),
    )
}

/// The guest is about to end with its pod, which may have a long grace period.
fn is_pod_terminating(vmi: &Guest) -> bool {
    let ready = conditions::find(&vmi.status.conditions, &Type::Ready);
    ready.is_some_and(|ready| ready.reason() == Reason::PodTerminating)
}

fn is_ready(vmi: &Guest) -> bool {
    conditions::is_true(&vmi.status.conditions, &Type::Ready)
}
