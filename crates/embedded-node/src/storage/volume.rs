//! Pure planning: the next step for one persistent volume.

use k8s_openapi::api::core::v1::PersistentVolume;

use super::{PROVISIONER, VOLUME_PROTECTION, claim::has_finalizer};

pub(crate) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// The state of the claim that the volume names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimState {
    /// The claim names this volume.
    Bound,
    /// The claim does not name this volume yet.
    Pending,
    Gone,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Protect,
    Unprotect,
    SetPhase(&'static str),
    /// Deletes the data and the object.
    Reclaim,
    /// Deletes only the data: the object is already being deleted.
    Erase,
    /// The volume is to be deleted, but its provisioner is not ours.
    Fail(String),
}

pub(crate) fn next(volume: &PersistentVolume, claim: ClaimState) -> Option<Step> {
    let protected = has_finalizer(&volume.metadata, VOLUME_PROTECTION);
    let spec = volume.spec.as_ref()?;
    let reference = spec.claim_ref.as_ref();
    let owned = reference.and_then(|reference| reference.uid.as_deref());
    let delete = spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete");
    if volume.metadata.deletion_timestamp.is_some() {
        let used = owned.is_some() && claim != ClaimState::Gone;
        return match (used, protected) {
            (true, _) | (_, false) => None,
            (false, true) if delete && is_ours(volume) => Some(Step::Erase),
            (false, true) => Some(Step::Unprotect),
        };
    }
    if !protected {
        return Some(Step::Protect);
    }
    let phase = match (owned, claim) {
        (None, _) => "Available",
        (Some(_), ClaimState::Bound) => "Bound",
        // Binding is in progress: the claim's reconciler continues it.
        (Some(_), ClaimState::Pending) => return None,
        (Some(_), ClaimState::Gone) if delete => return reclaim(volume),
        (Some(_), ClaimState::Gone) => "Released",
    };
    let shown = volume.status.as_ref().and_then(|s| s.phase.as_deref());
    (shown != Some(phase)).then_some(Step::SetPhase(phase))
}

fn reclaim(volume: &PersistentVolume) -> Option<Step> {
    if is_ours(volume) {
        return Some(Step::Reclaim);
    }
    let shown = volume.status.as_ref().and_then(|s| s.phase.as_deref());
    (shown != Some("Failed"))
        .then(|| Step::Fail("no provisioner on this host can delete this volume".to_owned()))
}

fn is_ours(volume: &PersistentVolume) -> bool {
    let annotations = volume.metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(PROVISIONED_BY))
        .is_some_and(|by| by == PROVISIONER)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(policy: &str, phase: &str, claim: &Value) -> Value {
        json!({
            "metadata": {
                "name": "v", "finalizers": [VOLUME_PROTECTION],
                "annotations": {PROVISIONED_BY: PROVISIONER},
            },
            "spec": {"persistentVolumeReclaimPolicy": policy, "claimRef": claim},
            "status": {"phase": phase},
        })
    }

    fn check(volume: &Value, claim: ClaimState, expected: Option<&Step>) {
        let typed = serde_json::from_value(volume.clone()).unwrap();
        assert_eq!(next(&typed, claim).as_ref(), expected, "{volume} {claim:?}");
    }

    #[test]
    fn phase_follows_the_claim() {
        let ours = json!({"name": "c", "namespace": "n", "uid": "u"});
        let reserved = json!({"name": "c", "namespace": "n"});
        for (policy, phase, reference, claim, expected) in [
            (
                "Delete",
                "",
                &Value::Null,
                ClaimState::Gone,
                Some(Step::SetPhase("Available")),
            ),
            ("Delete", "Available", &Value::Null, ClaimState::Gone, None),
            (
                "Delete",
                "",
                &reserved,
                ClaimState::Pending,
                Some(Step::SetPhase("Available")),
            ),
            ("Delete", "", &ours, ClaimState::Pending, None),
            (
                "Delete",
                "",
                &ours,
                ClaimState::Bound,
                Some(Step::SetPhase("Bound")),
            ),
            ("Delete", "Bound", &ours, ClaimState::Bound, None),
            (
                "Delete",
                "Bound",
                &ours,
                ClaimState::Gone,
                Some(Step::Reclaim),
            ),
            (
                "Retain",
                "Bound",
                &ours,
                ClaimState::Gone,
                Some(Step::SetPhase("Released")),
            ),
            ("Retain", "Released", &ours, ClaimState::Gone, None),
        ] {
            check(&volume(policy, phase, reference), claim, expected.as_ref());
        }
    }

    #[test]
    fn deleted_volume_is_released_after_its_claim() {
        let ours = json!({"name": "c", "namespace": "n", "uid": "u"});
        let deleted = |policy: &str| {
            let mut one = volume(policy, "Bound", &ours);
            one["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
            one
        };
        check(&deleted("Delete"), ClaimState::Bound, None);
        check(&deleted("Delete"), ClaimState::Gone, Some(&Step::Erase));
        check(&deleted("Retain"), ClaimState::Gone, Some(&Step::Unprotect));
        let mut free = deleted("Delete");
        free["metadata"]["finalizers"] = json!([]);
        check(&free, ClaimState::Gone, None);
    }

    #[test]
    fn foreign_data_is_never_deleted() {
        let ours = json!({"name": "c", "namespace": "n", "uid": "u"});
        let mut foreign = volume("Delete", "Bound", &ours);
        foreign["metadata"]["annotations"] = json!({PROVISIONED_BY: "example.com/nfs"});
        let typed = serde_json::from_value(foreign.clone()).unwrap();
        assert!(matches!(
            next(&typed, ClaimState::Gone),
            Some(Step::Fail(_))
        ));
        foreign["status"]["phase"] = json!("Failed");
        check(&foreign, ClaimState::Gone, None);
        foreign["metadata"]["finalizers"] = json!([]);
        check(&foreign, ClaimState::Gone, Some(&Step::Protect));
    }
}
