//! Pure planning: maps the observed state to the steps of one reconcile. Which VMs and guests follow a changed
//! template is in [`super::update`], which VMs are failing in [`super::healing`].

use std::sync::Arc;
use std::time::Duration;

use super::choice::{chosen, seed, texts};
use super::observe::{Member, Observed, is_held};
use super::view::{Disks, Revision, ScaleIn};
use super::{healing, matches, update};
use crate::view::Guest;
use crate::vm::Vm;

/// Steps of one kind in one reconcile.
pub(super) const BURST: usize = 250;
/// Requeue time while the cache does not show created VMs yet.
const AWAIT: Duration = Duration::from_secs(1);
const UNMATCHED: &str = "spec.selector does not match spec.virtualMachineTemplate.metadata.labels: add \
                         the labels to the template";
/// The finalizer of an object that is deleted after its dependents.
const FOREGROUND: &str = "foregroundDeletion";

#[derive(Debug, Clone)]
pub(super) enum Step {
    AddFinalizer,
    /// Gives up the ownership of a VM.
    Release(Arc<Vm>),
    /// Lets a deleted VM go.
    LetGo(Arc<Vm>, Disks),
    Delete(Arc<Vm>),
    /// Stores the present spec.
    KeepRevision,
    /// Creates the VM of that number.
    Create(u32),
    Update(Member),
    /// Ends the guest; the VM starts another one.
    Restart(Member),
    /// Notes on a VMI that the revision of its VM makes no difference to it.
    Relabel(Arc<Guest>, String),
    /// Deletes a VM with its disks; another one takes its number.
    Recreate(Arc<Vm>),
    Prune(Arc<Revision>),
    RemoveFinalizer,
}

#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// Members, and how many of them are ready.
    pub(super) replicas: usize,
    pub(super) ready: usize,
    pub(super) requeue_in: Option<Duration>,
    /// Why the pool does nothing.
    pub(super) problem: Option<&'static str>,
}

pub(super) fn plan(observed: &Observed) -> Plan {
    let members = &observed.members;
    let mut plan = Plan {
        steps: Vec::new(),
        replicas: members.len(),
        ready: members.iter().filter(|member| member.is_ready()).count(),
        requeue_in: (observed.awaited > 0).then_some(AWAIT),
        problem: None,
    };
    let pool = observed.pool.as_ref();
    if pool.is_deleting() {
        plan.steps = deletion(observed);
        return plan;
    }
    if !is_held(&pool.metadata) {
        plan.steps.push(Step::AddFinalizer);
    }
    // Also of a pool that does nothing else: users have deleted them.
    let ended = waiting(observed).filter(|vm| !still_writes(observed, vm));
    plan.steps.extend(ended.map(|vm| let_go(observed, vm)));
    let template = &pool.spec.virtual_machine_template;
    if !matches(pool, &texts(template.pointer("/metadata/labels"))) {
        // Every VM that it created would be a stranger at once.
        plan.problem = Some(UNMATCHED);
        return plan;
    }
    plan.steps.extend(releases(observed));
    if pool.spec.paused == Some(true) {
        return plan;
    }
    let failing = healing::failing(observed);
    plan.requeue_in = earlier(plan.requeue_in, failing.next);
    let is_failing = |member: &Member| failing.ordinals.contains(&member.ordinal);
    let failing = live(observed).filter(|member| is_failing(member));
    let mut changes: Vec<Step> = failing
        .take(BURST)
        .map(|member| Step::Delete(Arc::clone(&member.vm)))
        .collect();
    changes.extend(scale(observed, is_failing));
    // The template is followed when the number is right.
    if changes.is_empty() && observed.awaited == 0 {
        changes = update::steps(observed);
    }
    plan.steps.extend(changes);
    plan
}

/// Members that are not being deleted.
pub(super) fn live(observed: &Observed) -> impl Iterator<Item = &Member> + Clone {
    let members = observed.members.iter();
    members.filter(|member| !member.is_leaving)
}

/// Gives up VMs that do not belong to the pool any more.
fn releases(observed: &Observed) -> impl Iterator<Item = Step> {
    let all = observed.strangers.iter().chain(&observed.orphans);
    let live = all.filter(|vm| vm.metadata.deletion_timestamp.is_none());
    live.map(Arc::clone).map(Step::Release)
}

/// VMs that are being deleted and wait for this controller.
fn waiting(observed: &Observed) -> impl Iterator<Item = &Arc<Vm>> {
    let members = observed.members.iter().map(|member| &member.vm);
    let all = members.chain(&observed.strangers).chain(&observed.orphans);
    all.filter(|vm| vm.metadata.deletion_timestamp.is_some() && is_held(&vm.metadata))
}

/// The disks of a VM are kept for another one, which may not have them before this guest has ended.
fn still_writes(observed: &Observed, vm: &Vm) -> bool {
    let is_this = |member: &&Member| member.vm.metadata.uid == vm.metadata.uid;
    let member = observed.members.iter().find(is_this);
    observed.pool.spec.disks() == Disks::Kept && member.is_some_and(|one| one.guest.is_some())
}

/// The VMs are left to the garbage collector, which may not delete them while they are held.
fn deletion(observed: &Observed) -> Vec<Step> {
    let mut steps: Vec<Step> = releases(observed).collect();
    let members = observed.members.iter().map(|member| &member.vm);
    let live = members.filter(|vm| vm.metadata.deletion_timestamp.is_none());
    let held = live.filter(|vm| is_held(&vm.metadata));
    steps.extend(held.chain(waiting(observed)).map(|vm| let_go(observed, vm)));
    // VMs that outlive the pool do not need them.
    let revisions = observed.revisions.values().map(Arc::clone);
    steps.extend(revisions.map(Step::Prune));
    // A VM that the cache does not show yet has the finalizer, too.
    if is_held(&observed.pool.metadata) && observed.awaited == 0 {
        steps.push(Step::RemoveFinalizer);
    }
    steps
}

/// Whoever deletes a VM in the foreground asks for the deletion of its disks.
fn let_go(observed: &Observed, vm: &Arc<Vm>) -> Step {
    let mut finalizers = vm.metadata.finalizers.iter().flatten();
    let takes_disks = finalizers.any(|finalizer| finalizer == FOREGROUND);
    let disks = if takes_disks || vm.metadata.deletion_timestamp.is_none() {
        Disks::Deleted
    } else {
        observed.pool.spec.disks()
    };
    Step::LetGo(Arc::clone(vm), disks)
}

/// Creates missing VMs, and deletes VMs that are too many.
fn scale(observed: &Observed, is_failing: impl Fn(&Member) -> bool) -> Vec<Step> {
    let spec = &observed.pool.spec;
    let wanted = spec.wanted();
    // A VM that is being deleted still has its name.
    let there = observed.members.len() + observed.awaited;
    if there < wanted {
        let free = (0..=u32::MAX).filter(|ordinal| !observed.taken.contains(ordinal));
        let created = free.take((wanted - there).min(BURST)).map(Step::Create);
        return std::iter::once(Step::KeepRevision).chain(created).collect();
    }
    let ScaleIn::ByPool(policy) = spec.scale_in() else {
        return Vec::new();
    };
    let kept = live(observed).filter(|member| !is_failing(member));
    let leaving = observed.members.len() - kept.clone().count();
    let surplus = there.saturating_sub(wanted).saturating_sub(leaving);
    let chosen = chosen(kept, policy, &seed(&observed.pool));
    let deleted = chosen.into_iter().take(surplus.min(BURST));
    deleted
        .map(|member| Step::Delete(Arc::clone(&member.vm)))
        .collect()
}

fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}
