//! Volumes of a running guest whose claims change in the template: they move to the new claims, or need a restart.
//! Pure.
//!
//! The list of moves is recorded in the status of the VM first, then in that of the VMI, and leaves them in the
//! reverse order: while it is in that of the VM, no guest of it is started on a claim that receives a copy.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::conditions::{self, ConditionValue};
use kubevirt_api::vmi_status::{
    StorageMigratedVolumeInfo, VirtualMachineInstanceConditionType as Type,
    VirtualMachineInstancePhase as Phase,
};
use kubevirt_api::{VirtualMachineInstance, annotations};
use model::VolumeMoves;
use reasons::Reason;
use serde_json::{Value, json};

use super::observe::Observed;
use super::view::Vm;
use super::volume_checks::{Replaced, destination, is_migrating, obstacle, problem, source};
use crate::view::{Guest, permanent_claims};

/// The guest whose volumes could move, with all of its fields.
#[derive(Debug)]
pub(super) struct Moving {
    pub(super) vmi: Box<VirtualMachineInstance>,
    /// Its conditions, as they were written.
    pub(super) conditions: Value,
}

/// What becomes of the volumes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Moves {
    /// The list in the status of the VM.
    pub(super) recorded: Vec<StorageMigratedVolumeInfo>,
    /// A merge patch of the VMI.
    pub(super) patch: Option<Value>,
    /// Why the guest cannot follow now.
    pub(super) waits: Option<String>,
    /// Why it never follows, without a restart.
    pub(super) refused: Option<String>,
    /// Volumes whose claims of the template the guest has, or gets.
    pub(super) followed: BTreeSet<String>,
    /// Why no guest may start with the claims of the template.
    pub(super) recovery: Option<String>,
    /// The rest follows by later reconciles.
    pub(super) is_open: bool,
}

/// Whether the whole VMI has to be read to decide.
pub(super) fn concern(vm: &Vm, vmi: &Guest) -> bool {
    let status = vm.status();
    !recorded(&status).is_empty()
        || !vmi.status.migrated_volumes.is_empty()
        || (is_wanted(vm) && !replaced(&claims_of(vm), &vmi.claims).is_empty())
}

pub(super) fn plan(observed: &Observed) -> Moves {
    let vm = observed.vm.as_ref();
    let status = vm.status();
    let recorded = recorded(&status);
    let wanted = claims_of(vm);
    let Some(vmi) = observed.own_vmi() else {
        return ended(vm, recorded, &wanted, None);
    };
    let followed = has_already(&wanted, &vmi.claims);
    let Some(moving) = &observed.moving else {
        // There is nothing to decide.
        return Moves {
            recorded: recorded.to_vec(),
            followed,
            ..Moves::default()
        };
    };
    let whole = moving.vmi.as_ref();
    if vmi.is_final() {
        return ended(vm, recorded, &wanted, Some(whole));
    }
    let mut moves = if vmi.is_deleting() || model::volumes_arrived(whole) {
        // The end is observed, or the VMI gets its new claims: both lead to the next reconcile.
        Moves {
            recorded: recorded.to_vec(),
            is_open: true,
            ..Moves::default()
        }
    } else if whole
        .status
        .as_ref()
        .is_some_and(|one| !one.migrated_volumes.is_empty())
    {
        under_way(observed, moving, &wanted)
    } else {
        begin(observed, moving, recorded, &wanted)
    };
    moves.followed.extend(followed);
    moves
}

fn recorded(
    status: &kubevirt_api::vm_status::VirtualMachineStatus,
) -> &[StorageMigratedVolumeInfo] {
    let state = status.volume_update_state.as_ref();
    let state = state.and_then(|state| state.volume_migration_state.as_ref());
    state.map_or(&[], |state| &state.migrated_volumes)
}

/// Whether the VM wants its volumes to move.
pub(super) fn is_wanted(vm: &Vm) -> bool {
    let strategy = vm.spec.rest.get("updateVolumesStrategy");
    strategy.is_some_and(|strategy| strategy == "Migration")
}

/// The claims of the template that are not hot-pluggable, by volume.
fn claims_of(vm: &Vm) -> BTreeMap<String, String> {
    let spec = vm.spec.template.get("spec");
    let typed = spec.and_then(|spec| serde_json::from_value(json!({"spec": spec})).ok());
    typed.map_or_else(BTreeMap::new, |vmi| permanent_claims(&vmi))
}

/// Volumes that both have, on different claims.
fn replaced<'a>(
    wanted: &'a BTreeMap<String, String>,
    present: &'a BTreeMap<String, String>,
) -> Replaced<'a> {
    let both = wanted
        .iter()
        .filter_map(|(volume, new)| Some((&**volume, [&**present.get(volume)?, &**new])));
    both.filter(|(_, [old, new])| old != new).collect()
}

