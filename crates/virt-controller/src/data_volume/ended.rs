//! Why the pod of an import does not run, and when another one may.

use import_report::Report;
use jiff::SignedDuration;
use kubevirt_api::annotations;
use reasons::Reason;

use super::plan::Verdict;
use super::view::{End, ImporterPod, PodPhase};

/// How long a failed pod stays before the next one takes its place; doubles each time.
const FIRST_DELAY: i64 = 10;
const LONGEST_DELAY: i64 = 300;

/// Why the container does not start.
pub(crate) fn waiting(reason: &str, message: &str) -> Verdict {
    let known = reason.parse::<Reason>().ok();
    let fails = known.filter(|reason| Reason::CONTAINER_WAITS.contains(reason));
    match fails {
        None => Verdict::no(None, "the importer's pod is starting"),
        Some(
            Reason::ErrImagePull
            | Reason::ImagePullBackOff
            | Reason::ErrImageNeverPull
            | Reason::InvalidImageName
            | Reason::ImageInspectError
            | Reason::RegistryUnavailable
            | Reason::SignatureValidationFailed,
        ) => Verdict::no(
            Some(Reason::ImagePullFailed),
            format!("{reason}: {message}"),
        ),
        Some(_) => Verdict::no(Some(Reason::ImportFailed), format!("{reason}: {message}")),
    }
}

/// How long a failed pod stays.
pub(crate) fn delay(restarts: i32) -> SignedDuration {
    let doublings = u32::try_from(restarts.clamp(1, 10) - 1).unwrap_or(0);
    SignedDuration::from_secs((FIRST_DELAY << doublings).min(LONGEST_DELAY))
}

/// Of all pods that were created for the same claim.
pub(crate) fn restarts(pod: &ImporterPod) -> i32 {
    let before = pod.metadata.annotations.as_ref();
    let before = before.and_then(|all| all.get(annotations::IMPORT_RESTARTS));
    let before = before.and_then(|number| number.parse().ok()).unwrap_or(0);
    let failed = i32::from(pod.phase == PodPhase::Failed);
    i32::saturating_add(before, pod.restarts).saturating_add(failed)
}

pub(crate) enum Permanence {
    Retried,
    Final,
}

/// Why the container ended.
pub(crate) fn problem(end: &End) -> (Reason, String, Permanence) {
    let Some(report) = Report::read(&end.message) else {
        let (code, reason) = (end.exit_code, &end.reason);
        let message = format!("the importer ended with exit code {code}: {reason}");
        return (Reason::ImportFailed, message, Permanence::Retried);
    };
    let reason = report.reason.and_then(|reason| reason.parse().ok());
    let permanence = if report.transient {
        Permanence::Retried
    } else {
        Permanence::Final
    };
    let reason = reason.unwrap_or(Reason::ImportFailed);
    (reason, report.message, permanence)
}

pub(crate) fn is_deleting(pod: &ImporterPod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}
