//! Which of several restores with claims in common goes first. Pure.
//!
//! **Invariant**: of two restores that have reserved nothing, one goes on, and one that waits reserves nothing, so that none
//! waits for a restore that waits for it. They are compared as a whole: else a VM could get one disk of each.

use kubevirt_api::backup_restore::{
    RestoreMark, RestorePhase as Phase, TargetPolicy, VirtualMachineBackupRestore as Restore,
};

use super::status::is_finished;

/// Whether the other restore writes to one of the claims, each with its mark, or will before this one. Those are the
/// claims that this restore has not completed.
pub(super) fn is_rival(
    own: &Restore,
    other: &Restore,
    claims: &[(&str, Option<RestoreMark>)],
) -> bool {
    if other.metadata.uid == own.metadata.uid || is_finished(other) {
        return false;
    }
    let due = due(other);
    let is_of = |mark: &RestoreMark, one: &Restore| Some(&mark.uid) == one.metadata.uid.as_ref();
    let marks = || {
        let all = claims.iter();
        all.filter_map(|(claim, mark)| Some((claim, mark.as_ref()?)))
    };
    // A complete disk that is not in the status of the other yet is still its own.
    let is_held = |(claim, mark): (&&str, &RestoreMark)| {
        is_of(mark, other) && (mark.is_open() || due.contains(claim))
    };
    if marks().any(is_held) {
        return true;
    }
    if marks().any(|(_, mark)| is_of(mark, own) && mark.is_open()) {
        return false;
    }
    let order = |one: &Restore| {
        let created = one.metadata.creation_timestamp.as_ref().map(|at| at.0);
        (created, one.metadata.uid.clone())
    };
    claims.iter().any(|(claim, _)| due.contains(claim))
        && other.metadata.deletion_timestamp.is_none()
        && order(other) < order(own)
}

/// The claims that a restore has yet to write. Those of a backup that was not inspected are known if they exist.
fn due(restore: &Restore) -> Vec<&str> {
    let known = restore.status.iter().flat_map(|status| &status.volumes);
    let left = known
        .clone()
        .filter(|one| one.phase != Some(Phase::Succeeded));
    let left: Vec<&str> = left.map(|one| one.claim_name.as_str()).collect();
    let overwrites = restore.spec.target_policy == Some(TargetPolicy::Overwrite);
    if known.count() > 0 || !overwrites {
        return left;
    }
    let given = restore.spec.volumes.iter();
    given.filter_map(|one| one.claim_name.as_deref()).collect()
}

#[cfg(test)]
mod tests {
    use kubevirt_api::backup_restore::MarkState;
    use serde_json::json;

    use super::*;

    fn restore(uid: &str, second: u8, phase: &str, volumes: &[(&str, &str)]) -> Restore {
        let volumes = volumes.iter();
        let volumes: Vec<_> = volumes
            .map(|(claim, phase)| json!({"name": claim, "claimName": claim, "phase": phase}))
            .collect();
        serde_json::from_value(json!({
            "metadata": {
                "name": uid, "namespace": "n", "uid": uid,
                "creationTimestamp": format!("2026-01-02T03:04:{second:02}Z"),
            },
            "spec": {
                "source": {"pvcName": "p", "directory": "d"}, "targetPolicy": "Overwrite",
                "volumes": [{"name": "c", "claimName": "c"}, {"name": "d", "claimName": "d"}],
            },
            "status": {"phase": phase, "volumes": volumes},
        }))
        .unwrap()
    }

    fn mark(uid: &str, state: MarkState) -> RestoreMark {
        RestoreMark {
            name: uid.to_owned(),
            uid: uid.to_owned(),
            state,
            verified: None,
        }
    }

    fn own() -> Restore {
        restore("own", 5, "Restoring", &[("c", "Pending"), ("e", "Pending")])
    }

    #[test]
    fn mark_counts_first_and_age_second() {
        use MarkState::{Done, Reserved, Writing};
        let own = own();
        let check = |(second, phase, volume), found: Option<(&str, MarkState)>, expected| {
            let other = restore("other", second, phase, &[("c", volume)]);
            let found = found.map(|(uid, state)| mark(uid, state));
            let claims = [("e", None), ("c", found)];
            let rival = is_rival(&own, &other, &claims);
            assert_eq!(rival, expected, "{other:?} {claims:?}");
        };
        let older = (4, "Restoring", "Pending");
        let younger = (6, "Restoring", "Pending");
        for state in [Reserved, Writing] {
            for other in [older, younger] {
                check(other, Some(("other", state)), true);
                // Neither gives way once it has begun.
                check(other, Some(("own", state)), false);
            }
        }
        // It is not yet in the status of the other.
        check(younger, Some(("other", Done)), true);
        let recorded = (6, "Restoring", "Succeeded");
        check(recorded, Some(("other", Done)), false);
        let failed = (4, "Failed", "Pending");
        check(failed, Some(("other", Writing)), false);
        for mark in [None, Some(("third", Done)), Some(("own", Done))] {
            check(older, mark, true);
            check(younger, mark, false);
        }
        check((4, "Restoring", "Succeeded"), None, false);
        check(failed, None, false);
        // Of the same second.
        check((5, "Restoring", "Pending"), None, true);
        assert!(!is_rival(&own, &own, &[("c", None)]));
        let mut deleted = restore("other", 4, "Restoring", &[("c", "Pending")]);
        deleted.metadata.deletion_timestamp = deleted.metadata.creation_timestamp.clone();
        assert!(!is_rival(&own, &deleted, &[("c", None)]));
        let reserved = [("c", Some(mark("other", Reserved)))];
        assert!(is_rival(&own, &deleted, &reserved));
    }

    /// One that was not inspected yet, and one with another claim in common than the one that is looked at.
    #[test]
    fn restores_are_compared_by_all_their_claims() {
        let own = own();
        let claims = [("c", None), ("e", None)];
        let uninspected = restore("other", 4, "Inspecting", &[]);
        assert!(is_rival(&own, &uninspected, &claims));
        assert!(!is_rival(&own, &uninspected, &[("e", None)]));
        let mut creates = uninspected.clone();
        creates.spec.target_policy = None;
        assert!(!is_rival(&own, &creates, &claims));
        let holds = [("c", None), ("e", Some(mark("other", MarkState::Reserved)))];
        let younger = restore(
            "other",
            6,
            "Restoring",
            &[("e", "Pending"), ("f", "Pending")],
        );
        assert!(is_rival(&own, &younger, &holds));
        // The disk that they had in common is complete.
        let left = restore(
            "other",
            4,
            "Restoring",
            &[("c", "Succeeded"), ("f", "Pending")],
        );
        assert!(!is_rival(&own, &left, &claims));
    }
}
