//! Guests whose state is saved, and which go on from it later: pure.
//!
//! The state machine is the condition `Suspended` of the VM, whose reason is the state: a status is neither
//! copied by clones and restores nor written by users' manifests. Requests are state change requests.
//!
//! **Invariant**: while the condition is true, a guest starts from the saved state or not at all, and the claim
//! is deleted only after its guest has run, or by the user's request.

use std::borrow::Cow;
use std::time::Duration;

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kubevirt_api::conditions::{self, Condition as _};
use kubevirt_api::quantity::Amount;
use kubevirt_api::vm_status::VirtualMachineConditionType as Type;
use kubevirt_api::vmi_status::{
    VirtualMachineInstanceConditionType as VmiType, VirtualMachineInstancePhase, VolumePhase,
};
use kubevirt_api::{annotations, labels};
use model::{SAVED_STATE_VOLUME, SAVING_VOLUME};
use reasons::Reason;
use serde_json::{Value, json};

use super::memory_dump;
use super::observe::Observed;
use super::strategy::Strategy;
use super::template;
use super::view::Vm;
use crate::view::Guest;

pub(super) const CONDITION: &str = "Suspended";
/// The option of a resume that starts the guest anew.
const DISCARD: &str = "discardState";
/// Until the claim of an earlier attempt is gone.
const CLAIM_WAIT: Duration = Duration::from_secs(5);
/// Until a new claim is looked up.
const CREATED_WAIT: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;
/// Devices, and what a file system needs.
const HEADER: u64 = 128 * MIB;
/// The rest of a file system, as a part of the size.
const OVERHEAD_DIVISOR: u64 = 16;
/// Of the VM in the name of its claim.
const MAX_VM_NAME: usize = 200;

/// The state of a VM that is, was or is to be suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Suspending,
    Suspended,
    SuspendFailed,
    Resuming,
    ResumeFailed,
}

/// What one reconcile does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Suspend {
    pub(super) change: Option<Change>,
    pub(super) next: Next,
    pub(super) hold: Hold,
    pub(super) requeue_in: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    CreateClaim,
    DropClaims,
    /// The guest runs: its pod needs the claim no more.
    Forget,
}

/// The condition after the change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Next {
    #[default]
    Stays,
    Is(State, String),
    Gone,
}

/// What replaces the decision of the run strategy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Hold {
    #[default]
    No,
    /// Neither start nor stop.
    Keep,
    /// Delete the VMI that has ended.
    Stop,
    /// Start from the saved state.
    Resume,
}

/// A claim with the VM's saved state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SavedClaim {
    pub(super) name: String,
    pub(super) is_deleting: bool,
    /// The annotation.
    pub(super) guest: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    Nothing,
    /// This guest.
    Suspend(Option<String>),
    Resume,
    Discard,
}

impl State {
    pub(super) fn of(vm: &Vm) -> Option<Self> {
        let status = vm.status();
        let condition = conditions::find(&status.conditions, &Type::from(CONDITION))?;
        let all = [
            Self::Suspending,
            Self::Suspended,
            Self::SuspendFailed,
            Self::Resuming,
            Self::ResumeFailed,
        ];
        all.into_iter()
            .find(|state| state.reason().as_str() == condition.reason())
    }

    pub(super) fn reason(self) -> Reason {
        match self {
            Self::Suspending => Reason::Suspending,
            Self::Suspended => Reason::Suspended,
            Self::SuspendFailed => Reason::SuspendFailed,
            Self::Resuming => Reason::Resuming,
            Self::ResumeFailed => Reason::ResumeFailed,
        }
    }

    /// Whether there is a saved state.
    pub(super) fn is_saved(self) -> bool {
        match self {
            Self::Suspending | Self::SuspendFailed => false,
            Self::Suspended | Self::Resuming | Self::ResumeFailed => true,
        }
    }

    /// The status of the condition.
    pub(super) fn status(self) -> &'static str {
        if self.is_saved() {
            conditions::TRUE
        } else {
            conditions::FALSE
        }
    }
}

impl Suspend {
    fn to(state: State, message: impl Into<String>) -> Self {
        Self {
            next: Next::Is(state, message.into()),
            ..Self::default()
        }
    }

