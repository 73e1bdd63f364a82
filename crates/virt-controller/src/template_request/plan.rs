//! Pure planning: maps the observed state to the next step, and to the state that users see.

use std::time::Duration;

use jiff::SignedDuration;
use kubevirt_api::conditions::Condition as _;
use kubevirt_api::data_volume_status::{DataVolume, DataVolumeConditionType, DataVolumePhase};
use kubevirt_api::snapshot::{ConditionType, VirtualMachineSnapshot, VirtualMachineSnapshotPhase};
use kubevirt_api::template::VirtualMachineTemplate;
use kubevirt_api::{conditions, labels};
use reasons::Reason;
use reconcile::Key;
use serde_json::Value;

use super::observe::{Observed, READY, Stage, has_finalizer, phase, stage};
use super::render::{self, is_elsewhere, snapshot_name, template_name, uid, vm_key, volume_name};
use crate::clone::{cause, keeps_state, not_copyable};
use crate::operation;
use crate::restore::shared_claims;
use crate::snapshot::claim_of;
use crate::view;

/// Characters of the message of a data volume that a request repeats, whose own message is limited.
const SHOWN: usize = 200;
/// Of the one that has failed.
const SHOWN_FAILURE: usize = 1000;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    CreateSnapshot,
    /// For a disk in the snapshot.
    CreateVolume(usize),
    /// From then on, a deleted request waits for [`Self::OwnVolume`] and [`Self::DeleteSnapshot`].
    AddFinalizer,
    /// Takes a data volume from the request, so that a deletion in the foreground leaves it.
    ReleaseVolume(usize),
    CreateTemplate(Box<Value>),
    /// Gives a data volume of the request to the template.
    OwnVolume(usize),
    RemoveFinalizer,
    DeleteSnapshot,
    /// Deletes a data volume of a request that has failed.
    DeleteVolume(usize),
    DeleteRequest,
}

/// A reason and what happened.
pub(super) type Cause = (Reason, String);

/// What users see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing is done yet.
    Pending(Cause),
    /// With what a helper waits for.
    Working(Option<Cause>),
    Succeeded,
    Failed(Cause),
    /// Shown already.
    Ended,
}

pub(super) type Plan = operation::Plan<Step, Progress>;

pub(super) fn plan(observed: &Observed) -> Plan {
    if observed.request.metadata.deletion_timestamp.is_some() {
        return deleted(observed);
    }
    let ended = stage(&observed.request);
    if ended == Stage::Begun {
        return progress(observed);
    }
    let unused = left_over(observed).filter(|_| ended == Stage::Failed);
    let step = unused
        .map(Step::DeleteVolume)
        .or_else(|| left_snapshot(observed))
        // Nothing deletes released data volumes, and a snapshot in another namespace, after that.
        .or_else(|| has_finalizer(&observed.request).then_some(Step::RemoveFinalizer));
    if let Some(step) = step {
        return Plan::step(step, Progress::Ended);
    }
    match left(observed).filter(|_| ended == Stage::Succeeded) {
        None => Plan::state(Progress::Ended),
        Some(left) if left.is_zero() => Plan::step(Step::DeleteRequest, Progress::Ended),
        left => Plan {
            requeue_in: left,
            ..Plan::state(Progress::Ended)
        },
    }
}

/// The helpers go with a deleted request, but not the disks of its template.
fn deleted(observed: &Observed) -> Plan {
    if !has_finalizer(&observed.request) {
        return Plan::state(Progress::Ended);
    }
    let template = observed.template.as_ref();
    let step = match template.filter(|template| is_own(observed, template)) {
        Some(template) => not_owned(observed, template).map(Step::OwnVolume),
        None => left_over(observed).map(Step::DeleteVolume),
    };
    let step = step.or_else(|| left_snapshot(observed));
    let step = step.unwrap_or(Step::RemoveFinalizer);
    // A failure is shown: the deletion waits for it.
    Plan::step(step, Progress::Working(None))
}

fn left_snapshot(observed: &Observed) -> Option<Step> {
    let snapshot = observed.snapshot.as_ref()?;
    let is_alive = snapshot.metadata.deletion_timestamp.is_none();
    is_alive.then_some(Step::DeleteSnapshot)
}

/// A data volume that nothing but the request needs: it belongs to the request, or was released for a template.
fn left_over(observed: &Observed) -> Option<usize> {
    let request = uid(&observed.request);
    let made = format!("{}{request}-", render::VOLUME_PREFIX);
    observed.volumes.iter().position(|volume| {
        let metadata = &volume.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        let is_released = owners.is_empty() && name.starts_with(&made);
        let is_alive = metadata.deletion_timestamp.is_none();
        is_alive && (is_released || belongs_to_request(volume, request))
    })
}

