//! Pure planning: maps an export, its source and its pod to the next step, and to the state that users see.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubevirt_api::export::{ConditionType, VirtualMachineExport};
use reasons::Reason;

use super::observe::{Front, Observed, Source, Volume};
use super::pod::Served;
use super::view::{ExporterPod, State};
use crate::operation::{self, RETRY};

/// How long an export lives that does not say so, as in `KubeVirt`.
const LIFETIME: SignedDuration = SignedDuration::from_hours(2);
/// How soon a pod that failed is replaced.
const PAUSE: SignedDuration = SignedDuration::from_secs(10);
/// How often to look whether another pod uses the claims; guests are noticed at once.
const WATCH: Duration = Duration::from_secs(30);
/// How often to look whether a claim is free.
const IN_USE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    DeleteExport,
    /// Creates the claims of a snapshot that do not exist.
    CreateClaims,
    /// Creates the certificate and the service.
    Publish,
    /// Creates the token, the manifests and the pod.
    Start,
    /// With the reason of its event.
    DeletePod(Reason, String),
}

/// A reason and what happened.
pub(super) type Cause = (Reason, String);

/// What users see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// The export is being deleted.
    Ended,
    /// The source cannot be offered now.
    Waits {
        ready: Cause,
        claims: Claims,
    },
    /// There is nothing to export.
    Skipped(Cause),
    Starting(Cause),
    Ready,
    Terminated(Cause),
}

/// What the condition about the claims says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Claims {
    Unknown,
    Ready,
    NotReady(Cause),
}

pub(super) type Plan = operation::Plan<Step, Progress>;

/// When the export ends.
pub(super) fn expiry(export: &VirtualMachineExport) -> Option<Timestamp> {
    let status = export.status.as_ref();
    if let Some(at) = status.and_then(|status| status.ttl_expiration_time.as_ref()) {
        return Some(at.0);
    }
    let created = export.metadata.creation_timestamp.as_ref()?.0;
    let lifetime = export.spec.ttl_duration.as_ref();
    // Admission refuses what is no duration.
    let lifetime = lifetime.and_then(|text| text.parse().ok());
    let end = created.checked_add(lifetime.unwrap_or(LIFETIME));
    Some(end.unwrap_or(Timestamp::MAX))
}

/// The type of the condition about the claims.
pub(super) fn claims_condition(export: &VirtualMachineExport) -> ConditionType {
    if export.spec.source.kind == "VirtualMachineSnapshot" {
        ConditionType::VolumesCreated
    } else {
        ConditionType::PvcReady
    }
}

pub(super) fn plan(observed: &Observed) -> Plan {
    if observed.export.metadata.deletion_timestamp.is_some() {
        return Plan::state(Progress::Ended);
    }
    let expiry = expiry(&observed.export);
    if observed.is_over || expiry.is_some_and(|at| at <= observed.now) {
        return Plan::step(Step::DeleteExport, Progress::Ended);
    }
    let mut plan = living(observed);
    if let Some(expiry) = expiry {
        let left = observed.now.duration_until(expiry).unsigned_abs();
        plan.requeue_in = Some(plan.requeue_in.map_or(left, |pause| pause.min(left)));
    }
    plan
}

fn living(observed: &Observed) -> Plan {
    let pod = observed.pod.as_deref();
    match check(observed) {
        Err(Obstacle::Empty(cause)) => without_pod(pod, Progress::Skipped(cause)),
        Err(Obstacle::Wait(ready, claims)) => {
            let is_busy = ready.0 == Reason::ExportSourceInUse;
            let mut plan = without_pod(pod, Progress::Waits { ready, claims });
            plan.requeue_in = Some(if is_busy { IN_USE } else { RETRY });
            plan
        }
        Err(Obstacle::CreateClaims) => {
            let message = "claims are being restored from the snapshot".to_owned();
            let cause = (Reason::NotAllPVCsCreated, message);
            let claims = Claims::NotReady(cause.clone());
            let progress = Progress::Waits {
                ready: cause,
                claims,
            };
            Plan::step(Step::CreateClaims, progress)
        }
        Ok(()) => serve(observed, pod),
    }
}