    fn held(self, hold: Hold) -> Self {
        Self { hold, ..self }
    }

    fn with(self, change: Change) -> Self {
        Self {
            change: Some(change),
            ..self
        }
    }
}

pub(super) fn plan(observed: &Observed) -> Suspend {
    let vmi = observed.own_vmi().map(AsRef::as_ref);
    let asked = asked(&observed.vm);
    match State::of(&observed.vm) {
        state @ (None | Some(State::SuspendFailed)) if may_suspend(vmi, &asked) => Suspend {
            // What is left of an earlier attempt.
            change: state.map(|_| Change::DropClaims),
            ..Suspend::to(State::Suspending, "the state of the guest is being saved")
        },
        Some(State::SuspendFailed) if usable(observed).is_some() => {
            Suspend::default().with(Change::DropClaims)
        }
        None | Some(State::SuspendFailed) => Suspend::default(),
        Some(State::Suspending) => save(observed, vmi),
        Some(State::Suspended | State::ResumeFailed) => rest(vmi, &asked),
        Some(State::Resuming) => resume(observed, vmi),
    }
}

/// The first request, as far as it concerns a saved state. A start is a resume.
fn asked(vm: &Vm) -> Asked {
    let status = vm.status();
    let Some(first) = status.state_change_requests.first() else {
        return Asked::Nothing;
    };
    match first.action.as_str() {
        "Suspend" => Asked::Suspend(first.uid.clone()),
        "Resume" if first.data.get(DISCARD).is_some_and(|value| value == "true") => Asked::Discard,
        "Resume" | "Start" => Asked::Resume,
        _ => Asked::Nothing,
    }
}

fn may_suspend(vmi: Option<&Guest>, asked: &Asked) -> bool {
    let (Some(vmi), Asked::Suspend(uid)) = (vmi, asked) else {
        return false;
    };
    let is_running = *vmi.phase() == VirtualMachineInstancePhase::Running && !vmi.is_deleting();
    is_running && *uid == vmi.uid()
}

fn save(observed: &Observed, vmi: Option<&Guest>) -> Suspend {
    let failed = |why: &str| Suspend::to(State::SuspendFailed, why);
    let Some(vmi) = vmi else {
        return failed("the guest ended before its state was saved");
    };
    if is_suspended(vmi) {
        let message = "the state of the guest is saved";
        return Suspend::to(State::Suspended, message).held(Hold::Keep);
    }
    if vmi.is_final() {
        return failed("the guest ended before its state was saved");
    }
    if vmi.is_deleting() {
        return Suspend::default();
    }
    let mut volumes = vmi.status.volumes.iter();
    let volume = volumes.find(|volume| volume.name == SAVING_VOLUME);
    if volume.is_none()
        && let Some(why) = vmi.growth.obstacle_to_saving()
    {
        return failed(why);
    }
    let name = claim_name(&observed.vm, vmi);
    match observed.saved.iter().find(|claim| claim.name == name) {
        Some(claim) if !claim.is_deleting => {}
        // The volume of an earlier attempt leaves first.
        // No watch reports the claim to the VM.
        None if volume.is_none() => {
            return Suspend {
                requeue_in: Some(CREATED_WAIT),
                ..Suspend::default().with(Change::CreateClaim)
            };
        }
        Some(_) | None => {
            return Suspend {
                requeue_in: Some(CLAIM_WAIT),
                ..Suspend::default()
            };
        }
    }
    match volume.and_then(|volume| volume.phase.as_ref()) {
        Some(VolumePhase::MemoryDumpFailed) => {
            let why = volume.and_then(|volume| volume.message.as_deref());
            failed(why.unwrap_or_default())
        }
        // Its virt-handler knows no saved states, and has written a memory dump.
        Some(VolumePhase::MemoryDumpCompleted) => {
            failed("the virt-handler of the node is too old to save the state of a guest")
        }
        _ => Suspend::default(),
    }
}

