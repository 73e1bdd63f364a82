use jiff::Timestamp;
use kubevirt_api::backup_restore::{MarkState, RestorePhase, RestoredVolume};
use reasons::Reason;
use serde_json::{Value, json};

use super::*;
use crate::data_volume::{Container, End, PodPhase};
use crate::view::Claim;

use super::disk::Disk;
use super::observe::Observed;
use super::plan::{Progress, Step, plan};
use super::source::Source;

mod inspection;
mod overwrites;

const UID: &str = "r-1";

fn restore(policy: &str) -> Restore {
    serde_json::from_value(json!({
        "metadata": {
            "name": "r", "namespace": "n", "uid": UID,
            "finalizers": ["backup.ferrovirt.io/vmbackuprestore-protection"],
        },
        "spec": {
            "source": {"pvcName": "p", "directory": "d"}, "targetPolicy": policy,
            "volumes": [{"name": "root", "claimName": "c"}],
        },
        "status": {"phase": "Restoring", "pvcName": "p", "directory": "d"},
    }))
    .unwrap()
}

fn claim(owner: Option<&str>, mark: Option<(&str, MarkState)>) -> Arc<Claim> {
    let mark =
        mark.map(|(uid, state)| json!({"name": "r", "uid": uid, "state": state}).to_string());
    let owners = owner.map(|uid| {
        json!([{"apiVersion": "v1", "kind": "K", "name": "r", "uid": uid, "controller": true}])
    });
    let claim: k8s_openapi::api::core::v1::PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {
            "name": "c", "namespace": "n", "uid": "c-1", "ownerReferences": owners,
            "annotations": mark.map(|mark| json!({"ferrovirt.io/backup-restore": mark})),
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }))
    .unwrap();
    Arc::new(Claim::from(claim))
}

fn disk(claim: Option<Arc<Claim>>) -> Disk {
    Disk {
        volume: RestoredVolume {
            name: "root".to_owned(),
            claim_name: "c".to_owned(),
            disk_bytes: 1 << 20,
            phase: Some(RestorePhase::Pending),
            ..RestoredVolume::default()
        },
        claim,
        ..Disk::default()
    }
}

fn pod(phase: PodPhase) -> Arc<ImporterPod> {
    let mut pod = ImporterPod {
        phase,
        container: Container::Running { since: None },
        ..ImporterPod::default()
    };
    let claim = ("ferrovirt.io/import-claim".to_owned(), "c-1".to_owned());
    pod.metadata.annotations = Some([claim].into());
    Arc::new(pod)
}

fn observed(policy: &str, disk: Disk) -> Observed {
    Observed {
        restore: Arc::new(restore(policy)),
        source: Source::Found {
            claim: "p".to_owned(),
            directory: "d".to_owned(),
        },
        inspector: None,
        inspected: None,
        disks: vec![disk],
        rival: None,
        now: Timestamp::UNIX_EPOCH,
    }
}

fn step(policy: &str, disk: Disk) -> Option<Step> {
    plan(&observed(policy, disk)).step
}

#[test]
fn new_claim_is_made_filled_and_given_away() {
    let new = |disk| step("Create", disk);
    assert_eq!(new(disk(None)), Some(Step::CreateClaim(0)));
    let own = claim(Some(UID), Some((UID, MarkState::Writing)));
    assert_eq!(new(disk(Some(Arc::clone(&own)))), Some(Step::CreatePod(0)));
    let with_pod = |phase| Disk {
        pod: Some(pod(phase)),
        ..disk(Some(Arc::clone(&own)))
    };
    assert_eq!(new(with_pod(PodPhase::Running)), None);
    assert_eq!(new(with_pod(PodPhase::Succeeded)), Some(Step::Finish(0)));
    // That of somebody else, also of one who has copied the mark.
    for owner in [None, Some("other")] {
        for mark in [None, Some((UID, MarkState::Writing))] {
            assert_eq!(
                new(disk(Some(claim(owner, mark)))),
                None,
                "{owner:?} {mark:?}"
            );
        }
    }
}

