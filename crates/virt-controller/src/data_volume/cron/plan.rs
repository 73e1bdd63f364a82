//! Pure planning: when to look for a new version of an image, what to import, and what to delete.
//!
//! **Invariants**: the data source never leads to an import that is not complete; the latest import is never deleted
//! for being old; a version is imported once.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::data_import_cron::{
    DataImportCron, DataImportCronGarbageCollect, DataImportCronStatus, ImportStatus,
};
use kubevirt_api::data_volume::DataVolumeSourcePvc;
use kubevirt_api::data_volume_status::DataVolumePhase;
use kubevirt_api::storage_profile::DataImportCronSourceFormat;
use reasons::Reason;

use super::super::ended::{Permanence, is_deleting, problem, waiting};
use super::super::request::{Refusal, Request};
use super::super::view::{Container, ImporterPod, PodPhase};
use super::observe::{Import, Managed};
use super::schedule::Schedule;

/// Imports that are kept unless a number is given.
const KEPT: usize = 3;
/// Digits of the digest in the name of a data volume, as in CDI.
const DIGITS: usize = 12;
/// The longest time without another look, as clocks are set.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

#[derive(Debug)]
pub(super) struct Observed {
    pub(super) cron: Arc<DataImportCron>,
    /// `None` looks once.
    pub(super) schedule: Result<Option<Schedule>, Refusal>,
    /// What the template asks for.
    pub(super) request: Result<Request, Refusal>,
    /// The pod that finds out the version.
    pub(super) pod: Option<Arc<ImporterPod>>,
    /// Its data volumes, the newest first.
    pub(super) imports: Vec<Import>,
    pub(super) managed: Managed,
    pub(super) now: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    CreatePod,
    Import(ImportStatus),
    /// Have the data source stand for this claim.
    Point(String),
}

/// Steps after the status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cleanup {
    DeletePod,
    /// The data volume of this name.
    DeleteImport(String),
}

/// A condition: whether it holds, why, and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) holds: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

#[derive(Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) status: DataImportCronStatus,
    pub(super) progressing: Verdict,
    pub(super) up_to_date: Verdict,
    pub(super) cleanups: Vec<Cleanup>,
    pub(super) requeue_in: Option<Duration>,
}

/// What the last look has found.
enum Look {
    /// None yet, or not now.
    None,
    Runs(String),
    Found(String),
    Failed(Reason, String),
}

/// The name of the data volume of a version.
pub(super) fn import_name(source: &str, digest: &str) -> String {
    let digits = digest.strip_prefix("sha256:").unwrap_or(digest);
    let digits = digits.get(..DIGITS).unwrap_or(digits);
    format!("{source}-{digits}")
}

pub(super) fn plan(observed: &Observed) -> Plan {
    let mut plan = Plan {
        steps: Vec::new(),
        status: observed.cron.status.clone().unwrap_or_default(),
        progressing: no("NoImport", "nothing is being imported"),
        up_to_date: no("NoImport", "nothing was imported yet"),
        cleanups: Vec::new(),
        requeue_in: None,
    };
    let refusal = observed
        .schedule
        .as_ref()
        .err()
        .or(observed.request.as_ref().err());
    if let Some(Refusal(text)) = refusal {
        // The text names the field, and the object itself can be changed, unlike a data volume.
        plan.up_to_date = no(Reason::ImportNotSupported.as_str(), text.clone());
        return plan;
    }
    if let Managed::Foreign = observed.managed {
        let name = &observed.cron.spec.managed_data_source;
        let message = format!("data source {name} was not made by this object; name another one");
        plan.up_to_date = no(Reason::ImportNotSupported.as_str(), message);
        return plan;
    }
    plan.status.source_format = Some(DataImportCronSourceFormat::Pvc);
    let look = look(observed, &mut plan);
    match &look {
        Look::Found(digest) => found(observed, &mut plan, digest),
        Look::None | Look::Runs(_) | Look::Failed(..) => {}
    }
    import(observed, &mut plan);
    match look {
        Look::Runs(message) if !plan.progressing.holds => {
            plan.progressing = Verdict {
                holds: true,
                reason: "Polling",
                message,
            };
        }
        Look::Failed(reason, message) => plan.up_to_date = failed(reason, &message),
        _ => {}
    }
    collect(observed, &mut plan);
    plan
}

