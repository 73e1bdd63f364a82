//! Volumes that a running guest leaves for other claims: which of them a migration carries, and where they are.
//!
//! `status.migratedVolumes` of a VMI lists what its guest is to leave and where to. The migration that is handed over
//! while the list is not empty carries all of it, which an annotation of the VMI records in the same write, with the
//! migration's UID. Until the guest has arrived by that migration, it has the claims of the VMI's spec.

use std::collections::BTreeMap;

use kubevirt_api::conditions;
use kubevirt_api::vmi_status::{
    PersistentVolumeClaimInfo, StorageMigratedVolumeInfo, VirtualMachineInstanceConditionType,
    VirtualMachineInstancePhase as Phase,
};
use kubevirt_api::volumes::Volume;
use kubevirt_api::{VirtualMachineInstance, annotations};
use serde_json::Value;

use crate::arrival::has_arrived;

/// The claim that a volume leaves, and the one that it goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeMove {
    pub source: String,
    pub destination: String,
}

/// Moves by the names of volumes.
pub type VolumeMoves = BTreeMap<String, VolumeMove>;

/// The moves of a list in a status. One without a name of a claim is none: there is nothing to copy to.
pub fn moves_in(list: &[StorageMigratedVolumeInfo]) -> VolumeMoves {
    let claim = |info: &Option<PersistentVolumeClaimInfo>| info.as_ref()?.claim_name.clone();
    let moves = list.iter().filter_map(|one| {
        let found = VolumeMove {
            source: claim(&one.source_pvc_info)?,
            destination: claim(&one.destination_pvc_info)?,
        };
        Some((one.volume_name.clone(), found))
    });
    moves.collect()
}

/// The moves that a pod was made for, from its annotation. A malformed one differs from every other.
pub fn moves_of_pod(annotation: &str) -> Option<VolumeMoves> {
    let all: BTreeMap<String, [String; 2]> = serde_json::from_str(annotation).ok()?;
    let moves = all.into_iter().map(|(volume, [source, destination])| {
        let found = VolumeMove {
            source,
            destination,
        };
        (volume, found)
    });
    Some(moves.collect())
}

/// The annotation for a pod that was made for these moves.
pub fn pod_annotation(moves: &VolumeMoves) -> String {
    let all = moves.iter();
    let all = all.map(|(volume, one)| {
        let claims = [&*one.source, &*one.destination].map(Value::from);
        (volume.clone(), Value::from(claims.to_vec()))
    });
    Value::Object(all.collect()).to_string()
}

/// The moves that a migration has to carry which begins now: none if they were taken back, or are done.
pub fn volume_moves(vmi: &VirtualMachineInstance) -> VolumeMoves {
    let Some(status) = vmi.status.as_ref() else {
        return VolumeMoves::new();
    };
    let is_wanted = conditions::is_true(
        &status.conditions,
        &VirtualMachineInstanceConditionType::VolumesChange,
    );
    if !is_wanted || status.phase != Some(Phase::Running) || volumes_arrived(vmi) {
        return VolumeMoves::new();
    }
    moves_in(&status.migrated_volumes)
}

/// The moves that the last migration of the guest carries, or has carried, if they are still listed.
pub fn carried_volumes(vmi: &VirtualMachineInstance) -> VolumeMoves {
    let status = vmi.status.as_ref();
    let annotated = vmi.metadata.annotations.as_ref();
    let carrier = annotated.and_then(|all| all.get(annotations::VOLUMES_CARRIED_BY));
    let last = status.and_then(|status| status.migration_state.as_ref()?.migration_uid.as_ref());
    match (status, carrier) {
        (Some(status), Some(carrier)) if last == Some(carrier) => {
            moves_in(&status.migrated_volumes)
        }
        _ => VolumeMoves::new(),
    }
}

/// Whether the guest has the new claims, though the spec of its VMI still names the former ones.
pub fn volumes_arrived(vmi: &VirtualMachineInstance) -> bool {
    let status = vmi.status.as_ref();
    let state = status.and_then(|status| status.migration_state.as_ref());
    state.is_some_and(has_arrived) && !carried_volumes(vmi).is_empty()
}

