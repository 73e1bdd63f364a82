//! The status of a data volume.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kubevirt_api::conditions::{self, ConditionValue, FALSE, TRUE};
use kubevirt_api::data_volume_status::{
    DataVolume as Whole, DataVolumeConditionType as Type, DataVolumePhase as Phase,
    DataVolumeStatus as Status,
};
use reasons::Reason;
use reconcile::{Fragment, Key};
use serde_json::json;

use super::observe::Observed;
use super::plan::{Outcome, Verdict};
use crate::MANAGER;

const UNKNOWN_PROGRESS: &str = "N/A";

/// A step that the API server refused.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    pub(super) message: String,
}

pub(super) fn render(observed: &Observed, outcome: &Outcome, failure: Option<&Failure>) -> Status {
    let whole = observed.whole();
    let old = whole.and_then(|whole| whole.status.clone());
    let old = old.unwrap_or_default();
    let now = Time(observed.now);
    let refused = failure.map(|failure| Verdict {
        holds: false,
        reason: Some(failure.reason),
        message: failure.message.clone(),
    });
    let running = refused.as_ref().unwrap_or(&outcome.running);
    let mut all = old.conditions;
    let is_done = outcome.phase == Phase::Succeeded && failure.is_none();
    let ready = Verdict {
        holds: is_done,
        reason: running.reason.filter(|_| !is_done),
        message: if is_done {
            "the claim is populated".to_owned()
        } else {
            running.message.clone()
        },
    };
    for (kind, verdict) in [
        (Type::Ready, &ready),
        (Type::Bound, &bound(observed)),
        (Type::Running, running),
    ] {
        let message = match verdict.reason {
            Some(reason) => reason.advise(&verdict.message),
            None => verdict.message.clone(),
        };
        let value = ConditionValue {
            status: if verdict.holds { TRUE } else { FALSE },
            reason: verdict.reason.map_or("", Reason::as_str),
            message: &message,
        };
        conditions::set(&mut all, kind, &value, &now);
    }
    let phase = match failure {
        Some(_) => old.phase.unwrap_or(Phase::Pending),
        None => outcome.phase.clone(),
    };
    let progress = outcome.progress.clone().or(old.progress);
    Status {
        claim_name: Some(observed.volume.name_any()),
        phase: Some(phase),
        progress: progress.or_else(|| Some(UNKNOWN_PROGRESS.to_owned())),
        restart_count: outcome.restarts.or(old.restart_count),
        conditions: all,
    }
}

fn bound(observed: &Observed) -> Verdict {
    let name = observed.volume.name_any();
    let (holds, reason, message) = match observed.claim.as_deref() {
        None => (false, None, "there is no claim yet".to_owned()),
        Some(claim) if claim.is_bound => {
            (true, None, format!("persistentvolumeclaim {name} is bound"))
        }
        Some(claim) if claim.is_lost => (
            false,
            Some(Reason::ClaimLost),
            format!("persistentvolumeclaim {name} has lost its volume"),
        ),
        Some(_) => {
            let waits = observed.waits_for_consumer;
            let message = format!("persistentvolumeclaim {name} is not bound to a volume yet");
            (
                false,
                waits.then_some(Reason::WaitForFirstConsumer),
                message,
            )
        }
    };
    Verdict {
        holds,
        reason,
        message,
    }
}

/// The status to apply, or `None` if nothing changed.
pub(super) fn fragment<'a>(whole: &Whole, key: &'a Key, status: &Status) -> Option<Fragment<'a>> {
    if whole.status.as_ref() == Some(status) {
        return None;
    }
    let body = json!({
        "apiVersion": Whole::API_VERSION,
        "kind": Whole::KIND,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "resourceVersion": whole.metadata.resource_version,
        },
        "status": status,
    });
    Some(Fragment::of_status(MANAGER, key, body))
}
