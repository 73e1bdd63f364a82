//! Whether the claims of a running guest's volumes can be replaced while it runs, and now. Pure.

use std::collections::BTreeMap;

use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::conditions::{self, Condition as _};
use kubevirt_api::data_volume_status::DataVolumePhase;
use kubevirt_api::quantity::Amount;
use kubevirt_api::vmi_status::{
    PersistentVolumeClaimInfo, VirtualMachineInstanceConditionType as Type,
    VirtualMachineInstancePhase as Phase, VirtualMachineInstanceStatus,
};
use model::{Guest as Parsed, Target};
use reasons::Reason;

use super::data_volumes::other_owner;
use super::observe::Observed;
use super::suspend;
use crate::view::{Claim, DataVolume};

const READ_WRITE_MANY: &str = "ReadWriteMany";

/// By volume: the claim that it leaves, and the one that it goes to.
pub(super) type Replaced<'a> = BTreeMap<&'a str, [&'a str; 2]>;

/// The claim that the guest has, as the VMI shows it.
pub(super) fn source(
    vmi: &VirtualMachineInstance,
    volume: &str,
    claim: &str,
) -> PersistentVolumeClaimInfo {
    let status = vmi.status.iter().flat_map(|status| &status.volume_status);
    let mut found = status.filter(|one| one.name == volume);
    let info = found.find_map(|one| one.persistent_volume_claim_info.clone());
    PersistentVolumeClaimInfo {
        claim_name: Some(claim.to_owned()),
        ..info.unwrap_or_default()
    }
}

/// The claim that it is to have, as far as it is known.
pub(super) fn destination(observed: &Observed, name: &str) -> PersistentVolumeClaimInfo {
    let info = claim(observed, name).map(|claim| claim.facts.info.clone());
    PersistentVolumeClaimInfo {
        claim_name: Some(name.to_owned()),
        ..info.unwrap_or_default()
    }
}

fn claim<'a>(observed: &'a Observed, name: &str) -> Option<&'a Claim> {
    let mut claims = observed.claims.iter();
    let found = claims.find(|one| one.metadata.name.as_deref() == Some(name))?;
    Some(found.as_ref())
}

fn data_volume<'a>(observed: &'a Observed, name: &str) -> Option<&'a DataVolume> {
    let mut all = observed.data_volumes.iter();
    let found = all.find(|one| one.metadata.name.as_deref() == Some(name))?;
    Some(found.as_ref())
}

/// Why these volumes cannot move at all.
pub(super) fn problem(
    observed: &Observed,
    vmi: &VirtualMachineInstance,
    replaced: &Replaced<'_>,
    present: &BTreeMap<String, String>,
) -> Option<String> {
    let parsed = Parsed::of(vmi);
    let named = |is_it: &dyn Fn(&str) -> bool| {
        let names = replaced.keys().copied().filter(|volume| is_it(volume));
        names.collect::<Vec<_>>().join(", ")
    };
    let disk = |volume: &str| parsed.disks.iter().find(|disk| disk.name() == volume);
    let invalid = [
        ("filesystems", named(&|volume| parsed.is_filesystem(volume))),
        (
            "shareable",
            named(&|volume| disk(volume).is_some_and(|disk| disk.spec.shareable == Some(true))),
        ),
        (
            "luns",
            named(&|volume| {
                disk(volume).is_some_and(|disk| matches!(disk.target, Target::Lun { .. }))
            }),
        ),
        (
            "read-only",
            named(&|volume| {
                let claim = parsed
                    .volume(volume)
                    .and_then(|volume| volume.source.claim());
                claim.is_some_and(|claim| claim.is_read_only)
                    || disk(volume).is_some_and(|disk| {
                        disk.is_read_only || matches!(disk.target, Target::CdRom { .. })
                    })
            }),
        ),
    ];
    let invalid: Vec<String> = invalid
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(kind, names)| format!("{kind}: [{names}]"))
        .collect();
    if !invalid.is_empty() {
        return Some(format!(
            "invalid volumes to update with migration: {}",
            invalid.join(" ")
        ));
    }
    for (volume, [_, new]) in replaced {
        let mut targets = replaced.values().filter(|claims| claims[1] == *new);
        let is_doubled = targets.nth(1).is_some();
        if is_doubled || present.values().any(|claim| claim == new) {
            return Some(format!(
                "volume {volume}: another volume of the guest has claim {new}"
            ));
        }
        // The copy would overwrite its disk.
        let there = data_volume(observed, new);
        if let Some(owner) = there.and_then(|there| other_owner(&observed.vm, there)) {
            return Some(format!(
                "volume {volume}: data volume {new} belongs to virtualmachine {owner}"
            ));
        }
        let [old, new_facts] = [source(vmi, volume, ""), destination(observed, new)];
        let wanted = old
            .requests
            .get("storage")
            .and_then(|size| Amount::parse(size).ok());
        let lists = [&new_facts.capacity, &new_facts.requests];
        let offered = lists.into_iter().find_map(|list| list.get("storage"));
        let offered = offered.and_then(|size| Amount::parse(size).ok());
        if let (Some(wanted), Some(offered)) = (wanted, offered)
            && offered < wanted
        {
            return Some(format!(
                "volume {volume}: claim {new} is smaller than the present one"
            ));
        }
    }
    immobility(vmi, replaced)
}