#[test]
fn existing_claim_is_marked_only_while_nothing_uses_it() {
    use MarkState::{Done, Reserved, Writing};
    let check = |mark, user: Option<&str>, has_rival: bool, expected| {
        let disk = Disk {
            user: user.map(str::to_owned),
            ..disk(Some(claim(None, mark)))
        };
        let observed = Observed {
            rival: has_rival.then(|| "other".to_owned()),
            ..observed("Overwrite", disk)
        };
        let step = plan(&observed).step;
        assert_eq!(step, expected, "{mark:?} {user:?} {has_rival}");
    };
    check(None, None, false, Some(Step::Reserve(0)));
    check(None, Some("pod a"), false, None);
    check(None, None, true, None);
    check(Some((UID, Reserved)), None, true, Some(Step::Release(0)));
    check(Some((UID, Reserved)), None, false, Some(Step::Mark(0)));
    check(
        Some((UID, Reserved)),
        Some("pod a"),
        false,
        Some(Step::Release(0)),
    );
    // Its data is lost: the mark stays whatever uses it.
    check(
        Some((UID, Writing)),
        Some("pod a"),
        false,
        Some(Step::CreatePod(0)),
    );
    check(Some(("other", Done)), None, false, Some(Step::Reserve(0)));
    check(
        Some(("other", Reserved)),
        None,
        false,
        Some(Step::Reserve(0)),
    );
    // Half a disk of a restore that is gone never has a moment without a mark.
    check(Some(("other", Writing)), None, false, Some(Step::Mark(0)));
    check(Some(("other", Writing)), None, true, None);
    check(Some(("other", Writing)), Some("pod a"), false, None);
    let filled = Disk {
        filler: Some("its upload is not complete".to_owned()),
        ..disk(Some(claim(None, None)))
    };
    assert_eq!(step("Overwrite", filled), None);
    assert_eq!(step("Overwrite", disk(None)), None);
}

#[test]
fn restore_ends_once_every_disk_is_complete() {
    let done = disk(Some(claim(None, Some((UID, MarkState::Done)))));
    let whole = plan(&observed("Create", done.clone()));
    assert!(matches!(whole.progress, Progress::Complete(_)), "{whole:?}");
    let mut half = observed("Create", done);
    half.disks.push(Disk {
        pod: Some(pod(PodPhase::Running)),
        ..disk(Some(claim(Some(UID), Some((UID, MarkState::Writing)))))
    });
    half.disks[0].volume.phase = Some(RestorePhase::Succeeded);
    let half = plan(&half);
    assert!(
        matches!(half.progress, Progress::Restoring { .. }),
        "{half:?}"
    );
    assert!(half.requeue_in.is_some());
}

#[test]
fn disk_that_does_not_fit_fails_the_restore() {
    let mut large = disk(Some(claim(None, None)));
    large.volume.disk_bytes = 2 << 30;
    let plan = plan(&observed("Overwrite", large));
    let Progress::Failed(Reason::DiskDoesNotFit, message) = plan.progress else {
        panic!("{plan:?}");
    };
    assert!(
        message.contains("the claim has 1Gi, and the disk 2Gi"),
        "{message}"
    );
}

#[test]
fn end_of_a_restore_takes_back_marks_of_untouched_claims() {
    let check = |state, expected| {
        let mut observed = observed("Overwrite", disk(Some(claim(None, Some((UID, state))))));
        let mut ended = restore("Overwrite");
        ended.status.as_mut().unwrap().phase = Some(RestorePhase::Failed);
        observed.restore = Arc::new(ended);
        assert_eq!(plan(&observed).step, expected, "{state:?}");
    };
    check(MarkState::Reserved, Some(Step::Release(0)));
    check(MarkState::Writing, Some(Step::RemoveFinalizer));
    check(MarkState::Done, Some(Step::RemoveFinalizer));
}

/// A pod of an earlier time says nothing about a claim that others have written to since.
#[test]
fn only_the_own_mark_is_finished() {
    use MarkState::{Done, Reserved, Writing};
    let check = |mark, recorded: bool, expected| {
        let mut disk = Disk {
            pod: Some(pod(PodPhase::Succeeded)),
            ..disk(Some(claim(Some(UID), mark)))
        };
        if recorded {
            disk.volume.phase = Some(RestorePhase::Succeeded);
        }
        for policy in ["Create", "Overwrite"] {
            let mut observed = observed(policy, disk.clone());
            // It keeps the restore from its end.
            observed.disks.push(Disk {
                pod: Some(pod(PodPhase::Running)),
                ..self::disk(Some(claim(Some(UID), Some((UID, Writing)))))
            });
            let plan = plan(&observed);
            assert_eq!(plan.step, expected, "{mark:?} {policy}");
            if recorded {
                let Progress::Restoring { volumes, .. } = plan.progress else {
                    panic!("{plan:?}");
                };
                assert_eq!(volumes[0].phase, Some(RestorePhase::Succeeded));
            }
        }
    };
    check(Some((UID, Writing)), false, Some(Step::Finish(0)));
    check(Some((UID, Reserved)), false, None);
    check(None, false, None);
    for state in [Reserved, Writing, Done] {
        check(Some(("other", state)), false, None);
        check(Some(("other", state)), true, None);
    }
    check(Some((UID, Writing)), true, None);
}

