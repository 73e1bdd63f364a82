//! Which VMs and guests follow a changed template, and which revisions nobody needs any more: pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kubevirt_api::labels;
use serde_json::Value;

use super::choice::{chosen, seed};
use super::observe::{Member, Observed};
use super::plan::{BURST, Step, live};
use super::template::revision_name;
use super::view::PoolSpec;

/// The steps for a pool that has as many VMs as it is to have.
pub(super) fn steps(observed: &Observed) -> Vec<Step> {
    let strategy = observed.pool.spec.update_strategy.as_ref();
    if strategy.is_some_and(|strategy| strategy.unmanaged.is_some()) {
        return unused(observed);
    }
    let policy = strategy
        .and_then(|strategy| strategy.proactive.as_ref())
        .and_then(|proactive| proactive.selection_policy.as_ref());
    let restarts = strategy.is_none_or(|strategy| strategy.opportunistic.is_none());
    let members = chosen(live(observed), policy, &seed(&observed.pool));
    let is_updated = |member: &&Member| {
        is_outdated(observed, member) && !(restarts && waits_for_disks(observed, member))
    };
    let (outdated, current) = members.into_iter().partition::<Vec<_>, _>(is_updated);
    let mut steps = Vec::new();
    if !outdated.is_empty() {
        steps.push(Step::KeepRevision);
        steps.extend(outdated.into_iter().take(BURST).cloned().map(Step::Update));
    }
    if restarts {
        steps.extend(follow(observed, current));
    }
    if steps.is_empty() {
        unused(observed)
    } else {
        steps
    }
}

/// A guest whose label is missing would be restarted for ever, so the VM's template needs it as well.
fn is_outdated(observed: &Observed, member: &Member) -> bool {
    let label = &member.vm.spec.template["metadata"]["labels"][labels::POOL_REVISION_NAME];
    let template = member
        .revision()
        .and_then(|name| template_of(observed, name));
    label.as_str() != member.revision()
        || template != Some(&observed.pool.spec.virtual_machine_template)
}

/// The template of a revision. The present one may not be stored, or not be observed yet.
fn template_of<'a>(observed: &'a Observed, revision: &str) -> Option<&'a Value> {
    if revision == revision_name(&observed.pool) {
        return Some(&observed.pool.spec.virtual_machine_template);
    }
    let stored = observed.revisions.get(revision)?;
    Some(stored.template())
}

/// Whether the VM is to be made again with other disks. Until its turn comes it keeps its template: a guest that
/// starts meanwhile would count as current, with the old disks.
fn waits_for_disks(observed: &Observed, member: &Member) -> bool {
    // The VM reports a guest until it has seen the guest's end and started another one.
    let has_guest = member.guest.is_some() || member.vm.status().created == Some(true);
    let named = |name: Option<&str>| name.and_then(|name| template_of(observed, name));
    let now = named(member.guest_revision()).or_else(|| named(member.revision()));
    has_guest
        && !member.is_at_rest()
        && now.is_some_and(|now| disks(now) != disks(&observed.pool.spec.virtual_machine_template))
}

/// Has guests follow their VMs. Guests that are out of service anyway come first, since they cost nothing; of the
/// others only so many that enough stay in service.
fn follow(observed: &Observed, mut members: Vec<&Member>) -> Vec<Step> {
    let all = observed.members.iter();
    let down = all.filter(|member| member.is_leaving || !member.is_available());
    let mut budget = max_unavailable(&observed.pool.spec).saturating_sub(down.count());
    members.sort_by_key(|member| member.is_available());
    let mut steps = Vec::new();
    for member in members {
        let step = guest_step(observed, member);
        let is_free = !member.is_available() || matches!(step, Some(Step::Relabel(..)));
        if step.is_some() && !is_free {
            if budget == 0 {
                continue;
            }
            budget -= 1;
        }
        steps.extend(step);
    }
    steps.truncate(BURST);
    steps
}

/// What of a VM its guest is made from, besides the disks.
const OF_GUESTS: [&str; 3] = ["/spec/template", "/spec/instancetype", "/spec/preference"];

/// What has to happen so that the guest is as its VM says.
pub(super) fn guest_step(observed: &Observed, member: &Member) -> Option<Step> {
    let guest = member.guest.as_ref().filter(|guest| !guest.is_deleting())?;
    // The VM itself decides whether a guest that has ended starts again.
    let is_left = guest.is_final() && member.starts_on_request();
    if member.is_ending() || member.is_at_rest() || is_left {
        return None;
    }
    if waits_for_disks(observed, member) {
        return Some(Step::Recreate(Arc::clone(&member.vm)));
    }
    let revision = member.revision()?;
    let now = template_of(observed, revision)?;
    let before = member.guest_revision();
    if before == Some(revision) {
        return None;
    }
    let Some(before) = before.and_then(|name| template_of(observed, name)) else {
        return restart(member);
    };
    if disks(before) != disks(now) {
        Some(Step::Recreate(Arc::clone(&member.vm)))
    } else if OF_GUESTS
        .iter()
        .any(|path| before.pointer(path) != now.pointer(path))
    {
        restart(member)
    } else {
        Some(Step::Relabel(Arc::clone(guest), revision.to_owned()))
    }
}

/// A VM that already has requests carries them out first.
fn restart(member: &Member) -> Option<Step> {
    let is_busy =
        member.starts_on_request() && !member.vm.status().state_change_requests.is_empty();
    (!is_busy).then(|| Step::Restart(member.clone()))
}

fn disks(template: &Value) -> &[Value] {
    let all = template.pointer("/spec/dataVolumeTemplates");
    all.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// How many guests may be out of service: at least one, or nothing would ever be updated.
fn max_unavailable(spec: &PoolSpec) -> usize {
    let wanted = spec.wanted();
    let share = |percent: usize| wanted.saturating_mul(percent.min(100)) / 100;
    let number = match &spec.max_unavailable {
        None => None,
        Some(IntOrString::Int(number)) => usize::try_from(*number).ok(),
        Some(IntOrString::String(text)) => {
            let percent = text.strip_suffix('%').and_then(|text| text.parse().ok());
            percent.map(share)
        }
    };
    number.unwrap_or(wanted).max(1)
}

/// Revisions that no VM and no guest refers to. The present one stays: a VM may need it any time.
fn unused(observed: &Observed) -> Vec<Step> {
    let members = observed.members.iter();
    let names = members.flat_map(|member| [member.revision(), member.guest_revision()]);
    let needed: BTreeSet<&str> = names.flatten().collect();
    let present = revision_name(&observed.pool);
    let all = observed.revisions.iter();
    let unused = all.filter(|(name, _)| **name != present && !needed.contains(name.as_str()));
    unused
        .take(BURST)
        .map(|(_, one)| Step::Prune(Arc::clone(one)))
        .collect()
}
