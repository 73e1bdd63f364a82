//! The pod that inspects the backup.

use super::*;

fn inspecting(pod: ImporterPod) -> Observed {
    Observed {
        inspector: Some(Arc::new(pod)),
        disks: Vec::new(),
        ..observed("Overwrite", disk(None))
    }
}

/// A pod whose program has ended at the beginning of the epoch.
fn ended(phase: PodPhase, transient: bool) -> ImporterPod {
    let report = json!({"reason": "BackupNotUsable", "message": "bad", "transient": transient});
    ImporterPod {
        phase,
        container: Container::Ended,
        last_end: Some(End {
            exit_code: 1,
            message: report.to_string(),
            at: Some(Timestamp::UNIX_EPOCH),
            ..End::default()
        }),
        ..ImporterPod::default()
    }
}

#[test]
fn backup_that_is_not_usable_is_read_once() {
    // One of an earlier version runs again.
    let again = ImporterPod {
        container: Container::Running { since: None },
        ..ended(PodPhase::Running, false)
    };
    for pod in [ended(PodPhase::Failed, false), again] {
        let plan = plan(&inspecting(pod));
        let failed = Progress::Failed(Reason::BackupNotUsable, "bad".to_owned());
        assert_eq!(plan.progress, failed, "{plan:?}");
    }
}

/// What storage or a node did wrong may be over. Each pod knows how many were before it.
#[test]
fn inspection_begins_anew_after_a_pause_that_grows() {
    for (before, pause) in [(0, 10), (1, 20), (9, 300)] {
        let mut pod = ended(PodPhase::Failed, true);
        let restarts = (
            "ferrovirt.io/import-restarts".to_owned(),
            before.to_string(),
        );
        pod.metadata.annotations = Some([restarts].into());
        let mut observed = inspecting(pod);
        let first = plan(&observed);
        assert_eq!(first.step, None);
        assert_eq!(
            first.requeue_in,
            Some(std::time::Duration::from_secs(pause))
        );
        let status = status::render(&observed, &first.progress);
        assert_eq!(status.restarts, Some(before + 1));
        assert_eq!(status.phase, Some(RestorePhase::Inspecting));
        let seconds = i64::try_from(pause).unwrap();
        observed.now = Timestamp::from_second(seconds).unwrap();
        assert_eq!(plan(&observed).step, Some(Step::DeleteInspector));
        // The next one is created with that number.
        let mut next = restore("Overwrite");
        next.status = Some(status);
        observed.restore = Arc::new(next);
        assert_eq!(observed.restarts(), before + 1);
    }
}

#[test]
fn inspection_shows_its_progress() {
    let mut observed = inspecting(ImporterPod::clone(&pod(PodPhase::Running)));
    observed.inspected = Some("42.0%".to_owned());
    let first = plan(&observed);
    assert!(first.requeue_in.is_some(), "{first:?}");
    let status = status::render(&observed, &first.progress);
    assert_eq!(status.progress.as_deref(), Some("42.0%"));
    assert_eq!(status.restarts, None);
    // Its log cannot be read now.
    observed.inspected = None;
    let mut known = restore("Overwrite");
    known.status = Some(status);
    observed.restore = Arc::new(known);
    let status = status::render(&observed, &plan(&observed).progress);
    assert_eq!(status.progress.as_deref(), Some("42.0%"));
}

#[test]
fn inspection_goes_on_without_the_backup() {
    let mut observed = inspecting(ImporterPod::clone(&pod(PodPhase::Running)));
    observed.source = Source::Waits("there is no persistentvolumeclaim p".to_owned());
    let Progress::Inspecting { message, .. } = plan(&observed).progress else {
        panic!("it does not inspect");
    };
    assert_eq!(message, "the backup is being inspected");
    observed.inspector = None;
    assert_eq!(plan(&observed).step, None);
}

/// What the pod reports that inspects the backup becomes the list of disks, or a refusal.
#[test]
fn reported_volumes_get_claims() {
    let known = |spec: Value, volumes: Value| {
        let mut restore = restore("Create");
        restore.spec = serde_json::from_value(spec).unwrap();
        let mut pod = ImporterPod {
            phase: PodPhase::Succeeded,
            ..ImporterPod::default()
        };
        let message = json!({"message": "", "volumes": volumes}).to_string();
        pod.last_end = Some(End {
            message,
            ..End::default()
        });
        let observed = Observed {
            restore: Arc::new(restore),
            inspector: Some(Arc::new(pod)),
            disks: Vec::new(),
            ..observed("Create", disk(None))
        };
        plan(&observed).progress
    };
    let source = json!({"pvcName": "p", "directory": "d"});
    let Progress::Known(found) = known(json!({"source": source}), json!({"a": 1, "b": 2})) else {
        panic!("the volumes are not known");
    };
    let found: Vec<_> = found
        .iter()
        .map(|one| (one.claim_name.as_str(), one.disk_bytes))
        .collect();
    assert_eq!(found, [("r-a", 1), ("r-b", 2)]);
    let long = "v".repeat(260);
    for (spec, volumes) in [
        (json!({"source": source}), json!({})),
        (json!({"source": source}), json!({"a/b": 1})),
        (json!({"source": source}), json!({long: 1})),
        (json!({"source": source}), json!({"a": u64::MAX})),
        (
            json!({"source": source, "volumes": [{"name": "a", "claimName": "p"}]}),
            json!({"a": 1}),
        ),
        (
            json!({"source": source, "volumes": [{"name": "a", "claimName": "r-b"}]}),
            json!({"a": 1, "b": 1}),
        ),
        (
            json!({"source": source, "claimTemplate": {"size": "1Mi"}}),
            json!({"a": 1 << 30}),
        ),
    ] {
        let found = known(spec, volumes.clone());
        assert!(
            matches!(found, Progress::Failed(..)),
            "{volumes}: {found:?}"
        );
    }
}
