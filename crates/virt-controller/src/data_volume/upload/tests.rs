//! Plans, annotations and pods for states of a claim.

use std::sync::Arc;

use launcher_pod::{Acceleration, Settings};
use serde_json::{Value, json};

use super::super::pod::{self, UploadInput};
use super::super::view::ImporterPod;
use super::act::annotations;
use super::observe::Observed;
use super::plan::{Plan, Step, plan};
use crate::view::Claim;

const NOW: &str = "2026-11-25T12:00:00Z";

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn a_claim(phase: &str, notes: &Value) -> Value {
    let mut claim = json!({
        "metadata": {"name": "disk", "namespace": "n", "uid": "c",
                     "annotations": {"cdi.kubevirt.io/storage.upload.target": ""}},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local",
                 "resources": {"requests": {"storage": "11Mi"}}},
        "status": {"phase": phase, "capacity": {"storage": "11Mi"}},
    });
    for (name, value) in notes.as_object().unwrap() {
        claim["metadata"]["annotations"][name] = value.clone();
    }
    claim
}

fn a_pod(phase: &str, container: &Value) -> Value {
    let mut container = container.clone();
    for (name, value) in [
        ("name", json!("importer")),
        ("ready", json!(false)),
        ("image", json!("i")),
        ("imageID", json!("")),
        ("restartCount", json!(0)),
    ] {
        container[name] = value;
    }
    json!({
        "metadata": {"name": "upload-c", "namespace": "n", "uid": "p"},
        "status": {"phase": phase, "containerStatuses": [container]},
    })
}

fn observe(claim: Value, pod: Option<Value>) -> Observed {
    Observed {
        claim: Arc::new(read(claim)),
        waits_for_consumer: false,
        user: None,
        pod: pod.map(|pod| Arc::new(read::<ImporterPod>(pod))),
        now: NOW.parse().unwrap(),
    }
}

/// Phase, whether an upload can be sent, reason, and steps.
fn describe(plan: &Plan) -> (String, bool, String, Vec<Step>) {
    let state = plan.state.as_ref();
    let running = state.map(|state| &state.running);
    let reason = running.and_then(|running| running.reason);
    (
        state.map_or(String::new(), |state| state.phase.to_owned()),
        running.is_some_and(|running| running.holds),
        reason.map_or(String::new(), |reason| reason.as_str().to_owned()),
        plan.steps.clone(),
    )
}

#[track_caller]
fn check(observed: &Observed, expected: (&str, bool, &str, &[Step])) {
    let found = plan(observed);
    let (phase, ready, reason, steps) = expected;
    let expected = (phase.to_owned(), ready, reason.to_owned(), steps.to_vec());
    assert_eq!(describe(&found), expected, "{found:#?}");
}

