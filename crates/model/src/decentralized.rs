//! Migrations between two VMIs: the guest leaves one VMI and goes on in another one.
//!
//! Each VMI has a state of its own. Both name the two VMIs by UID, and the UIDs of both migration objects.

use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::annotations;
use kubevirt_api::migration::VirtualMachineInstanceMigrationState as State;
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;

use crate::arrival::has_arrived;
use crate::volume_migration::{VolumeMove, VolumeMoves};
use crate::{Guest, Storage, Target};

/// What the end that sends has to give as `connectURL`: this cluster. Nothing listens there; both ends are led by the
/// same virt-controller.
pub const SYNCHRONIZATION_ADDRESS: &str = "local-cluster:9185";

/// The end of a migration between two VMIs at which a VMI is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationEnd {
    Source,
    Target,
}

/// Whether the migration moves the guest to another VMI.
pub fn is_decentralized(state: &State) -> bool {
    vmi_uids(state).is_some()
}

/// The VMIs that the guest leaves and enters.
fn vmi_uids(state: &State) -> Option<[&str; 2]> {
    let source = state.source_state.as_ref()?;
    let target = state.target_state.as_ref()?;
    let source = source.virtual_machine_instance_uid.as_deref()?;
    let target = target.virtual_machine_instance_uid.as_deref()?;
    (source != target && !source.is_empty() && !target.is_empty()).then_some([source, target])
}

/// The end of this VMI, if its last migration is one between two VMIs.
pub fn migration_end(vmi: &VirtualMachineInstance) -> Option<MigrationEnd> {
    let state = vmi.status.as_ref()?.migration_state.as_ref()?;
    let own = vmi.metadata.uid.as_deref()?;
    match vmi_uids(state)? {
        [source, _] if source == own => Some(MigrationEnd::Source),
        [_, target] if target == own => Some(MigrationEnd::Target),
        _ => None,
    }
}

/// The name of a copy, which the launchers and virt-handlers of both ends know it by.
pub fn copy_id(state: &State) -> Option<&str> {
    let target = state.target_state.as_ref();
    let target = target.filter(|_| is_decentralized(state));
    let of_target = target.and_then(|target| target.migration_uid.as_deref());
    of_target.or(state.migration_uid.as_deref())
}

/// Whether the VMI was made for a guest that comes from another VMI, and does not have it yet. Nothing may start a
/// guest for it.
pub fn awaits_guest(vmi: &VirtualMachineInstance) -> bool {
    let all = vmi.metadata.annotations.as_ref();
    let mark = all.and_then(|all| all.get(annotations::CREATE_MIGRATION_TARGET));
    let status = vmi.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_ref());
    let is_early = !matches!(
        phase,
        Some(Phase::Running | Phase::Succeeded | Phase::Failed)
    );
    mark.is_some_and(|mark| mark == "true") && is_early && !has_come(vmi)
}

/// Whether the guest has come to this VMI from another one.
pub fn has_come(vmi: &VirtualMachineInstance) -> bool {
    migration_end(vmi) == Some(MigrationEnd::Target) && arrived(vmi)
}

/// Whether the guest has left this VMI for another one.
pub fn has_departed(vmi: &VirtualMachineInstance) -> bool {
    migration_end(vmi) == Some(MigrationEnd::Source) && arrived(vmi)
}

/// Whether the guest may have left this VMI for another one, or may still do so: until the end is known, no other
/// guest may start in its place.
pub fn may_have_departed(vmi: &VirtualMachineInstance) -> bool {
    let status = vmi.status.as_ref();
    let state = status.and_then(|status| status.migration_state.as_ref());
    migration_end(vmi) == Some(MigrationEnd::Source)
        && state.is_some_and(|state| state.completed != Some(true) && state.failed != Some(true))
}

