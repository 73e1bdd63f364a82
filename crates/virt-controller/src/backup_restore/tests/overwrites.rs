//! Claims of one restore that are overwritten: all or none.

use super::*;

use MarkState::{Done, Reserved, Writing};

fn marked(state: MarkState) -> Disk {
    disk(Some(claim(None, Some((UID, state)))))
}

fn used(mut disk: Disk) -> Disk {
    disk.user = Some("pod a".to_owned());
    disk
}

fn running(mut disk: Disk) -> Disk {
    disk.pod = Some(pod(PodPhase::Running));
    disk
}

fn overwriting(disks: Vec<Disk>) -> Observed {
    Observed {
        disks,
        ..observed("Overwrite", disk(None))
    }
}

#[test]
fn all_claims_are_reserved_before_the_first_is_overwritten() {
    let free = || disk(Some(claim(None, None)));
    let half = || disk(Some(claim(None, Some(("other", Writing)))));
    let recorded = || {
        let mut disk = free();
        disk.volume.phase = Some(RestorePhase::Succeeded);
        disk
    };
    let (release, mark) = (Some(Step::Release(0)), Some(Step::Mark(0)));
    for (case, disks, expected) in [
        ("free", vec![free(), free()], Some(Step::Reserve(0))),
        (
            "one is reserved",
            vec![marked(Reserved), free()],
            Some(Step::Reserve(1)),
        ),
        ("both are", vec![marked(Reserved), marked(Reserved)], mark),
        (
            "one is missing",
            vec![marked(Reserved), disk(None)],
            release,
        ),
        ("none can be", vec![free(), disk(None)], None),
        ("one is used", vec![marked(Reserved), used(free())], release),
        (
            "one is used after all",
            vec![marked(Reserved), used(marked(Reserved))],
            release,
        ),
        ("half a disk waits too", vec![half(), used(free())], None),
        ("half a disk is next", vec![half(), marked(Reserved)], mark),
        ("two halves", vec![half(), half()], mark),
        // From here on the others stay reserved.
        (
            "the first is overwritten",
            vec![running(marked(Writing)), marked(Reserved)],
            Some(Step::Mark(1)),
        ),
        (
            "the other is used",
            vec![running(marked(Writing)), used(marked(Reserved))],
            None,
        ),
        (
            "the first is complete",
            vec![recorded(), used(marked(Reserved))],
            None,
        ),
    ] {
        assert_eq!(plan(&overwriting(disks)).step, expected, "{case}");
    }
}

#[test]
fn restore_that_has_begun_gives_way_to_none() {
    let mut observed = overwriting(vec![running(marked(Writing)), marked(Reserved)]);
    observed.rival = Some("other".to_owned());
    assert_eq!(plan(&observed).step, Some(Step::Mark(1)));
}

/// Its claim may be deleted once the pods have read it.
#[test]
fn disks_are_completed_without_the_backup() {
    let written = || Disk {
        pod: Some(pod(PodPhase::Succeeded)),
        ..marked(Writing)
    };
    let gone = |disks| {
        let mut observed = overwriting(disks);
        observed.source = Source::Waits("there is no persistentvolumeclaim p".to_owned());
        plan(&observed)
    };
    assert_eq!(gone(vec![written()]).step, Some(Step::Finish(0)));
    let complete = gone(vec![marked(Done)]).progress;
    assert!(matches!(complete, Progress::Complete(_)), "{complete:?}");
    // Nothing is begun, and what is only reserved is given back.
    for (disk, expected) in [
        (disk(Some(claim(None, None))), None),
        (marked(Reserved), Some(Step::Release(0))),
        (marked(Writing), None),
    ] {
        let plan = gone(vec![disk.clone()]);
        assert_eq!(plan.step, expected, "{disk:?}");
        let Progress::Restoring { message, .. } = &plan.progress else {
            assert!(expected.is_some(), "{plan:?}");
            continue;
        };
        assert!(message.contains("there is no"), "{message}");
        assert!(plan.requeue_in.is_some());
    }
}

#[test]
fn finalizer_is_kept_until_reserved_claims_are_given_back() {
    let of = |policy: &str, deleted: bool, finalizers: Value, disks: Vec<Disk>| {
        let mut restore = json!(restore(policy));
        restore["metadata"]["finalizers"] = finalizers;
        if deleted {
            restore["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        }
        let restore = Arc::new(serde_json::from_value(restore).unwrap());
        plan(&Observed {
            restore,
            ..overwriting(disks)
        })
        .step
    };
    let own = || json!(["backup.ferrovirt.io/vmbackuprestore-protection"]);
    let others = || json!(["example.com/other"]);
    let reserved = || vec![running(marked(Writing)), marked(Reserved)];
    for (case, found, expected) in [
        (
            "new",
            of("Overwrite", false, others(), Vec::new()),
            Some(Step::AddFinalizer),
        ),
        (
            "it makes claims",
            of("Create", false, Value::Null, Vec::new()),
            Some(Step::CreateInspector),
        ),
        (
            "deleted",
            of("Overwrite", true, own(), reserved()),
            Some(Step::DeletePod(0)),
        ),
        (
            "its pods are gone",
            of(
                "Overwrite",
                true,
                own(),
                vec![marked(Writing), marked(Reserved)],
            ),
            Some(Step::Release(1)),
        ),
        (
            "nothing is left",
            of("Overwrite", true, own(), vec![marked(Writing)]),
            Some(Step::RemoveFinalizer),
        ),
        (
            "others keep it",
            of("Overwrite", true, others(), vec![marked(Writing)]),
            None,
        ),
    ] {
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn failure_names_what_is_overwritten() {
    let observed = overwriting(vec![marked(Done), marked(Writing), marked(Reserved)]);
    let progress = Progress::Failed(Reason::BackupNotUsable, "bad".to_owned());
    let conditions = json!(status::render(&observed, &progress).conditions).to_string();
    for part in [
        "no VM starts with them: c;",
        "have the disk of the backup already: c.",
    ] {
        assert!(conditions.contains(part), "{conditions}");
    }
}