/// A pod may not keep claims that something else needs.
fn without_pod(pod: Option<&ExporterPod>, progress: Progress) -> Plan {
    let (Progress::Waits { ready: cause, .. } | Progress::Skipped(cause)) = &progress else {
        return Plan::state(progress);
    };
    match pod {
        Some(pod) if !is_deleting(pod) => {
            let message = cause.1.clone();
            Plan::step(Step::DeletePod(Reason::ExportPaused, message), progress)
        }
        _ => Plan::state(progress),
    }
}

fn serve(observed: &Observed, pod: Option<&ExporterPod>) -> Plan {
    let starting =
        |message: &str| Progress::Starting((Reason::ExporterPodPending, message.to_owned()));
    match &observed.front {
        Front::None => return Plan::step(Step::Publish, starting("the service is being created")),
        Front::Taken => {
            let message = "the service of the export has the name of another one";
            let cause = (Reason::Initializing, message.to_owned());
            let claims = Claims::Ready;
            return Plan::retried(Progress::Waits {
                ready: cause,
                claims,
            });
        }
        Front::Ready { .. } => {}
    }
    let Some(pod) = pod else {
        return Plan::step(Step::Start, starting("the export server is being created"));
    };
    if is_deleting(pod) {
        return Plan::retried(starting("the last export server is being deleted"));
    }
    if Served::wanted(observed).as_ref() != Some(&pod.served) {
        let message = "the volumes of the export have changed";
        let step = Step::DeletePod(Reason::ExportPaused, message.to_owned());
        return Plan::step(step, starting(message));
    }
    match &pod.state {
        State::Ready => {
            let mut plan = Plan::state(Progress::Ready);
            plan.requeue_in = Some(WATCH);
            plan
        }
        State::Starting(why) => {
            let message = why.as_deref().unwrap_or("the export server is starting");
            Plan::state(starting(message))
        }
        State::Completed => {
            let message = "the export server has ended".to_owned();
            Plan::state(Progress::Terminated((Reason::PodCompleted, message)))
        }
        State::Failed { message, at } => failed(observed, message, *at),
    }
}

/// An eviction, or a node that is gone.
fn failed(observed: &Observed, message: &str, at: Option<Timestamp>) -> Plan {
    let message = format!("the pod of the export server failed: {message}");
    let progress = Progress::Starting((Reason::ExporterPodPending, message.clone()));
    let created = observed.pod.as_deref().and_then(|pod| {
        let at = pod.metadata.creation_timestamp.as_ref()?;
        Some(at.0)
    });
    let due = at.or(created).and_then(|at| at.checked_add(PAUSE).ok());
    match due.filter(|due| *due > observed.now) {
        Some(due) => {
            let mut plan = Plan::state(progress);
            plan.requeue_in = Some(observed.now.duration_until(due).unsigned_abs());
            plan
        }
        None => Plan::step(
            Step::DeletePod(Reason::ExporterPodFailedOrCompleted, message),
            progress,
        ),
    }
}

