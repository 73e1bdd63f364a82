//! Which members fail to start, so that another VM takes their number: pure.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::SignedDuration;
use kubevirt_api::conditions;
use kubevirt_api::pool::VirtualMachinePoolAutohealingStrategy as Strategy;
use kubevirt_api::vm_status::{
    VirtualMachineConditionType, VirtualMachinePrintableStatus as Printable,
};

use super::observe::{Member, Observed};
use super::plan::live;

/// Failed starts in a row.
const THRESHOLD: u32 = 3;
const MIN_DURATION: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug, Default)]
pub(super) struct Failing {
    pub(super) ordinals: BTreeSet<u32>,
    /// When the next member may have failed for long enough.
    pub(super) next: Option<Duration>,
}

/// The members that have failed too often or for too long, if the pool replaces such VMs.
pub(super) fn failing(observed: &Observed) -> Failing {
    let mut found = Failing::default();
    let Some(strategy) = &observed.pool.spec.autohealing else {
        return found;
    };
    for member in live(observed) {
        let Some(left) = left(observed, strategy, member) else {
            continue;
        };
        match Duration::try_from(left) {
            Ok(left) if !left.is_zero() => {
                found.next = Some(found.next.map_or(left, |next| next.min(left)));
            }
            _ => {
                found.ordinals.insert(member.ordinal);
            }
        }
    }
    found
}

/// How long the member may still fail, or `None` if it does not.
fn left(observed: &Observed, strategy: &Strategy, member: &Member) -> Option<SignedDuration> {
    let status = member.vm.status();
    let failures = status.start_failure.as_ref();
    let failures = failures.and_then(|failure| failure.consecutive_fail_count);
    let threshold = strategy.start_up_failure_threshold.unwrap_or(THRESHOLD);
    if failures.is_some_and(|count| count >= i64::from(threshold)) {
        return Some(SignedDuration::ZERO);
    }
    if !status.printable_status.as_ref().is_some_and(is_failure) {
        return None;
    }
    let ready = conditions::find(&status.conditions, &VirtualMachineConditionType::Ready)?;
    if ready.status != conditions::FALSE {
        return None;
    }
    let since = ready.last_transition_time.as_ref()?.0;
    let given = strategy.min_failing_to_start_duration.as_ref();
    let limit = given.and_then(|given| given.parse().ok());
    let passed = observed.now.duration_since(since);
    Some(limit.unwrap_or(MIN_DURATION).saturating_sub(passed))
}

fn is_failure(status: &Printable) -> bool {
    matches!(
        status,
        Printable::CrashLoopBackOff
            | Printable::ErrorUnschedulable
            | Printable::DataVolumeError
            | Printable::ErrorPvcNotFound
            | Printable::ErrImagePull
            | Printable::ImagePullBackOff
    )
}