fn belongs_to_request(volume: &DataVolume, request: &str) -> bool {
    let mut owners = volume.metadata.owner_references.iter().flatten();
    owners.any(|one| one.controller == Some(true) && one.uid == request)
}

/// The time until a request that has ended is deleted.
fn left(observed: &Observed) -> Option<Duration> {
    let ttl = observed.request.spec.ttl_seconds_after_finished?;
    let status = observed.request.status.as_ref()?;
    let ready = conditions::find(&status.conditions, &READY.to_owned())?;
    let age = observed.now.duration_since(ready.last_transition_time.0);
    let left = SignedDuration::from_secs(i64::from(ttl)).saturating_sub(age);
    Some(Duration::try_from(left).unwrap_or_default())
}

fn failed(reason: Reason, message: impl Into<String>) -> Plan {
    Plan::state(Progress::Failed((reason, message.into())))
}

fn impossible(message: impl Into<String>) -> Plan {
    failed(Reason::TemplateNotPossible, message)
}

fn pending(reason: Reason, message: impl Into<String>) -> Plan {
    Plan::state(Progress::Pending((reason, message.into())))
}

fn progress(observed: &Observed) -> Plan {
    let request = &observed.request;
    let Some(vm) = vm_key(request) else {
        return impossible("spec.virtualMachineRef: no VM can have that namespace and name");
    };
    if let Some(template) = &observed.template {
        return of_template(observed, template);
    }
    match &observed.snapshot {
        Some(snapshot) => of_snapshot(observed, snapshot),
        None if !observed.volumes.is_empty() => {
            let name = snapshot_name(request);
            impossible(format!(
                "VirtualMachineSnapshot {name} was deleted before the template had its data"
            ))
        }
        None => begin(observed, &vm),
    }
}

/// Whether the request has made the template.
pub(super) fn is_own(observed: &Observed, template: &VirtualMachineTemplate) -> bool {
    let all = template.metadata.labels.as_ref();
    let made_by = all.and_then(|all| all.get(labels::TEMPLATE_REQUEST_UID));
    made_by.is_some_and(|made_by| made_by == uid(&observed.request))
}

fn of_template(observed: &Observed, template: &VirtualMachineTemplate) -> Plan {
    if !is_own(observed, template) {
        let name = template_name(&observed.request);
        let message = format!("VirtualMachineTemplate {name} exists already");
        return failed(Reason::TemplateExists, message);
    }
    match not_owned(observed, template) {
        Some(index) => Plan::step(Step::OwnVolume(index), Progress::Working(None)),
        None => Plan::state(Progress::Succeeded),
    }
}

/// A data volume that does not belong to the template yet.
fn not_owned(observed: &Observed, template: &VirtualMachineTemplate) -> Option<usize> {
    let owner = template.metadata.uid.as_deref().unwrap_or_default();
    let mut volumes = observed.volumes.iter();
    volumes.position(|volume| !belongs_to(volume, owner))
}

fn belongs_to(volume: &DataVolume, owner: &str) -> bool {
    let all = volume.metadata.owner_references.as_deref();
    all.is_some_and(|all| all.iter().any(|one| one.uid == owner))
}

/// The first step.
fn begin(observed: &Observed, vm: &Key) -> Plan {
    let is_elsewhere = is_elsewhere(&observed.request);
    let name = if is_elsewhere {
        vm.to_string()
    } else {
        vm.name.clone()
    };
    let Some(source) = &observed.source else {
        let message = format!("VirtualMachine {name} does not exist");
        return pending(Reason::SourceDoesNotExist, message);
    };
    if !source.object["metadata"]["deletionTimestamp"].is_null() {
        let message = format!("VirtualMachine {name} is being deleted");
        return pending(Reason::SourceDoesNotExist, message);
    }
    // A preference may ask for it, too. What cannot be expanded now is reported later.
    let vm = observed.copied.as_ref().and_then(|vm| vm.as_ref().ok());
    if let Some(problem) = kept_state(vm.unwrap_or(&source.object)) {
        return problem;
    }
    let volumes = source.object.pointer("/spec/template/spec/volumes");
    let mut volumes = volumes.and_then(Value::as_array).into_iter().flatten();
    if !observed.has_importer && volumes.any(|volume| claim_of(volume).is_some()) {
        let message = "this cluster has no importer of data volumes, which copies the disks: install \
                       one, such as CDI";
        let cause = (Reason::VMVolumeSnapshotsInvalid, message.to_owned());
        return Plan::retried(Progress::Pending(cause));
    }
    let not_copyable = not_copyable(source);
    if !not_copyable.is_empty() {
        return pending(Reason::VMVolumeSnapshotsInvalid, not_copyable.join("; "));
    }
    // Nothing else deletes a snapshot in another namespace with its request.
    if is_elsewhere && !has_finalizer(&observed.request) {
        return Plan::step(Step::AddFinalizer, Progress::Working(None));
    }
    Plan::step(Step::CreateSnapshot, Progress::Working(None))
}

