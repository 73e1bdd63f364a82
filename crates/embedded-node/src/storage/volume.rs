//! What to do next for one persistent volume: pure.

use k8s_openapi::api::core::v1::PersistentVolume;

use super::{PROVISIONER, VOLUME_PROTECTION, claim::has_finalizer};

pub(crate) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// What is known of the claim that the volume names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It is there, and names this volume.
    Bound,
    /// It is there, and does not name this volume yet.
    Pending,
    Gone,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Protect,
    Unprotect,
    Show(&'static str),
    /// The data and the object.
    Reclaim,
    /// Only the data: the object is being deleted by somebody.
    Erase,
    /// It was to be deleted, and nobody here knows how.
    Fail(String),
}

pub(crate) fn next(volume: &PersistentVolume, claim: Claim) -> Option<Step> {
    let protected = has_finalizer(&volume.metadata, VOLUME_PROTECTION);
    let spec = volume.spec.as_ref()?;
    let reference = spec.claim_ref.as_ref();
    let owned = reference.and_then(|reference| reference.uid.as_deref());
    let delete = spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete");
    if volume.metadata.deletion_timestamp.is_some() {
        let used = owned.is_some() && claim != Claim::Gone;
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
        (Some(_), Claim::Bound) => "Bound",
        // On the way: whoever made it for the claim goes on with the claim.
        (Some(_), Claim::Pending) => return None,
        (Some(_), Claim::Gone) if delete => return reclaim(volume),
        (Some(_), Claim::Gone) => "Released",
    };
    let shown = volume.status.as_ref().and_then(|s| s.phase.as_deref());
    (shown != Some(phase)).then_some(Step::Show(phase))
}

fn reclaim(volume: &PersistentVolume) -> Option<Step> {
    if is_ours(volume) {
        return Some(Step::Reclaim);
    }
    let shown = volume.status.as_ref().and_then(|s| s.phase.as_deref());
    (shown != Some("Failed")).then(|| {
        Step::Fail("no provisioner on this host knows how to delete this volume".to_owned())
    })
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

    fn check(volume: &Value, claim: Claim, expected: Option<&Step>) {
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
                Claim::Gone,
                Some(Step::Show("Available")),
            ),
            ("Delete", "Available", &Value::Null, Claim::Gone, None),
            (
                "Delete",
                "",
                &reserved,
                Claim::Pending,
                Some(Step::Show("Available")),
            ),
            ("Delete", "", &ours, Claim::Pending, None),
            ("Delete", "", &ours, Claim::Bound, Some(Step::Show("Bound"))),
            ("Delete", "Bound", &ours, Claim::Bound, None),
            ("Delete", "Bound", &ours, Claim::Gone, Some(Step::Reclaim)),
            (
                "Retain",
                "Bound",
                &ours,
                Claim::Gone,
                Some(Step::Show("Released")),
            ),
            ("Retain", "Released", &ours, Claim::Gone, None),
        ] {
            check(&volume(policy, phase, reference), claim, expected.as_ref());
        }
    }

    #[test]
    fn deleted_volume_goes_when_its_claim_has_gone() {
        let ours = json!({"name": "c", "namespace": "n", "uid": "u"});
        let going = |policy: &str| {
            let mut one = volume(policy, "Bound", &ours);
            one["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
            one
        };
        check(&going("Delete"), Claim::Bound, None);
        check(&going("Delete"), Claim::Gone, Some(&Step::Erase));
        check(&going("Retain"), Claim::Gone, Some(&Step::Unprotect));
        let mut free = going("Delete");
        free["metadata"]["finalizers"] = json!([]);
        check(&free, Claim::Gone, None);
    }

    #[test]
    fn foreign_data_is_never_deleted() {
        let ours = json!({"name": "c", "namespace": "n", "uid": "u"});
        let mut foreign = volume("Delete", "Bound", &ours);
        foreign["metadata"]["annotations"] = json!({PROVISIONED_BY: "example.com/nfs"});
        let typed = serde_json::from_value(foreign.clone()).unwrap();
        assert!(matches!(next(&typed, Claim::Gone), Some(Step::Fail(_))));
        foreign["status"]["phase"] = json!("Failed");
        check(&foreign, Claim::Gone, None);
        foreign["metadata"]["finalizers"] = json!([]);
        check(&foreign, Claim::Gone, Some(&Step::Protect));
    }
}