/// The guest does not run until the user wants it.
fn rest(vmi: Option<&Guest>, asked: &Asked) -> Suspend {
    let hold = match vmi {
        Some(vmi) if vmi.is_final() && !vmi.is_deleting() => Hold::Stop,
        Some(_) | None => Hold::Keep,
    };
    match asked {
        Asked::Discard => Suspend {
            next: Next::Gone,
            ..Suspend::default()
        }
        .with(Change::DropClaims)
        .held(Hold::Keep),
        Asked::Resume => {
            let message = "the guest is about to go on from its saved state";
            Suspend::to(State::Resuming, message).held(Hold::Keep)
        }
        Asked::Suspend(_) | Asked::Nothing => Suspend::default().held(hold),
    }
}

fn resume(observed: &Observed, vmi: Option<&Guest>) -> Suspend {
    let Some(vmi) = vmi else {
        return match usable(observed) {
            Some(_) if Strategy::of(&observed.vm.spec) == Strategy::Halted => {
                Suspend::to(State::Suspended, "the run strategy is Halted").held(Hold::Keep)
            }
            Some(_) => Suspend::default().held(Hold::Resume),
            None => Suspend::to(
                State::ResumeFailed,
                "the claim with the saved state is gone",
            )
            .held(Hold::Keep),
        };
    };
    if is_suspended(vmi) {
        let hold = if vmi.is_deleting() {
            Hold::Keep
        } else {
            Hold::Stop
        };
        return Suspend::default().held(hold);
    }
    if vmi.has_run() {
        return Suspend {
            next: Next::Gone,
            ..Suspend::default()
        }
        .with(Change::Forget);
    }
    if vmi.is_final() {
        return Suspend::to(State::ResumeFailed, why_failed(vmi)).held(Hold::Keep);
    }
    if vmi.is_deleting() {
        let message = "the guest was stopped before it went on from its saved state";
        return Suspend::to(State::Suspended, message).held(Hold::Keep);
    }
    Suspend::default()
}

/// Whether the guest has ended with all of its state in the claim.
fn is_suspended(vmi: &Guest) -> bool {
    let reason = vmi.status.reason.as_deref();
    *vmi.phase() == VirtualMachineInstancePhase::Succeeded
        && reason == Some(Reason::Suspended.as_str())
}

fn why_failed(vmi: &Guest) -> String {
    let all = &vmi.status.conditions;
    let kinds = [VmiType::Synchronized, VmiType::Ready];
    let mut found = kinds.iter().filter_map(|kind| {
        let condition = conditions::find(all, kind)?;
        let is_told = condition.status() == conditions::FALSE && !condition.message().is_empty();
        // The condition of the VM gets the remedy again.
        let message = reasons::without_advice(condition.reason(), condition.message());
        is_told.then(|| message.to_owned())
    });
    found
        .next()
        .unwrap_or_else(|| "its VMI has failed".to_owned())
}

/// The claim from which a guest can go on.
pub(super) fn usable(observed: &Observed) -> Option<&SavedClaim> {
    observed.saved.iter().find(|claim| !claim.is_deleting)
}

/// The template as a running VMI follows it.
pub(super) fn live_template<'a>(observed: &'a Observed, vmi: &Guest) -> Cow<'a, Value> {
    let template = memory_dump::live_template(&observed.vm, Some(vmi));
    let name = claim_name(&observed.vm, vmi);
    let is_there = |claim: &SavedClaim| claim.name == name && !claim.is_deleting;
    let is_saving = State::of(&observed.vm) == Some(State::Suspending);
    if !is_saving || !observed.saved.iter().any(is_there) {
        return template;
    }
    let mut live = template.into_owned();
    let volume = json!({
        "name": SAVING_VOLUME, "memoryDump": {"claimName": name, "hotpluggable": true},
    });
    let volumes = &mut live["spec"]["volumes"];
    match volumes.as_array_mut() {
        Some(volumes) => volumes.push(volume),
        None => *volumes = json!([volume]),
    }
    Cow::Owned(live)
}

fn claim_name(vm: &Vm, vmi: &Guest) -> String {
    let name: String = vm.name_any().chars().take(MAX_VM_NAME).collect();
    let uid: String = vmi.uid().unwrap_or_default().chars().take(8).collect();
    format!("{}-saved-{uid}", name.trim_end_matches(['-', '.']))
}