fn has_already(
    wanted: &BTreeMap<String, String>,
    present: &BTreeMap<String, String>,
) -> BTreeSet<String> {
    let same = wanted
        .iter()
        .filter(|(volume, claim)| present.get(*volume) == Some(*claim));
    same.map(|(volume, _)| volume.clone()).collect()
}

/// The spec with the volumes of another one, where the guest follows those.
pub(super) fn with_followed(spec: &Value, now: &Value, followed: &BTreeSet<String>) -> Value {
    let mut spec = spec.clone();
    let theirs = now.get("volumes").and_then(Value::as_array);
    let theirs: Vec<&Value> = theirs.into_iter().flatten().collect();
    let volumes = spec.get_mut("volumes").and_then(Value::as_array_mut);
    for volume in volumes.into_iter().flatten() {
        let name = volume["name"].as_str().unwrap_or_default();
        let found = theirs.iter().find(|one| one["name"] == name);
        let found = found.filter(|found| claim_in(found) != claim_in(volume));
        if let Some(found) = found.filter(|_| followed.contains(name)) {
            *volume = (*found).clone();
        }
    }
    spec
}

fn claim_in(volume: &Value) -> Option<&Value> {
    let claim = volume.pointer("/persistentVolumeClaim/claimName");
    claim.or_else(|| volume.pointer("/dataVolume/name"))
}

/// There is no guest any more.
fn ended(
    vm: &Vm,
    recorded: &[StorageMigratedVolumeInfo],
    wanted: &BTreeMap<String, String>,
    last: Option<&VirtualMachineInstance>,
) -> Moves {
    // A controller that has lost its lease may have written the list after the record was removed.
    let listed = last.and_then(|vmi| vmi.status.as_ref());
    let recorded = match (recorded, listed) {
        ([], Some(status)) => &status.migrated_volumes[..],
        _ => recorded,
    };
    let moves = model::moves_in(recorded);
    let is_done = last.is_some_and(|vmi| has_all(vmi, &moves));
    let is_named = |claim: &String| moves.values().any(|one| one.destination == *claim);
    if is_done || !is_wanted(vm) || !wanted.values().any(is_named) {
        return Moves::default();
    }
    Moves {
        recorded: recorded.to_vec(),
        recovery: Some(format!(
            "the guest ended before it was known that its copy was complete ({}). {} Name the former claims in the \
             template to start with them; or, if the new ones were verified to be complete, set \
             spec.updateVolumesStrategy to Replacement",
            described(&moves),
            certainty(last),
        )),
        ..Moves::default()
    }
}

fn described(moves: &VolumeMoves) -> String {
    let all = moves
        .iter()
        .map(|(volume, one)| format!("{volume} from {} to {}", one.source, one.destination));
    all.collect::<Vec<_>>().join(", ")
}

/// Whether the guest has had all of its new claims.
fn has_all(vmi: &VirtualMachineInstance, moves: &VolumeMoves) -> bool {
    if model::volumes_arrived(vmi) {
        return true;
    }
    let present = permanent_claims(vmi);
    let mut all = moves.iter();
    all.all(|(volume, one)| present.get(volume) == Some(&one.destination))
}

/// What is known of the claims of a guest that ended during a copy.
fn certainty(last: Option<&VirtualMachineInstance>) -> &'static str {
    const COMPLETE: &str = "The former claims have all of its data.";
    const UNKNOWN: &str =
        "If the guest had just been handed over, the former claims lack what it has written since.";
    let Some(vmi) = last else {
        return UNKNOWN;
    };
    let status = vmi.status.as_ref();
    let state = status.and_then(|status| status.migration_state.as_ref());
    let was_under_way =
        state.is_some_and(|state| state.start_timestamp.is_some() && state.failed != Some(true));
    if model::carried_volumes(vmi).is_empty() || !was_under_way {
        COMPLETE
    } else {
        UNKNOWN
    }
}

