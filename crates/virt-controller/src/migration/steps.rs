//! What a plan consists of.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubevirt_api::migration_request::VirtualMachineInstanceMigrationPhase as Phase;
use reasons::Reason;
use serde_json::Value;

/// How long the pod, and then virt-handler of its node, may take.
pub(super) const PENDING_SECONDS: i64 = 900;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    AddFinalizer,
    CreateTarget,
    /// The pod that brings volumes to the target.
    CreateAttachment,
    /// Publish the migration on the VMI: from here on virt-handlers act.
    HandOver,
    RequestAbort,
    /// Between two VMIs: tell the one that waits which guest comes, so that it gets a pod.
    Pair,
    /// Tell it that virt-handler of its node may prepare that pod.
    AcceptNode,
    /// Publish the migration on the VMI of the guest.
    HandOverElsewhere,
    /// Take over what the other end knows.
    Synchronize,
    /// End the wait for the guest.
    Withdraw,
    DeleteTarget,
    RemoveFinalizer,
    /// Delete this migration, which is one of many that have ended.
    CleanUp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) step: Option<Step>,
    pub(super) phase: Phase,
    /// Why it has failed, for the event.
    pub(super) failure: Option<String>,
    /// Why a migration between two VMIs waits, for its condition.
    pub(super) blocked: Option<(Reason, &'static str)>,
    /// Why attached volumes are not on their way to the new pod yet, for the condition.
    pub(super) waits: Option<String>,
    /// What the other end knows and this one does not, for [`Step::Synchronize`].
    pub(super) news: Option<Value>,
    /// For [`Step::Withdraw`].
    pub(super) withdrawal: Option<String>,
    pub(super) requeue_in: Option<Duration>,
}

impl Plan {
    pub(super) fn to(phase: Phase) -> Self {
        Self {
            step: None,
            phase,
            failure: None,
            blocked: None,
            waits: None,
            news: None,
            withdrawal: None,
            requeue_in: None,
        }
    }

    pub(super) fn with(self, step: Step) -> Self {
        let step = Some(step);
        Self { step, ..self }
    }

    pub(super) fn fail(message: impl Into<String>) -> Self {
        Self {
            failure: Some(message.into()),
            ..Self::to(Phase::Failed)
        }
    }

    pub(super) fn blocked(self, reason: Reason, message: &'static str) -> Self {
        let blocked = Some((reason, message));
        Self { blocked, ..self }
    }

    pub(super) fn waits_for_volumes(self, why: String) -> Self {
        let waits = Some(why);
        Self { waits, ..self }
    }

    pub(super) fn synchronize(self, news: Value) -> Self {
        Self {
            news: Some(news),
            ..self.with(Step::Synchronize)
        }
    }

    pub(super) fn withdraw(self, why: impl Into<String>) -> Self {
        Self {
            withdrawal: Some(why.into()),
            ..self.with(Step::Withdraw)
        }
    }

    pub(super) fn again_in(self, wait: Duration) -> Self {
        let requeue_in = Some(wait);
        Self { requeue_in, ..self }
    }
}

pub(super) fn time_left(now: Timestamp, since: Option<Timestamp>, limit: i64) -> Option<Duration> {
    let passed = now.duration_since(since.unwrap_or(now));
    let left = SignedDuration::from_secs(limit).saturating_sub(passed);
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}