/// The claim for the state of a running guest.
pub(super) fn claim(
    vm: &Vm,
    vmi: &Guest,
    whole: &Value,
    class: Option<&str>,
) -> PersistentVolumeClaim {
    let vm_uid = vm.metadata.uid.clone().unwrap_or_default();
    let requests = [("storage".to_owned(), Quantity(size(whole)))];
    let owner = serde_json::from_value(template::owner(vm)).ok();
    let class = class.filter(|class| !class.is_empty());
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(claim_name(vm, vmi)),
            namespace: vm.namespace(),
            labels: Some([(labels::SUSPENDED_VM.to_owned(), vm_uid)].into()),
            annotations: Some(
                [(
                    annotations::SUSPENDED_GUEST.to_owned(),
                    kept(whole).to_string(),
                )]
                .into(),
            ),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            volume_mode: Some("Filesystem".to_owned()),
            storage_class_name: class.map(str::to_owned),
            resources: Some(VolumeResourceRequirements {
                requests: Some(requests.into()),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

/// Memory, devices and what a file system needs, in MiB.
fn size(whole: &Value) -> String {
    let domain = &whole["spec"]["domain"];
    let amounts = [
        domain.pointer("/memory/guest"),
        domain.pointer("/resources/requests/memory"),
        domain.pointer("/resources/limits/memory"),
    ];
    let amounts = amounts.into_iter().flatten().filter_map(Value::as_str);
    let amounts = amounts.filter_map(|text| Amount::parse_text(text).ok());
    let memory = amounts.map(Amount::units).max().unwrap_or(0);
    let data = memory.saturating_add(HEADER);
    let bytes = data.saturating_add(data / OVERHEAD_DIVISOR);
    format!("{}Mi", bytes.div_ceil(MIB))
}

/// What a later VMI of the VM could have otherwise than this one: a newer machine type, other hardware
/// addresses.
fn kept(whole: &Value) -> Value {
    let spec = &whole["spec"];
    let mut interfaces = spec["domain"]["devices"]["interfaces"].clone();
    let known = whole
        .pointer("/status/interfaces")
        .and_then(Value::as_array);
    for interface in interfaces.as_array_mut().into_iter().flatten() {
        let mut all = known.into_iter().flatten();
        let status = all.find(|one| one["name"] == interface["name"]);
        let mac = status.and_then(|status| status["mac"].as_str());
        if let (true, Some(mac)) = (interface["macAddress"].is_null(), mac) {
            interface["macAddress"] = mac.into();
        }
    }
    json!({
        "machine": whole.pointer("/status/machine/type"),
        "interfaces": interfaces,
        "networks": spec["networks"],
    })
}

/// Makes a new VMI one that goes on from the claim.
pub(super) fn restore_into(vmi: &mut Value, claim: &SavedClaim) {
    let text = claim.guest.as_deref().unwrap_or_default();
    // Without it libvirt refuses a guest that would differ.
    let kept: Value = serde_json::from_str(text).unwrap_or_default();
    let spec = &mut vmi["spec"];
    if let Some(machine) = kept["machine"].as_str() {
        spec["domain"]["machine"]["type"] = machine.into();
    }
    if kept["interfaces"].is_array() {
        spec["domain"]["devices"]["interfaces"] = kept["interfaces"].clone();
        spec["networks"] = kept["networks"].clone();
    }
    let volume = json!({"name": SAVED_STATE_VOLUME, "memoryDump": {"claimName": claim.name}});
    match spec["volumes"].as_array_mut() {
        Some(volumes) => volumes.push(volume),
        None => spec["volumes"] = json!([volume]),
    }
}

/// The merge patch of a VMI that has gone on; `None` if it lacks the volume already.
pub(super) fn forget_patch(whole: &Value) -> Option<Value> {
    let mut volumes = whole.pointer("/spec/volumes")?.as_array()?.clone();
    let before = volumes.len();
    volumes.retain(|volume| volume["name"] != SAVED_STATE_VOLUME);
    (volumes.len() < before).then(|| {
        json!({
            "metadata": {"resourceVersion": whole.pointer("/metadata/resourceVersion")},
            "spec": {"volumes": volumes},
        })
    })
}