/// The failure of a VM with state that no template has.
fn kept_state(vm: &Value) -> Option<Plan> {
    match keeps_state(vm) {
        Ok(false) => None,
        Ok(true) => Some(failed(
            Reason::SourceVMWithBackendStorageInvalid,
            "the VM keeps state of its TPM or firmware",
        )),
        Err(error) => Some(impossible(format!("read the VM: {error}"))),
    }
}

/// There is a snapshot, and no template yet.
fn of_snapshot(observed: &Observed, snapshot: &VirtualMachineSnapshot) -> Plan {
    let name = snapshot_name(&observed.request);
    let status = snapshot.status.as_ref();
    let all = status.map_or(&[][..], |status| status.conditions.as_slice());
    if snapshot.metadata.deletion_timestamp.is_some() {
        return impossible(format!("VirtualMachineSnapshot {name} is being deleted"));
    }
    let phase = status.and_then(|status| status.phase.as_ref());
    if phase == Some(&VirtualMachineSnapshotPhase::Failed) {
        let cause = cause(all, &ConditionType::Failure);
        let message = cause.map(|(_, message)| message).unwrap_or_default();
        return impossible(format!(
            "VirtualMachineSnapshot {name} has failed: {message}"
        ));
    }
    if status.and_then(|status| status.ready_to_use) != Some(true) {
        return Plan::state(Progress::Working(cause(all, &ConditionType::Ready)));
    }
    match &observed.copied {
        None => impossible(format!(
            "the content of VirtualMachineSnapshot {name} is gone"
        )),
        Some(Err(message)) => impossible(format!("expand the VM: {message}")),
        Some(Ok(vm)) => of_content(observed, vm),
    }
}

/// The snapshot is ready.
fn of_content(observed: &Observed, vm: &Value) -> Plan {
    if let Some(problem) = kept_state(vm) {
        return problem;
    }
    let template = match render::template(&observed.request, vm, &observed.backups) {
        Ok(template) => template,
        Err(message) => return impossible(message),
    };
    let shared = shared_claims(vm, &template["spec"]["virtualMachine"]);
    if !shared.is_empty() {
        let names = shared.join(", ");
        return impossible(format!("the claims {names} are not in the snapshot"));
    }
    let mut unfilled = Vec::new();
    for (index, backup) in observed.backups.iter().enumerate() {
        let name = volume_name(&observed.request, backup);
        let Some(volume) = observed.volume(backup) else {
            let step = Step::CreateVolume(index);
            return Plan::step(step, Progress::Working(None));
        };
        if volume.metadata.deletion_timestamp.is_some() {
            // Also one that has its data: the template would lose it. It is made again.
            unfilled.push(format!("{name} (it is being deleted)"));
            continue;
        }
        match phase(volume) {
            DataVolumePhase::Succeeded => {}
            DataVolumePhase::Failed => {
                let view = view::DataVolume::from(volume.clone());
                let failure = view.failure(&name);
                return impossible(failure.chars().take(SHOWN_FAILURE).collect::<String>());
            }
            _ => match obstacle(volume) {
                Some(obstacle) => unfilled.push(format!("{name} ({obstacle})")),
                None => unfilled.push(name),
            },
        }
    }
    if unfilled.is_empty() {
        if !has_finalizer(&observed.request) {
            return Plan::step(Step::AddFinalizer, Progress::Working(None));
        }
        let mut volumes = observed.volumes.iter();
        let held = volumes.position(|one| belongs_to_request(one, uid(&observed.request)));
        if let Some(index) = held {
            return Plan::step(Step::ReleaseVolume(index), Progress::Working(None));
        }
        let step = Step::CreateTemplate(Box::new(template));
        return Plan::step(step, Progress::Working(None));
    }
    let message = format!("the data volumes {} get their data", unfilled.join(", "));
    let cause = (Reason::TemplateInProgress, message);
    Plan::retried(Progress::Working(Some(cause)))
}

/// Why a data volume does not get its data, as it says itself.
fn obstacle(volume: &DataVolume) -> Option<String> {
    let all = &volume.status.as_ref()?.conditions;
    let kinds = [
        DataVolumeConditionType::Running,
        DataVolumeConditionType::Bound,
    ];
    let mut found = kinds.iter().filter_map(|kind| conditions::find(all, kind));
    let found = found.find(|one| one.status() != conditions::TRUE && !one.message().is_empty())?;
    Some(found.message().chars().take(SHOWN).collect())
}
