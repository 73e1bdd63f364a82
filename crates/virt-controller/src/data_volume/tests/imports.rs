//! An import from its claim to its end, and its failures.

use kubevirt_api::data_volume_status::DataVolumePhase as Phase;
use reasons::Reason;
use reconcile::Key;
use serde_json::{Value, json};

use super::{NOW, a_claim, a_pod, check, observe, volume, web, with_source};
use crate::data_volume::plan::{Step, plan};
use crate::data_volume::request::Refusal;
use crate::data_volume::status;

#[test]
fn import_goes_from_claim_to_pod_to_its_end() {
    let bound = || Some(a_claim("Bound"));
    check(
        &observe(volume(&web()), None, None),
        "Pending",
        "",
        &[Step::CreateClaim],
    );
    check(
        &observe(volume(&web()), Some(a_claim("Pending")), None),
        "Pending",
        "",
        &[],
    );
    check(
        &observe(volume(&web()), bound(), None),
        "ImportScheduled",
        "",
        &[Step::CreatePod],
    );
    let with = |phase: &str, container: Value| {
        observe(volume(&web()), bound(), Some(a_pod(phase, &container)))
    };
    check(&with("Pending", json!({})), "ImportScheduled", "", &[]);
    let mut running = with(
        "Running",
        json!({"state": {"running": {"startedAt": "2026-11-25T11:58:20Z"}}, "restartCount": 3}),
    );
    running.progress = Some("42.5%".to_owned());
    check(&running, "ImportInProgress", "", &[]);
    let found = plan(&running);
    assert_eq!(found.requeue_in.unwrap().as_secs(), 5);
    let outcome = found.outcome.unwrap();
    assert!(outcome.running.holds);
    assert_eq!(outcome.progress.as_deref(), Some("42.5%"));
    assert_eq!(outcome.restarts, Some(5));
    check(
        &with(
            "Succeeded",
            json!({"state": {"terminated": {"exitCode": 0}}}),
        ),
        "Succeeded",
        "Completed",
        &[Step::MarkClaim],
    );
    // The controller was killed between the mark and the status; the pod may be gone.
    let mut marked = a_claim("Bound");
    marked["metadata"]["annotations"] = json!({"cdi.kubevirt.io/storage.populatedFor": "disk"});
    check(
        &observe(volume(&web()), Some(marked), None),
        "Succeeded",
        "Completed",
        &[],
    );
    for phase in ["Succeeded", "Failed"] {
        let mut over = volume(&web());
        over["status"] = json!({"phase": phase});
        let left = Some(a_pod("Succeeded", &json!({})));
        check(
            &observe(over.clone(), bound(), left),
            "",
            "",
            &[Step::DeletePod],
        );
        check(&observe(over, bound(), None), "", "", &[]);
    }
    let mut going = volume(&web());
    going["metadata"]["deletionTimestamp"] = json!(NOW);
    check(&observe(going, None, None), "", "", &[]);
}