/// What the pod has found, or whether one is due.
fn look(observed: &Observed, plan: &mut Plan) -> Look {
    let last = plan.status.last_execution_timestamp.as_ref().map(|at| at.0);
    let Some(pod) = observed.pod.as_deref() else {
        let has_found = !plan.status.current_imports.is_empty();
        let due = due(observed, last, has_found);
        match due {
            Some(due) if due <= observed.now => {
                plan.status.last_execution_timestamp = Some(Time(observed.now));
                plan.steps.push(Step::CreatePod);
                return Look::Runs(
                    "a pod that looks for a new version is being created".to_owned(),
                );
            }
            Some(due) => {
                let left = observed.now.duration_until(due).unsigned_abs();
                plan.requeue_in = Some(left.min(LONGEST_PAUSE));
            }
            None => {}
        }
        return Look::None;
    };
    // A process that ended after it created the pod did not write the time.
    let created = pod.metadata.creation_timestamp.as_ref().map(|at| at.0);
    plan.status.last_execution_timestamp = last.max(created).map(Time);
    if is_deleting(pod) {
        return Look::None;
    }
    let end = pod.last_end.as_ref();
    match (pod.phase, end) {
        (PodPhase::Succeeded, Some(end)) => {
            plan.cleanups.push(Cleanup::DeletePod);
            match digest(&end.message) {
                Some(digest) => Look::Found(digest),
                None => Look::Failed(
                    Reason::ImportFailed,
                    "the pod that looks for a new version reported none".to_owned(),
                ),
            }
        }
        (PodPhase::Succeeded, None) => Look::Runs("the pod has ended".to_owned()),
        (phase, Some(end)) if end.exit_code != 0 => {
            let (reason, message, permanence) = problem(end);
            if phase == PodPhase::Failed || matches!(permanence, Permanence::Final) {
                plan.cleanups.push(Cleanup::DeletePod);
            }
            Look::Failed(reason, message)
        }
        (PodPhase::Failed, _) => {
            plan.cleanups.push(Cleanup::DeletePod);
            let why = pod.message.as_deref().unwrap_or("its node gave no reason");
            let message = format!("the pod that looks for a new version failed: {why}");
            Look::Failed(Reason::ImportFailed, message)
        }
        (PodPhase::Pending | PodPhase::Running, _) => match &pod.container {
            Container::Waiting { reason, message } => {
                let verdict = waiting(reason, message);
                match verdict.reason {
                    Some(reason) => Look::Failed(reason, verdict.message),
                    None => Look::Runs("the pod that looks for a new version starts".to_owned()),
                }
            }
            _ => Look::Runs(match &pod.unschedulable {
                Some(why) => format!("no node takes the pod that looks for a new version: {why}"),
                None => "a pod looks for a new version".to_owned(),
            }),
        },
    }
}

/// When to look next; `None` never. Without a schedule, looks until one `has_found` a version.
fn due(observed: &Observed, last: Option<Timestamp>, has_found: bool) -> Option<Timestamp> {
    let Some(last) = last else {
        return Some(observed.now);
    };
    match observed.schedule.as_ref().ok()? {
        Some(schedule) => schedule.next_after(last),
        None if has_found => None,
        None => last.checked_add(SignedDuration::from_hours(1)).ok(),
    }
}

/// The digest in a termination message. The message is not trusted: it may be what the image wants it to be.
fn digest(message: &str) -> Option<String> {
    let report = import_report::Report::read(message)?;
    let digits = report.message.strip_prefix("sha256:")?;
    let is_digest = digits.len() == 64
        && digits
            .bytes()
            .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    is_digest.then_some(report.message)
}

