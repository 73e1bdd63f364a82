//! The instance type and the preference of a VM.
//!
//! The VM's choice of both is pinned: a `ControllerRevision` of each is stored when the VM is first
//! observed with it, and VMIs are created from the revisions. Revisions of an older format are replaced.
//! If the administrator wants independent VMs, the choice is expanded into the VM instead.

mod act;
mod apply;
mod error;
mod revision;
mod upgrade;

use ::instancetype::reference::{self, Family, Reference};
use kubevirt_api::cluster_config::InstancetypeReferencePolicy as Policy;
use kubevirt_api::vm::{InstancetypeMatcher, PreferenceMatcher};
use kubevirt_api::vm_status::{ControllerRevisionRef, InstancetypeStatusRef, VirtualMachineStatus};
use serde_json::{Value, json};

use crate::vm::revision::Choice;
use crate::vm::view::Vm;

pub(crate) use error::ChoiceError;
pub(super) use upgrade::Outdated;

/// The step for the choice of a VM, before anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChoiceStep {
    /// There is no choice, or its revisions are stored.
    Nothing,
    /// Store revisions.
    Keep,
    /// Expand it into the VM.
    Expand,
    /// Replace stored revisions of an older format.
    Upgrade,
}

/// Whether there is a VMI, under which the VM must not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instance {
    Exists,
    None,
}

/// The next step by the policy of the administrator.
pub(super) fn choice_step(vm: &Vm, instance: Instance, policy: &Policy) -> ChoiceStep {
    let status = vm.status();
    let Ok([size, preference]) = references(vm, &status) else {
        // That step reports the error.
        return ChoiceStep::Keep;
    };
    let chosen = [
        (size, &status.instancetype_ref),
        (preference, &status.preference_ref),
    ];
    let chosen = chosen.iter().filter_map(|(reference, recorded)| {
        let reference = reference.as_ref()?;
        Some((reference, recorded.as_ref()))
    });
    let chosen: Vec<_> = chosen.collect();
    let has_revision = chosen.iter().any(|(one, _)| one.revision.is_some());
    let writes_out = match policy {
        Policy::ExpandAll => true,
        // The user chose a specific revision.
        Policy::Expand => !has_revision,
        Policy::Reference | Policy::Other(_) => false,
    };
    if chosen.is_empty() {
        return ChoiceStep::Nothing;
    }
    if writes_out && instance == Instance::None {
        return ChoiceStep::Expand;
    }
    let is_noted = |(reference, recorded): &(&Reference, Option<&InstancetypeStatusRef>)| {
        recorded.is_some_and(|recorded| *recorded == note(reference))
    };
    if chosen.iter().all(is_noted) {
        ChoiceStep::Nothing
    } else {
        ChoiceStep::Keep
    }
}

/// The references of the VM to its instance type and preference. A reference that names nothing is
/// an error: a guest of the wrong size must not start.
fn references(
    vm: &Vm,
    status: &VirtualMachineStatus,
) -> Result<[Option<Reference>; 2], ChoiceError> {
    let size: Option<InstancetypeMatcher> = read(vm.spec.instancetype.as_ref());
    let preference: Option<PreferenceMatcher> = read(vm.spec.preference.as_ref());
    let size = reference::instancetype(size.as_ref(), status.instancetype_ref.as_ref());
    let preference = reference::preference(preference.as_ref(), status.preference_ref.as_ref());
    for (written, reference, family) in [
        (&vm.spec.instancetype, &size, Family::Instancetype),
        (&vm.spec.preference, &preference, Family::Preference),
    ] {
        let is_written = written.as_ref().is_some_and(|written| !written.is_null());
        if is_written && reference.is_none() {
            let path = family.path();
            let message = format!("{path}: neither a name nor a known kind; give both");
            return Err(ChoiceError::Refused(message));
        }
    }
    Ok([size, preference])
}

/// The VM as it was when its guest was started, with the choice of that time. `None` if that is not known.
pub(super) fn earlier(vm: &Vm, data: &Value) -> Option<Vm> {
    let mut spec = data.get("spec")?.clone();
    let recorded = Choice::of(data);
    let status = vm.status();
    for (matcher, recorded, now, noted) in [
        (
            "instancetype",
            recorded.instancetype,
            &vm.spec.instancetype,
            &status.instancetype_ref,
        ),
        (
            "preference",
            recorded.preference,
            &vm.spec.preference,
            &status.preference_ref,
        ),
    ] {
        if spec[matcher].is_null() {
            continue;
        }
        let noted = noted.as_ref().and_then(|noted| {
            let is_same = Some(&spec[matcher]) == now.as_ref();
            let revision = noted.controller_revision_ref.as_ref()?.name.clone();
            revision.filter(|_| is_same)
        });
        spec[matcher]["revisionName"] = recorded.or(noted)?.into();
    }
    let earlier = json!({"metadata": vm.metadata, "spec": spec});
    serde_json::from_value(earlier).ok()
}

/// The revisions that a guest is about to be started with.
pub(super) fn chosen(vm: &Vm, kept: &[Reference]) -> Choice {
    let mut status = vm.status().into_owned();
    note_all(vm, kept, &mut status);
    let name = |noted: Option<InstancetypeStatusRef>| noted?.controller_revision_ref?.name;
    Choice {
        instancetype: name(status.instancetype_ref),
        preference: name(status.preference_ref),
    }
}

fn read<T: serde::de::DeserializeOwned>(matcher: Option<&Value>) -> Option<T> {
    serde_json::from_value(matcher?.clone()).ok()
}

/// The status entry of a choice.
fn note(reference: &Reference) -> InstancetypeStatusRef {
    InstancetypeStatusRef {
        name: Some(reference.name.clone()),
        kind: Some(reference.kind().to_owned()),
        controller_revision_ref: reference
            .revision
            .as_ref()
            .map(|name| ControllerRevisionRef {
                name: Some(name.clone()),
            }),
        ..InstancetypeStatusRef::default()
    }
}

/// Adds stored revisions to the status, and removes those of former choices.
pub(super) fn note_all(vm: &Vm, kept: &[Reference], status: &mut VirtualMachineStatus) {
    let recorded = |family| kept.iter().find(|one| one.family == family).map(note);
    if let Some(recorded) = recorded(Family::Instancetype) {
        status.instancetype_ref = Some(recorded);
    }
    if let Some(recorded) = recorded(Family::Preference) {
        status.preference_ref = Some(recorded);
    }
    if vm.spec.instancetype.as_ref().is_none_or(Value::is_null) {
        status.instancetype_ref = None;
    }
    if vm.spec.preference.as_ref().is_none_or(Value::is_null) {
        status.preference_ref = None;
    }
}