/// The volumes on claims that the guest writes through disks. Their contents go to the other VMI, so for the pod there
/// they are like claims that the guest moves to.
pub fn written_claims(vmi: &VirtualMachineInstance) -> VolumeMoves {
    let guest = Guest::of(vmi);
    let is_written = |volume: &str| {
        let mut disks = guest.disks.iter();
        disks
            .find(|disk| disk.name() == volume)
            .is_some_and(|disk| match disk.target {
                Target::Disk => !disk.is_read_only,
                Target::Lun { .. } => true,
                Target::CdRom { .. } => false,
            })
    };
    let all = guest.volumes.iter();
    let written = all.filter(|volume| is_written(volume.name));
    let claims = written.filter_map(|volume| match volume.source.storage() {
        Storage::Claim(claim) => {
            let claim = VolumeMove {
                source: claim.name.to_owned(),
                destination: claim.name.to_owned(),
            };
            Some((volume.name.to_owned(), claim))
        }
        Storage::OverlaidClaim(_) | Storage::Host(_) | Storage::Pod => None,
    });
    claims.collect()
}

fn arrived(vmi: &VirtualMachineInstance) -> bool {
    let status = vmi.status.as_ref();
    let state = status.and_then(|status| status.migration_state.as_ref());
    state.is_some_and(has_arrived)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "written in place")]
    fn vmi(uid: &str, phase: &str, change: Value) -> VirtualMachineInstance {
        let mut state = json!({
            "migrationUid": "mine",
            "sourceState": {"virtualMachineInstanceUID": "s", "migrationUID": "ms"},
            "targetState": {"virtualMachineInstanceUID": "t", "migrationUID": "mt"},
        });
        for (name, value) in change.as_object().expect("is an object") {
            state[name] = value.clone();
        }
        serde_json::from_value(json!({
            "metadata": {"uid": uid, "annotations": {"kubevirt.io/create-migration-target": "true"}},
            "spec": {"domain": {"devices": {}}},
            "status": {"phase": phase, "migrationState": state},
        }))
        .expect("is a VMI")
    }

    #[test]
    fn both_ends_are_told_apart_and_share_a_name_of_the_copy() {
        for (uid, end) in [
            ("s", Some(MigrationEnd::Source)),
            ("t", Some(MigrationEnd::Target)),
            ("other", None),
        ] {
            let vmi = vmi(uid, "Running", json!({}));
            assert_eq!(migration_end(&vmi), end, "{uid}");
            let state = vmi.status.as_ref().unwrap().migration_state.as_ref();
            assert_eq!(copy_id(state.unwrap()), Some("mt"));
        }
        let local = vmi("s", "Running", json!({"sourceState": null}));
        assert_eq!(migration_end(&local), None);
        let state = local.status.as_ref().unwrap().migration_state.as_ref();
        assert_eq!(copy_id(state.unwrap()), Some("mine"));
    }

    #[test]
    fn guest_is_awaited_until_it_has_come() {
        let over = || json!({"completed": true});
        let failed = || json!({"completed": true, "failed": true});
        for (phase, change, awaited) in [
            ("WaitingForSync", json!({}), true),
            ("Scheduled", json!({}), true),
            ("Scheduled", failed(), true),
            ("Scheduled", over(), false),
            ("Running", json!({}), false),
            ("Failed", failed(), false),
        ] {
            let found = vmi("t", phase, change.clone());
            assert_eq!(awaits_guest(&found), awaited, "{phase} {change}");
        }
        // The same for a state of a migration that does not come here.
        assert!(awaits_guest(&vmi("other", "Scheduled", over())));
    }

    #[test]
    fn guest_has_departed_when_the_other_end_has_it() {
        let check = |change: Value, departed: bool, unknown: bool| {
            let found = vmi("s", "Running", change.clone());
            assert_eq!(has_departed(&found), departed, "{change}");
            assert_eq!(may_have_departed(&found), unknown, "{change}");
        };
        check(json!({}), false, true);
        check(json!({"completed": true}), true, false);
        check(json!({"completed": true, "failed": true}), false, false);
    }
}