/// The VMI has a list of moves: it stays, or it is taken back.
fn under_way(observed: &Observed, moving: &Moving, wanted: &BTreeMap<String, String>) -> Moves {
    let whole = moving.vmi.as_ref();
    let status = whole.status.clone().unwrap_or_default();
    let listed = model::moves_in(&status.migrated_volumes);
    let present = permanent_claims(whole);
    let replaced = replaced(wanted, &present);
    let is_same = |(volume, [_, new]): (&&str, &[&str; 2])| {
        listed
            .get(*volume)
            .is_some_and(|one| one.destination == *new)
    };
    let stays =
        is_wanted(&observed.vm) && replaced.len() == listed.len() && replaced.iter().all(is_same);
    let mut moves = Moves {
        recorded: status.migrated_volumes.clone(),
        is_open: true,
        ..Moves::default()
    };
    let holds = conditions::is_true(&status.conditions, &Type::VolumesChange);
    // As it is in the VMI that the patch is made of: the cache may be older.
    let has_open = is_migrating(&status);
    if stays && holds {
        moves.followed = replaced.keys().map(|volume| (*volume).to_owned()).collect();
        moves.is_open = false;
    } else if has_open {
        // It carries the volumes by the list, which stays until it is over.
        moves.waits = Some("the copy of its volumes is being ended".to_owned());
        moves.patch = holds.then(|| patch(observed, moving, &cancelled(), json!({})));
    } else {
        // What is wanted instead is decided when the list is gone.
        moves.patch = Some(patch(
            observed,
            moving,
            &cancelled(),
            json!({"migratedVolumes": null}),
        ));
    }
    moves
}

/// The VMI has no list of moves: the guest has the claims of its spec, and nothing is being copied.
fn begin(
    observed: &Observed,
    moving: &Moving,
    recorded: &[StorageMigratedVolumeInfo],
    wanted: &BTreeMap<String, String>,
) -> Moves {
    let whole = moving.vmi.as_ref();
    let present = permanent_claims(whole);
    let replaced = replaced(wanted, &present);
    if !is_wanted(&observed.vm) || replaced.is_empty() || !observed.follows_changes {
        return Moves::default();
    }
    if let Some(why) = problem(observed, whole, &replaced, &present) {
        return Moves {
            refused: Some(why),
            ..Moves::default()
        };
    }
    let followed = replaced.keys().map(|volume| (*volume).to_owned()).collect();
    let list: Vec<_> = replaced
        .iter()
        .map(|(volume, claims)| StorageMigratedVolumeInfo {
            volume_name: (*volume).to_owned(),
            source_pvc_info: Some(source(whole, volume, claims[0])),
            destination_pvc_info: Some(destination(observed, claims[1])),
        })
        .collect();
    if let Some(why) = obstacle(observed, whole, &replaced) {
        // Recorded as it waits: a guest that ends meanwhile must not be followed by one on an empty claim.
        let phase = whole.status.as_ref().and_then(|one| one.phase.as_ref());
        let has_run = phase == Some(&Phase::Running);
        return Moves {
            recorded: if has_run { list } else { Vec::new() },
            waits: Some(why),
            followed,
            is_open: true,
            ..Moves::default()
        };
    }
    if model::moves_in(recorded) != model::moves_in(&list) {
        // The VMI gets it when the status of the VM has it.
        return Moves {
            recorded: list,
            followed,
            is_open: true,
            ..Moves::default()
        };
    }
    let message = format!(
        "volumes move to other claims: {}",
        described(&model::moves_in(&list))
    );
    let value = ConditionValue {
        message: &message,
        ..ConditionValue::holds()
    };
    let status = json!({"migratedVolumes": list});
    Moves {
        patch: Some(patch(observed, moving, &value, status)),
        recorded: list,
        followed,
        is_open: true,
        ..Moves::default()
    }
}

fn cancelled() -> ConditionValue<'static> {
    ConditionValue {
        status: conditions::FALSE,
        reason: Reason::VolumesChangeCancellation.as_str(),
        message: "",
    }
}

/// A merge patch of the VMI as it was observed.
fn patch(
    observed: &Observed,
    moving: &Moving,
    value: &ConditionValue<'_>,
    mut status: Value,
) -> Value {
    let mut all = moving
        .vmi
        .status
        .as_ref()
        .map(|status| status.conditions.clone())
        .unwrap_or_default();
    conditions::set(&mut all, Type::VolumesChange, value, &Time(observed.now));
    let own = all.iter().find(|one| one.type_ == Type::VolumesChange);
    // The others as they were written, with fields that are not known here.
    let others = moving.conditions.as_array().into_iter().flatten();
    let others = others.filter(|one| one["type"] != Type::VolumesChange.as_str());
    let list: Vec<Value> = others.cloned().chain(own.map(|one| json!(one))).collect();
    status["conditions"] = list.into();
    let mut metadata = json!({"resourceVersion": moving.vmi.metadata.resource_version});
    // A list that begins or ends has no carrier.
    if status.get("migratedVolumes").is_some() {
        metadata["annotations"] = json!({annotations::VOLUMES_CARRIED_BY: null});
    }
    json!({"metadata": metadata, "status": status})
}