/// Puts the volumes on the claims that they move to.
pub fn put_on_new_claims(volumes: &mut [Volume], moves: &VolumeMoves) {
    for volume in volumes {
        let Some(found) = moves.get(&volume.name) else {
            continue;
        };
        if let Some(claim) = &mut volume.persistent_volume_claim {
            claim.claim_name.clone_from(&found.destination);
        }
        if let Some(data_volume) = &mut volume.data_volume {
            data_volume.name.clone_from(&found.destination);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn vmi(change: Value) -> VirtualMachineInstance {
        let mut vmi = json!({
            "metadata": {"annotations": {"ferrovirt.io/volumes-carried-by": "m"}},
            "spec": {"domain": {"devices": {}}, "volumes": [
                {"name": "root", "persistentVolumeClaim": {"claimName": "old", "readOnly": true}},
                {"name": "data", "dataVolume": {"name": "kept"}},
            ]},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "VolumesChange", "status": "True"}],
                "migratedVolumes": [{"volumeName": "root", "sourcePVCInfo": {"claimName": "old"},
                    "destinationPVCInfo": {"claimName": "new"}}],
                "migrationState": {"migrationUid": "m"},
            },
        });
        let Value::Object(change) = change else {
            panic!("{change} is no object");
        };
        for (path, value) in change {
            *vmi.pointer_mut(&path).expect("is there") = value;
        }
        serde_json::from_value(vmi).expect("is a VMI")
    }

    #[test]
    fn migration_carries_what_is_listed_until_the_guest_has_it() {
        let over = || json!({"migrationUid": "m", "completed": true});
        let failed = || json!({"migrationUid": "m", "completed": true, "failed": true});
        let ready = || json!({"migrationUid": "m", "targetNodeDomainReadyTimestamp": "2026-11-21T12:00:00Z"});
        let other = || json!({"migrationUid": "n", "completed": true});
        let state = "/status/migrationState";
        for (change, wanted, carried, arrived) in [
            (json!({}), true, true, false),
            (json!({state: over()}), false, true, true),
            (json!({state: ready()}), false, true, true),
            (json!({state: failed()}), true, true, false),
            // An earlier migration had ended before the list was made.
            (json!({state: other()}), true, false, false),
            (json!({state: null}), true, false, false),
            (json!({"/status/phase": "Failed"}), false, true, false),
            (json!({"/status/migratedVolumes": []}), false, false, false),
            (
                json!({"/status/conditions": [{"type": "VolumesChange", "status": "False"}]}),
                false,
                true,
                false,
            ),
            (
                json!({"/status/migratedVolumes": [{"volumeName": "root"}]}),
                false,
                false,
                false,
            ),
            (json!({"/metadata/annotations": {}}), true, false, false),
        ] {
            let vmi = vmi(change.clone());
            assert_eq!(!volume_moves(&vmi).is_empty(), wanted, "{change}");
            assert_eq!(!carried_volumes(&vmi).is_empty(), carried, "{change}");
            assert_eq!(volumes_arrived(&vmi), arrived, "{change}");
        }
        assert!(!volumes_arrived(&VirtualMachineInstance::default()));
    }

    #[test]
    fn only_claims_of_volumes_that_move_change() {
        let mut vmi = vmi(json!({}));
        let moves = volume_moves(&vmi);
        put_on_new_claims(&mut vmi.spec.volumes, &moves);
        let expected = json!([
            {"name": "root", "persistentVolumeClaim": {"claimName": "new", "readOnly": true}},
            {"name": "data", "dataVolume": {"name": "kept"}},
        ]);
        assert_eq!(json!(vmi.spec.volumes), expected);
    }

    #[test]
    fn pod_says_what_it_was_made_for() {
        let moves = volume_moves(&vmi(json!({})));
        let annotation = pod_annotation(&moves);
        assert_eq!(annotation, r#"{"root":["old","new"]}"#);
        assert_eq!(moves_of_pod(&annotation), Some(moves));
        assert_eq!(moves_of_pod("{}"), Some(VolumeMoves::new()));
        for malformed in ["", "[]", r#"{"root":["old"]}"#] {
            assert_eq!(moves_of_pod(malformed), None, "{malformed}");
        }
    }
}