fn is_deleting(pod: &ExporterPod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Why nothing can be served.
enum Obstacle {
    Empty(Cause),
    Wait(Cause, Claims),
    CreateClaims,
}

impl Obstacle {
    fn wait(reason: Reason, message: impl Into<String>) -> Self {
        Self::Wait((reason, message.into()), Claims::Unknown)
    }

    fn claims(ready: Reason, claims: Reason, message: String) -> Self {
        Self::Wait(
            (ready, message.clone()),
            Claims::NotReady((claims, message)),
        )
    }
}

fn check(observed: &Observed) -> Result<(), Obstacle> {
    let source = &observed.export.spec.source;
    let (kind, name) = (&source.kind, &source.name);
    match &observed.source {
        Source::Unknown => {
            let message = format!("{kind} cannot be exported by this version");
            return Err(Obstacle::Empty((Reason::FeatureNotSupported, message)));
        }
        Source::Missing => {
            let message = format!("{kind} {name} does not exist");
            return Err(match kind.as_str() {
                "VirtualMachine" => Obstacle::wait(Reason::ExportVMNotFound, message),
                "VirtualMachineSnapshot" => Obstacle::wait(Reason::VMSnapshotNotFound, message),
                "VirtualMachineBackup" => Obstacle::wait(Reason::Initializing, message),
                _ => Obstacle::claims(Reason::Initializing, Reason::ExportPVCNotFound, message),
            });
        }
        Source::NotReady(why) => {
            let reason = Reason::NotAllPVCsCreated;
            return Err(Obstacle::claims(reason, reason, why.clone()));
        }
        Source::Machine { .. } if observed.volumes.is_empty() => {
            let message = format!("VirtualMachine {name} has no volume with a claim");
            return Err(Obstacle::Empty((Reason::VMNoVolumes, message)));
        }
        Source::Snapshot(_) if observed.volumes.is_empty() => {
            let message = format!("VirtualMachineSnapshot {name} has no volumes");
            return Err(Obstacle::Empty((Reason::VMSnapshotNoVolumes, message)));
        }
        Source::NotOffered(why) => {
            return Err(Obstacle::wait(Reason::Initializing, why.clone()));
        }
        Source::Claim | Source::Machine { .. } | Source::Snapshot(_) | Source::Backup(_) => {}
    }
    check_restored(&observed.volumes)?;
    observed.volumes.iter().try_for_each(check_claim)?;
    if let Source::Machine {
        has_guest: true, ..
    } = &observed.source
    {
        let message = format!("VirtualMachine {name} is running");
        return Err(Obstacle::Wait(
            (Reason::ExportSourceInUse, message),
            Claims::Ready,
        ));
    }
    observed.volumes.iter().try_for_each(check_user)
}

/// The claims of a snapshot.
fn check_restored(volumes: &[Volume]) -> Result<(), Obstacle> {
    let mut missing = false;
    for volume in volumes {
        let Some(restored) = &volume.restored else {
            continue;
        };
        match &volume.claim {
            None if !restored.has_copy => {
                let reason = Reason::NotAllPVCsCreated;
                let message = format!(
                    "the volume snapshot of volume {} is gone or being deleted",
                    volume.name
                );
                return Err(Obstacle::claims(reason, reason, message));
            }
            None => missing = true,
            Some(_) if !restored.is_ours => {
                let reason = Reason::NotAllPVCsCreated;
                let message = format!(
                    "claim {} exists already and does not belong to the export",
                    volume.claim_name
                );
                return Err(Obstacle::claims(reason, reason, message));
            }
            Some(_) => {}
        }
    }
    if missing {
        Err(Obstacle::CreateClaims)
    } else {
        Ok(())
    }
}

fn check_claim(volume: &Volume) -> Result<(), Obstacle> {
    let name = &volume.claim_name;
    let Some(claim) = &volume.claim else {
        let message = format!("claim {name} does not exist");
        return Err(Obstacle::claims(
            Reason::VolumesNotPopulated,
            Reason::ExportPVCNotFound,
            message,
        ));
    };
    // It is not gone before the pod is.
    if claim.metadata.deletion_timestamp.is_some() {
        let message = format!("claim {name} is being deleted");
        return Err(Obstacle::claims(
            Reason::VolumesNotPopulated,
            Reason::ExportPVCNotFound,
            message,
        ));
    }
    // The pod has a claim of a snapshot bound.
    let binds_by_pod = (volume.restored.is_some() || volume.is_own) && volume.waits_for_consumer;
    if volume.is_populated || binds_by_pod {
        return Ok(());
    }
    let message = if claim.is_lost {
        format!("claim {name} has lost its volume")
    } else if claim.is_bound {
        format!("claim {name} does not have its data yet")
    } else if volume.waits_for_consumer {
        format!("claim {name} has no volume, because nothing has used it yet")
    } else {
        format!("claim {name} is not bound to a volume yet")
    };
    let reason = if volume.restored.is_some() {
        Reason::NotAllPVCsReady
    } else {
        Reason::ExportPVCPending
    };
    Err(Obstacle::claims(Reason::ExportPVCPending, reason, message))
}

fn check_user(volume: &Volume) -> Result<(), Obstacle> {
    let Some(user) = &volume.user else {
        return Ok(());
    };
    let message = format!("{user} uses claim {}", volume.claim_name);
    Err(Obstacle::Wait(
        (Reason::ExportSourceInUse, message),
        Claims::Ready,
    ))
}