#[test]
fn failures_of_the_importer_are_retried_or_final() {
    let report = |reason: &str, transient: bool| {
        import_report::Report::failure(reason, "why".to_owned(), transient).text()
    };
    let check = |phase: &str, container: Value, expected: (&str, &str, &[Step])| {
        let pod = Some(a_pod(phase, &container));
        let observed = observe(volume(&web()), Some(a_claim("Bound")), pod);
        check(&observed, expected.0, expected.1, expected.2);
    };
    let not_found = json!({"exitCode": 1, "message": report("ImportSourceNotFound", true)});
    check(
        "Running",
        json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}},
               "lastState": {"terminated": not_found}}),
        ("ImportInProgress", "ImportSourceNotFound", &[]),
    );
    check(
        "Running",
        json!({"state": {"terminated": not_found}}),
        ("ImportInProgress", "ImportSourceNotFound", &[]),
    );
    let wrong = json!({"exitCode": 1, "message": report("ImportChecksumMismatch", false)});
    check(
        "Running",
        json!({"state": {"terminated": wrong}}),
        ("Failed", "ImportChecksumMismatch", &[]),
    );
    check(
        "Running",
        json!({"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}),
        ("ImportInProgress", "ImportFailed", &[]),
    );
    // Of a version that this one does not know.
    let unknown = json!({"exitCode": 1, "message": report("NewReason", true)});
    check(
        "Running",
        json!({"state": {"terminated": unknown}}),
        ("ImportInProgress", "ImportFailed", &[]),
    );
    check(
        "Pending",
        json!({"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}),
        ("ImportScheduled", "ImagePullFailed", &[]),
    );
    check(
        "Pending",
        json!({"state": {"waiting": {"reason": "CreateContainerConfigError", "message": "no secret"}}}),
        ("ImportScheduled", "ImportFailed", &[]),
    );
    check(
        "Pending",
        json!({"state": {"waiting": {"reason": "ContainerCreating"}}}),
        ("ImportScheduled", "", &[]),
    );
}

#[test]
fn failed_pod_is_replaced_after_a_growing_delay() {
    let check = |ago: i64, restarts: i32, steps: &[Step]| {
        let now: jiff::Timestamp = NOW.parse().unwrap();
        let ended = now - jiff::SignedDuration::from_secs(ago);
        let end = json!({"exitCode": 137, "finishedAt": ended.to_string()});
        let container = json!({"state": {"terminated": end}, "restartCount": restarts});
        let pod = Some(a_pod("Failed", &container));
        let observed = observe(volume(&web()), Some(a_claim("Bound")), pod);
        let found = plan(&observed);
        assert_eq!(found.steps, steps, "{ago} {restarts}");
        assert_eq!(found.requeue_in.is_none(), !steps.is_empty());
    };
    // Two restarts of pods before it, and its own failure.
    check(39, 0, &[]);
    check(40, 0, &[Step::DeletePod]);
    check(299, 100, &[]);
    check(300, 100, &[Step::DeletePod]);
}

#[test]
fn claim_without_consumer_waits_unless_it_should_be_bound_at_once() {
    let mut observed = observe(volume(&web()), Some(a_claim("Pending")), None);
    observed.waits_for_consumer = true;
    check(
        &observed,
        "WaitForFirstConsumer",
        "WaitForFirstConsumer",
        &[],
    );
    let mut at_once = volume(&web());
    at_once["metadata"]["annotations"] =
        json!({"cdi.kubevirt.io/storage.bind.immediate.requested": ""});
    let mut observed = observe(at_once, Some(a_claim("Pending")), None);
    observed.waits_for_consumer = true;
    check(&observed, "ImportScheduled", "", &[Step::CreatePod]);
}

#[test]
fn claim_of_something_else_is_not_touched() {
    let mut foreign = a_claim("Bound");
    foreign["metadata"]["ownerReferences"] = json!([]);
    let mut controlled = foreign.clone();
    controlled["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": true}]);
    let case = |notes: Value, claim: &Value, phase: &str, steps: &[Step]| {
        let mut whole = volume(&web());
        whole["metadata"]["annotations"] = notes;
        let observed = observe(whole, Some(claim.clone()), None);
        let reason = if phase == "Pending" {
            "ErrClaimNotValid"
        } else {
            "Completed"
        };
        check(&observed, phase, reason, steps);
    };
    let adopt = || json!({"cdi.kubevirt.io/allowClaimAdoption": "true"});
    let given = || json!({"cdi.kubevirt.io/storage.prePopulated": "disk"});
    case(json!({}), &foreign, "Pending", &[]);
    case(adopt(), &foreign, "Succeeded", &[Step::AdoptClaim]);
    case(adopt(), &controlled, "Pending", &[]);
    case(given(), &foreign, "Succeeded", &[Step::AdoptClaim]);
    case(given(), &controlled, "Succeeded", &[]);
    let mut waits = volume(&web());
    waits["metadata"]["annotations"] = given();
    check(&observe(waits, None, None), "Pending", "", &[]);
    let mut lost = a_claim("Lost");
    lost["status"]["capacity"] = Value::Null;
    check(
        &observe(volume(&web()), Some(lost), None),
        "Failed",
        "ClaimLost",
        &[],
    );
}

#[test]
fn claim_that_is_about_to_disappear_is_not_populated() {
    let mark = json!({"cdi.kubevirt.io/storage.populatedFor": "disk"});
    let with =
        |claim: &Value, pod: Option<Value>| observe(volume(&web()), Some(claim.clone()), pod);
    let done = || a_pod("Succeeded", &json!({}));
    let mut going = a_claim("Bound");
    going["metadata"]["deletionTimestamp"] = json!(NOW);
    check(&with(&going, None), "Pending", "", &[]);
    check(&with(&going, Some(done())), "Pending", "", &[]);
    going["metadata"]["annotations"] = mark.clone();
    check(&with(&going, None), "Pending", "", &[]);
    // The garbage collector has not seen yet that the data volume before this one is gone.
    let mut predecessors = a_claim("Bound");
    predecessors["metadata"]["ownerReferences"][0]["uid"] = json!("before");
    predecessors["metadata"]["annotations"] = mark;
    check(&with(&predecessors, None), "Pending", "", &[]);
}

#[test]
fn pod_that_filled_an_earlier_claim_is_replaced() {
    let case = |claim: &str, phase: &str, reason: &str, steps: &[Step]| {
        let mut pod = a_pod("Succeeded", &json!({}));
        pod["metadata"]["annotations"]["ferrovirt.io/import-claim"] = json!(claim);
        let observed = observe(volume(&web()), Some(a_claim("Bound")), Some(pod.clone()));
        check(&observed, phase, reason, steps);
        if steps == [Step::DeletePod] {
            pod["metadata"]["deletionTimestamp"] = json!(NOW);
            let observed = observe(volume(&web()), Some(a_claim("Bound")), Some(pod));
            check(&observed, phase, reason, &[]);
        }
    };
    case("c", "Succeeded", "Completed", &[Step::MarkClaim]);
    case("earlier", "Pending", "", &[Step::DeletePod]);
}

#[test]
fn import_that_has_begun_is_not_refused_any_more() {
    // A node that cannot mount images has joined meanwhile.
    let spec = with_source(json!({"registry": {"url": "docker://a/b:c"}}));
    let case = |pod: Option<Value>, phase: &str, reason: &str, steps: &[Step]| {
        let mut observed = observe(volume(&spec), Some(a_claim("Bound")), pod);
        observed.request = Err(Refusal("not all nodes".to_owned()).into());
        check(&observed, phase, reason, steps);
    };
    let running = a_pod("Running", &json!({"state": {"running": {}}}));
    let done = a_pod("Succeeded", &json!({}));
    case(Some(running), "ImportInProgress", "", &[]);
    case(Some(done), "Succeeded", "Completed", &[Step::MarkClaim]);
    case(None, "Failed", "ImportNotSupported", &[]);
}

#[test]
fn upload_follows_the_state_on_its_claim() {
    let case = |bound: &str, notes: Value, phase: &str, reason: &str, steps: &[Step]| {
        let mut claim = a_claim(bound);
        claim["metadata"]["annotations"] = notes;
        let whole = volume(&with_source(json!({"upload": {}})));
        let mut observed = observe(whole, Some(claim), None);
        observed.waits_for_consumer = bound == "Pending";
        check(&observed, phase, reason, steps);
    };
    let state = |phase: &str, ready: &str| {
        json!({
            "cdi.kubevirt.io/storage.pod.phase": phase,
            "cdi.kubevirt.io/storage.pod.ready": ready,
        })
    };
    case("Bound", json!({}), "UploadScheduled", "", &[]);
    case(
        "Bound",
        state("Pending", "false"),
        "UploadScheduled",
        "",
        &[],
    );
    case("Bound", state("Running", "true"), "UploadReady", "", &[]);
    let done = || state("Succeeded", "false");
    case(
        "Bound",
        done(),
        "Succeeded",
        "Completed",
        &[Step::MarkClaim],
    );
    let waits = "WaitForFirstConsumer";
    case("Pending", json!({}), waits, waits, &[]);
    let mut fails = state("Pending", "false");
    fails["cdi.kubevirt.io/storage.condition.running.reason"] = json!("ImagePullFailed");
    case("Bound", fails, "UploadScheduled", "ImagePullFailed", &[]);
}

#[test]
fn status_is_written_once() {
    let observed = observe(volume(&web()), Some(a_claim("Bound")), None);
    let outcome = plan(&observed).outcome.unwrap();
    let failure = status::Failure {
        reason: Reason::ErrExceededQuota,
        message: "exceeded quota".to_owned(),
    };
    let refused = status::render(&observed, &outcome, Some(&failure));
    assert_eq!(refused.phase, Some(Phase::Pending));
    let key = Key::new("n", "disk");
    let mut written = volume(&web());
    written["status"] = json!(refused);
    let observed = observe(written, Some(a_claim("Bound")), None);
    let whole = observed.whole().unwrap();
    assert!(status::fragment(whole, &key, &refused).is_none());
    let rendered = status::render(&observed, &outcome, None);
    assert!(status::fragment(whole, &key, &rendered).is_some());
    let expected = json!({
        "claimName": "disk", "phase": "ImportScheduled", "progress": "N/A",
        "conditions": [
            {"type": "Ready", "status": "False", "lastTransitionTime": NOW,
             "message": "the importer's pod is being created"},
            {"type": "Bound", "status": "True", "lastTransitionTime": NOW,
             "message": "persistentvolumeclaim disk is bound"},
            {"type": "Running", "status": "False", "lastTransitionTime": NOW,
             "message": "the importer's pod is being created"},
        ],
    });
    assert_eq!(json!(rendered), expected);
}