#[test]
fn complete_disk_is_on_record_before_the_next_step() {
    let done = disk(Some(claim(None, Some((UID, MarkState::Done)))));
    let mut observed = observed("Create", done);
    observed.disks.push(disk(None));
    let first = plan(&observed);
    let Progress::Recorded(volumes) = first.progress else {
        panic!("{first:?}");
    };
    assert_eq!(
        (first.step, volumes[0].phase.clone()),
        (None, Some(RestorePhase::Succeeded))
    );
    observed.disks[0].volume = volumes[0].clone();
    assert_eq!(plan(&observed).step, Some(Step::CreateClaim(1)));
    // A refused step is reported with the disks that are complete.
    observed.disks[0].volume.phase = None;
    let waits = Progress::Waits {
        phase: RestorePhase::Restoring,
        reason: Reason::BackupRestoreWaits,
        message: "refused".to_owned(),
    };
    let failed = Progress::Failed(Reason::BackupNotUsable, "damaged".to_owned());
    for progress in [waits, failed] {
        let status = status::render(&observed, &progress);
        assert_eq!(
            status.volumes[0].phase,
            Some(RestorePhase::Succeeded),
            "{progress:?}"
        );
    }
}

/// A pod that failed before it changed the claim leaves it to its VM.
#[test]
fn claim_with_its_old_disk_gets_its_mark_taken_back() {
    let check = |policy: &str, phase, of: &str, is_intact: bool, expected| {
        let mut failed = ImporterPod::clone(&pod(phase));
        let claims = failed.metadata.annotations.as_mut().unwrap();
        claims.insert("ferrovirt.io/import-claim".to_owned(), of.to_owned());
        let report = json!({"reason": "BackupNotUsable", "message": "bad", "isIntact": is_intact});
        failed.last_end = Some(End {
            exit_code: 1,
            message: report.to_string(),
            ..End::default()
        });
        let mark = Some((UID, MarkState::Writing));
        let mut observed = observed(
            policy,
            Disk {
                pod: Some(Arc::new(failed)),
                ..disk(Some(claim(Some(UID), mark)))
            },
        );
        let progress = Progress::Failed(Reason::BackupNotUsable, "bad".to_owned());
        let status = status::render(&observed, &progress);
        let message = json!(status.conditions).to_string();
        let is_named = message.contains("may have no complete disk");
        let is_released = expected == Step::Release(0);
        assert_eq!(
            is_named, !is_released,
            "{policy} {phase:?} {of} {is_intact}"
        );
        let mut ended = restore(policy);
        ended.status = Some(status);
        observed.restore = Arc::new(ended);
        assert_eq!(
            plan(&observed).step,
            Some(expected),
            "{policy} {phase:?} {of} {is_intact}"
        );
    };
    let (released, deleted) = (Step::Release(0), Step::DeletePod(0));
    check("Overwrite", PodPhase::Failed, "c-1", true, released);
    check("Overwrite", PodPhase::Failed, "c-1", false, deleted);
    // It may run again, or has looked at another claim of that name.
    check("Overwrite", PodPhase::Running, "c-1", true, deleted);
    check("Overwrite", PodPhase::Failed, "c-0", true, deleted);
    check("Create", PodPhase::Failed, "c-1", true, deleted);
}

#[test]
fn claim_is_marked_once_its_pod_may_be_created() {
    let busy = Disk {
        pod: Some(pod(PodPhase::Running)),
        ..disk(Some(claim(None, Some((UID, MarkState::Writing)))))
    };
    let mut observed = observed("Overwrite", busy.clone());
    observed.disks.extend(std::iter::repeat_n(busy, 3));
    observed.disks.push(disk(Some(claim(None, None))));
    assert_eq!(plan(&observed).step, Some(Step::Reserve(4)));
    observed.disks[4] = disk(Some(claim(None, Some((UID, MarkState::Reserved)))));
    assert_eq!(plan(&observed).step, None);
    observed.disks.remove(0);
    assert_eq!(plan(&observed).step, Some(Step::Mark(3)));
}

/// What the cache only lags behind of is no news, and the end of a restore stays as it was reported.
#[test]
fn failed_steps_are_reported() {
    let what = || "persistentvolumeclaims n/c".to_owned();
    let message = || "no".to_owned();
    let is_reported = |source: WriteError, ended: Option<RestorePhase>| {
        let mut restore = restore("Overwrite");
        if ended.is_some() {
            restore.status.as_mut().unwrap().phase = ended;
        }
        let tried = "mark a claim";
        match act::failure(&restore, &RestoreError::Write { tried, source }) {
            None => false,
            Some(Progress::Waits { phase, message, .. }) => {
                assert_eq!(phase, RestorePhase::Restoring);
                assert!(message.starts_with("mark a claim: "), "{message}");
                true
            }
            Some(other) => panic!("{other:?}"),
        }
    };
    for (source, expected) in [
        (WriteError::Conflict { what: what() }, false),
        (WriteError::NotFound { what: what() }, false),
        (WriteError::AlreadyExists { what: what() }, false),
        (
            WriteError::Refused {
                what: what(),
                message: message(),
            },
            true,
        ),
        (
            WriteError::ServerError {
                what: what(),
                message: message(),
            },
            true,
        ),
    ] {
        assert_eq!(is_reported(source, None), expected);
    }
    for phase in [RestorePhase::Succeeded, RestorePhase::Failed] {
        let refused = WriteError::Refused {
            what: what(),
            message: message(),
        };
        assert!(!is_reported(refused, Some(phase)));
    }
}