#[test]
fn upload_goes_from_claim_to_pod_to_its_end() {
    let bound = |notes: Value| a_claim("Bound", &notes);
    let none = || bound(json!({}));
    check(
        &observe(none(), None),
        ("Pending", false, "", &[Step::CreatePod]),
    );
    check(
        &observe(a_claim("Pending", &json!({})), None),
        ("Pending", false, "", &[]),
    );
    let with = |phase: &str, container: Value| observe(none(), Some(a_pod(phase, &container)));
    check(&with("Pending", json!({})), ("Pending", false, "", &[]));
    check(
        &with(
            "Pending",
            json!({"state": {"waiting": {"reason": "ImagePullBackOff", "message": "none"}}}),
        ),
        ("Pending", false, "ImagePullFailed", &[]),
    );
    check(
        &with("Running", json!({"state": {"running": {}}})),
        ("Running", true, "", &[]),
    );
    // A file that was refused changes nothing but the message.
    let refused = json!({"ferrovirt.io/upload-refused": "the image is damaged"});
    let running = a_pod("Running", &json!({"state": {"running": {}}}));
    check(
        &observe(bound(refused), Some(running)),
        ("Running", true, "UploadRefused", &[]),
    );
    // The container starts again.
    check(
        &with(
            "Running",
            json!({"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}),
        ),
        ("Pending", false, "ImportFailed", &[]),
    );
    check(
        &with(
            "Succeeded",
            json!({"state": {"terminated": {"exitCode": 0}}}),
        ),
        ("Succeeded", false, "Completed", &[]),
    );
    // Only after the success is on the claim.
    let done = || bound(json!({"cdi.kubevirt.io/storage.pod.phase": "Succeeded"}));
    let left = || Some(a_pod("Succeeded", &json!({})));
    check(
        &observe(done(), left()),
        ("", false, "", &[Step::DeletePod]),
    );
    check(&observe(done(), None), ("", false, "", &[]));
    let populated = json!({"cdi.kubevirt.io/storage.populatedFor": "disk"});
    check(&observe(bound(populated), None), ("", false, "", &[]));
    // Kubernetes deletes a claim when no pod uses it any more.
    let mut going = none();
    going["metadata"]["deletionTimestamp"] = json!(NOW);
    let pod = a_pod("Running", &json!({"state": {"running": {}}}));
    check(
        &observe(going.clone(), Some(pod)),
        ("", false, "", &[Step::DeletePod]),
    );
    check(&observe(going, None), ("", false, "", &[]));
}

#[test]
fn claim_that_cannot_receive_an_upload_says_why() {
    let waits = |reason: &'static str| ("Pending", false, reason, &[][..]);
    let archive = json!({"cdi.kubevirt.io/storage.contentType": "archive"});
    check(
        &observe(a_claim("Bound", &archive), None),
        waits("ImportNotSupported"),
    );
    check(
        &observe(a_claim("Lost", &json!({})), None),
        waits("ClaimLost"),
    );
    let mut observed = observe(a_claim("Pending", &json!({})), None);
    observed.waits_for_consumer = true;
    check(&observed, waits("WaitForFirstConsumer"));
    let at_once = json!({"cdi.kubevirt.io/storage.bind.immediate.requested": ""});
    let mut observed = observe(a_claim("Pending", &at_once), None);
    observed.waits_for_consumer = true;
    check(&observed, ("Pending", false, "", &[Step::CreatePod]));
    let mut observed = observe(a_claim("Bound", &json!({})), None);
    observed.user = Some("virt-launcher-a".to_owned());
    check(&observed, waits("UploadTargetInUse"));
    assert!(plan(&observed).requeue_in.is_some());
}

#[test]
fn failed_pod_is_replaced_after_a_delay() {
    for (ago, steps) in [(9, &[][..]), (10, &[Step::DeletePod])] {
        let now: jiff::Timestamp = NOW.parse().unwrap();
        let ended = now - jiff::SignedDuration::from_secs(ago);
        let end = json!({"exitCode": 137, "finishedAt": ended.to_string()});
        let pod = a_pod("Failed", &json!({"state": {"terminated": end}}));
        let observed = observe(a_claim("Bound", &json!({})), Some(pod));
        check(&observed, ("Pending", false, "ImportFailed", steps));
        assert_eq!(plan(&observed).requeue_in.is_some(), steps.is_empty());
    }
}

#[test]
fn pods_that_fail_again_stay_longer() {
    let restarts = "ferrovirt.io/import-restarts";
    let failed = |before: Option<&str>| {
        let now: jiff::Timestamp = NOW.parse().unwrap();
        let ended = now - jiff::SignedDuration::from_secs(10);
        let end = json!({"exitCode": 137, "finishedAt": ended.to_string()});
        let mut pod = a_pod("Failed", &json!({"state": {"terminated": end}}));
        if let Some(before) = before {
            pod["metadata"]["annotations"] = json!({restarts: before});
        }
        plan(&observe(a_claim("Bound", &json!({})), Some(pod)))
    };
    let first = failed(None);
    assert_eq!(first.steps, [Step::DeletePod]);
    let written = annotations(&read(a_claim("Bound", &json!({}))), &first.state.unwrap());
    let written = written.unwrap();
    assert_eq!(written[restarts], "1");
    let claim: Claim = read(a_claim("Bound", &written));
    let settings = Settings::defaults("launcher:1", Acceleration::Kvm);
    let input = UploadInput {
        claim: &claim,
        settings: &settings,
    };
    let pod = json!(pod::render_upload(&input).unwrap());
    let number = pod["metadata"]["annotations"][restarts].as_str();
    assert_eq!(number, Some("1"));
    // The second one after 20 seconds.
    let again = failed(number);
    assert_eq!(again.requeue_in, Some(std::time::Duration::from_secs(10)));
    assert_eq!(again.state.unwrap().restarts, None);
}

#[test]
fn only_annotations_that_changed_are_written() {
    let running = observe(
        a_claim("Bound", &json!({})),
        Some(a_pod("Running", &json!({"state": {"running": {}}}))),
    );
    let state = plan(&running).state.unwrap();
    let written = annotations(&running.claim, &state).unwrap();
    let expected = json!({
        "cdi.kubevirt.io/storage.pod.phase": "Running",
        "cdi.kubevirt.io/storage.pod.ready": "true",
        "cdi.kubevirt.io/storage.condition.running": "true",
        "cdi.kubevirt.io/storage.condition.running.message": "an upload can be sent",
    });
    assert_eq!(written, expected);
    let after: Claim = read(a_claim("Bound", &written));
    assert_eq!(annotations(&after, &state), None);
    let reason = "cdi.kubevirt.io/storage.condition.running.reason";
    let mut failed = written;
    failed[reason] = json!("ImportFailed");
    let failed: Claim = read(a_claim("Bound", &failed));
    assert_eq!(annotations(&failed, &state), Some(json!({reason: null})));
    // What was refused before does not matter once the disk is complete.
    let refused = "ferrovirt.io/upload-refused";
    let ended = observe(
        a_claim("Bound", &json!({refused: "the file is empty"})),
        Some(a_pod("Succeeded", &json!({}))),
    );
    let state = plan(&ended).state.unwrap();
    let written = annotations(&ended.claim, &state).unwrap();
    assert_eq!(written.get(refused), Some(&Value::Null));
}

#[test]
fn pod_listens_on_a_socket_and_belongs_to_the_claim() {
    let claim: Claim = read(a_claim("Bound", &json!({})));
    let settings = Settings::defaults("launcher:1", Acceleration::Kvm);
    let input = UploadInput {
        claim: &claim,
        settings: &settings,
    };
    let found = json!(pod::render_upload(&input).unwrap());
    assert_eq!(found["metadata"]["name"], "upload-c");
    let owner = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "disk", "uid": "c",
        "controller": true, "blockOwnerDeletion": true,
    });
    assert_eq!(found["metadata"]["ownerReferences"], json!([owner]));
    let container = &found["spec"]["containers"][0];
    let arguments = json!([
        "--directory",
        "/data",
        "--size",
        "10899456",
        "--scratch",
        "/scratch",
        "upload",
        "/upload/socket",
    ]);
    assert_eq!(container["args"], arguments);
    let volumes = json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "disk"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "upload", "emptyDir": {}},
    ]);
    assert_eq!(found["spec"]["volumes"], volumes);
    assert!(container["ports"].is_null(), "no port is open");
}