/// Imports a version, unless it was.
fn found(observed: &Observed, plan: &mut Plan, digest: &str) {
    let wanted = ImportStatus {
        data_volume_name: import_name(&observed.cron.spec.managed_data_source, digest),
        digest: digest.to_owned(),
    };
    let known = observed
        .imports
        .iter()
        .find(|import| import.name == wanted.data_volume_name);
    match known {
        None => plan.steps.push(Step::Import(wanted.clone())),
        // The next pass creates it again.
        Some(import) if import.phase == DataVolumePhase::Failed => {
            plan.cleanups = vec![Cleanup::DeleteImport(import.name.clone())];
        }
        Some(_) => {}
    }
    plan.status.current_imports = vec![wanted];
}

/// How far the latest import is.
fn import(observed: &Observed, plan: &mut Plan) {
    let Some(current) = plan.status.current_imports.first() else {
        return;
    };
    let name = current.data_volume_name.clone();
    let found = observed.imports.iter().find(|import| import.name == name);
    let is_importing = plan
        .steps
        .iter()
        .any(|step| matches!(step, Step::Import(_)));
    match found.map(|import| &import.phase) {
        Some(DataVolumePhase::Succeeded) => {
            plan.up_to_date = Verdict {
                holds: true,
                reason: "UpToDate",
                message: format!("data volume {name} is the latest version"),
            };
            if observed.managed != Managed::Ours(Some(name.clone())) {
                plan.steps.push(Step::Point(name.clone()));
            }
            let claim = DataVolumeSourcePvc {
                namespace: observed.cron.metadata.namespace.clone().unwrap_or_default(),
                name,
            };
            if plan.status.last_imported_pvc.as_ref() != Some(&claim) {
                plan.status.last_imported_pvc = Some(claim);
                plan.status.last_import_timestamp = Some(Time(observed.now));
            }
        }
        Some(DataVolumePhase::Failed) => {
            let message = format!(
                "data volume {name} has failed; it is imported again at the next time of the \
                 schedule"
            );
            plan.up_to_date = failed(Reason::ImportFailed, &message);
        }
        None if !is_importing => {
            let message = format!(
                "data volume {name} is gone; it is imported again at the next time of the schedule"
            );
            plan.up_to_date = no("NoImport", message);
        }
        phase => {
            let phase = phase.map_or("", DataVolumePhase::as_str);
            let phase = if phase.is_empty() { "Pending" } else { phase };
            plan.progressing = Verdict {
                holds: true,
                reason: "ImportProgressing",
                message: format!("data volume {name} is {phase}"),
            };
            plan.up_to_date = no("Outdated", format!("data volume {name} is being imported"));
        }
    }
}

/// Deletes imports that are neither among the newest nor in use by the data source.
fn collect(observed: &Observed, plan: &mut Plan) {
    let spec = &observed.cron.spec;
    if spec.garbage_collect == Some(DataImportCronGarbageCollect::Never) {
        return;
    }
    let kept = spec
        .imports_to_keep
        .map(|kept| usize::try_from(kept.max(1)));
    let kept = kept.and_then(Result::ok).unwrap_or(KEPT);
    let current = plan.status.current_imports.first();
    let current = current.map(|import| import.data_volume_name.clone());
    let last = plan.status.last_imported_pvc.as_ref();
    let last = last.map(|claim| claim.name.clone());
    let is_needed = |name: &String| {
        current.as_ref() == Some(name)
            || last.as_ref() == Some(name)
            || observed.managed == Managed::Ours(Some(name.clone()))
    };
    let old = observed.imports.iter().skip(kept);
    let old = old.filter(|import| !import.is_deleting && !is_needed(&import.name));
    plan.cleanups
        .extend(old.map(|import| Cleanup::DeleteImport(import.name.clone())));
}

fn failed(reason: Reason, message: &str) -> Verdict {
    no(reason.as_str(), reason.advise(message))
}

fn no(reason: &'static str, message: impl Into<String>) -> Verdict {
    Verdict {
        holds: false,
        reason,
        message: message.into(),
    }
}
