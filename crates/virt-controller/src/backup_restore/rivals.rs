//! Which of several restores onto one claim is the first. Pure.
//!
//! **Invariant**: of two restores that wait for a claim without a mark of theirs, one goes on, so that none waits for a
//! restore that waits for it.

use kubevirt_api::backup_restore::{
    RestoreMark, RestorePhase as Phase, VirtualMachineBackupRestore as Restore,
};

use super::status::is_finished;

/// Whether the other restore writes to the claim, which has that mark, or will before this one.
pub(super) fn is_rival(
    own: &Restore,
    other: &Restore,
    claim: &str,
    mark: Option<&RestoreMark>,
) -> bool {
    let has_mark = |one: &Restore| {
        let uid = one.metadata.uid.as_ref();
        mark.filter(|mark| Some(&mark.uid) == uid)
    };
    if other.metadata.uid == own.metadata.uid || is_finished(other) {
        return false;
    }
    let mut known = other.status.iter().flat_map(|status| &status.volumes);
    let is_due = known.any(|one| one.claim_name == claim && one.phase != Some(Phase::Succeeded));
    if let Some(mark) = has_mark(other) {
        // A complete disk that is not in its status yet is still its own.
        return mark.is_open() || is_due;
    }
    if has_mark(own).is_some_and(RestoreMark::is_open) {
        return false;
    }
    let order = |one: &Restore| {
        let created = one.metadata.creation_timestamp.as_ref().map(|at| at.0);
        (created, one.metadata.uid.clone())
    };
    is_due && other.metadata.deletion_timestamp.is_none() && order(other) < order(own)
}

#[cfg(test)]
mod tests {
    use kubevirt_api::backup_restore::MarkState;
    use serde_json::json;

    use super::*;

    fn restore(uid: &str, second: u8, phase: &str, volume: &str) -> Restore {
        serde_json::from_value(json!({
            "metadata": {
                "name": uid, "namespace": "n", "uid": uid,
                "creationTimestamp": format!("2026-01-02T03:04:{second:02}Z"),
            },
            "spec": {"source": {"pvcName": "p", "directory": "d"}},
            "status": {"phase": phase, "volumes": [{"name": "root", "claimName": "c", "phase": volume}]},
        }))
        .unwrap()
    }

    #[test]
    fn mark_counts_first_and_age_second() {
        use MarkState::{Done, Reserved, Writing};
        let own = restore("own", 5, "Restoring", "Pending");
        let check = |(second, phase, volume), claim, mark: Option<(&str, MarkState)>, expected| {
            let other = restore("other", second, phase, volume);
            let mark = mark.map(|(uid, state)| RestoreMark {
                name: uid.to_owned(),
                uid: uid.to_owned(),
                state,
                verified: None,
            });
            let found = is_rival(&own, &other, claim, mark.as_ref());
            assert_eq!(found, expected, "{other:?} {claim} {mark:?}");
        };
        let older = (4, "Restoring", "Pending");
        let younger = (6, "Restoring", "Pending");
        for state in [Reserved, Writing] {
            for other in [older, younger] {
                check(other, "c", Some(("other", state)), true);
                // Neither gives way once it has begun.
                check(other, "c", Some(("own", state)), false);
            }
        }
        // It is not yet in the status of the other.
        check(younger, "c", Some(("other", Done)), true);
        check(
            (6, "Restoring", "Succeeded"),
            "c",
            Some(("other", Done)),
            false,
        );
        check(
            (4, "Failed", "Pending"),
            "c",
            Some(("other", Writing)),
            false,
        );
        for mark in [None, Some(("third", Done)), Some(("own", Done))] {
            check(older, "c", mark, true);
            check(younger, "c", mark, false);
        }
        check(older, "d", None, false);
        check((4, "Restoring", "Succeeded"), "c", None, false);
        check((4, "Failed", "Pending"), "c", None, false);
        // Of the same second.
        check((5, "Restoring", "Pending"), "c", None, true);
        assert!(!is_rival(&own, &own, "c", None));
        let mut deleted = restore("other", 4, "Restoring", "Pending");
        deleted.metadata.deletion_timestamp = deleted.metadata.creation_timestamp.clone();
        assert!(!is_rival(&own, &deleted, "c", None));
    }
}