/// Why the guest could not move although these volumes are copied.
fn immobility(vmi: &VirtualMachineInstance, replaced: &Replaced<'_>) -> Option<String> {
    let status = vmi.status.as_ref()?;
    // What else there may be is shown when the backup has ended.
    if receives_backup(status) {
        return None;
    }
    let find = |kind: &Type| conditions::find(&status.conditions, kind);
    if let Some(condition) = find(&Type::StorageLiveMigratable)
        && condition.status == conditions::FALSE
    {
        let why = condition.message();
        return Some(format!("the guest cannot migrate: {why}"));
    }
    let live = find(&Type::LiveMigratable)?;
    if live.status == conditions::TRUE {
        return None;
    }
    let is_left = |name: &str, info: &PersistentVolumeClaimInfo| {
        let is_shared = info.access_modes.iter().any(|mode| mode == READ_WRITE_MANY);
        !is_shared && !replaced.contains_key(name)
    };
    let mut volumes = status.volume_status.iter();
    let left = volumes.find(|volume| {
        let info = volume.persistent_volume_claim_info.as_ref();
        info.is_some_and(|info| is_left(&volume.name, info))
    });
    if let Some(volume) = left {
        let name = &volume.name;
        return Some(format!(
            "the guest cannot migrate: volume {name} is on a claim without access mode ReadWriteMany and does not move"
        ));
    }
    let is_for_disks = live.reason() == Reason::DisksNotLiveMigratable.as_str();
    (!is_for_disks).then(|| format!("the guest cannot migrate: {}", live.message()))
}

/// Whether the guest cannot migrate because of a backup.
fn receives_backup(status: &VirtualMachineInstanceStatus) -> bool {
    let live = conditions::find(&status.conditions, &Type::LiveMigratable);
    live.is_some_and(|live| {
        live.status == conditions::FALSE && live.reason() == Reason::BackupInProgress.as_str()
    })
}

/// Whether a migration was published on the VMI that is not over.
pub(super) fn is_migrating(status: &VirtualMachineInstanceStatus) -> bool {
    let state = status.migration_state.as_ref();
    state.is_some_and(|state| {
        state.migration_uid.is_some() && state.completed != Some(true) && state.failed != Some(true)
    })
}

/// Why they cannot move now.
pub(super) fn obstacle(
    observed: &Observed,
    vmi: &VirtualMachineInstance,
    replaced: &Replaced<'_>,
) -> Option<String> {
    let status = vmi.status.as_ref();
    let Some(status) = status.filter(|status| status.phase == Some(Phase::Running)) else {
        return Some("the guest does not run yet".to_owned());
    };
    if conditions::find(&status.conditions, &Type::LiveMigratable).is_none() {
        return Some("it is not known yet whether the guest can migrate".to_owned());
    }
    if is_migrating(status) {
        return Some("the guest is migrating".to_owned());
    }
    if receives_backup(status) {
        return Some("a backup of the guest is in progress".to_owned());
    }
    if suspend::State::of(&observed.vm) == Some(suspend::State::Suspending) {
        return Some("the state of the guest is being saved".to_owned());
    }
    let vm = observed.vm.status();
    if vm.snapshot_in_progress.is_some() || vm.restore_in_progress.is_some() {
        return Some("a snapshot or a restore of the VM is in progress".to_owned());
    }
    let mut claims = replaced.values().map(|claims| claims[1]);
    claims.find_map(|name| {
        let Some(found) = claim(observed, name) else {
            return Some(format!("there is no persistentvolumeclaim {name}"));
        };
        if let Some(restore) = found.open_restore() {
            return Some(format!("persistentvolumeclaim {name}: {restore}"));
        }
        if found.awaits_upload() {
            return Some(format!("persistentvolumeclaim {name} receives an upload"));
        }
        let volume = data_volume(observed, name);
        let phase = volume.map(|volume| &volume.phase).filter(|phase| {
            !matches!(
                phase,
                DataVolumePhase::Succeeded | DataVolumePhase::PendingPopulation
            )
        });
        phase.map(|phase| format!("data volume {name} is {}", phase.as_str()))
    })
}
