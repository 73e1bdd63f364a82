//! Plans, statuses, claims and pods for states of a data volume.

use std::sync::Arc;
use std::time::Duration;

use kubevirt_api::annotations;
use kubevirt_api::data_volume_status::DataVolumePhase as Phase;
use kubevirt_api::storage_profile::ClaimPropertySet;
use launcher_pod::{Acceleration, ContainerDisks, Settings};
use reasons::Reason;
use reconcile::Key;
use serde_json::{Value, json};

use super::named::Named;
use super::observe::{Observed, Origin, is_populated};
use super::plan::{Plan, Step, plan};
use super::pod::Input;
use super::request::{Abilities, Refusal, Source, Unmet};
use super::view::ImporterPod;
use super::{claim, pod, request, status};
use crate::Uploads;
use crate::data_source::Target;
use crate::view::{Claim, DataVolume};

const NOW: &str = "2026-11-25T12:00:00Z";

const ABLE: Abilities = Abilities {
    images: ContainerDisks::ImageVolumes,
    uploads: Uploads::Received,
};

fn volume(spec: &Value) -> Value {
    json!({
        "metadata": {"name": "disk", "namespace": "n", "uid": "u", "resourceVersion": "3"},
        "spec": spec,
    })
}

fn web() -> Value {
    json!({
        "source": {"http": {"url": "https://example.com/disk.qcow2"}},
        "storage": {"resources": {"requests": {"storage": "10Mi"}}},
    })
}

fn with_source(source: Value) -> Value {
    let mut spec = web();
    spec["source"] = source;
    spec
}

fn a_claim(phase: &str) -> Value {
    json!({
        "metadata": {"name": "disk", "namespace": "n", "uid": "c", "ownerReferences": [
            {"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "name": "disk",
             "uid": "u", "controller": true}]},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local",
                 "resources": {"requests": {"storage": "11Mi"}}},
        "status": {"phase": phase, "capacity": {"storage": "11Mi"}},
    })
}

fn a_pod(phase: &str, container: &Value) -> Value {
    let mut container = container.clone();
    for (name, value) in [
        ("name", json!("importer")),
        ("ready", json!(false)),
        ("image", json!("i")),
        ("imageID", json!("")),
    ] {
        container[name] = value;
    }
    if container["restartCount"].is_null() {
        container["restartCount"] = json!(0);
    }
    json!({
        "metadata": {"name": "importer-u", "namespace": "n", "uid": "p",
                     "annotations": {"ferrovirt.io/import-restarts": "2"}},
        "status": {"phase": phase, "containerStatuses": [container]},
    })
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn observe(volume: Value, claim: Option<Value>, pod: Option<Value>) -> Observed {
    let volume: DataVolume = read(volume);
    let request = match &volume.unfinished {
        Some(whole) => request::parse(whole, None, ABLE),
        None => Err(Refusal(String::new())),
    };
    Observed {
        request: request.map_err(Unmet::from),
        named: None,
        volume: Arc::new(volume),
        claim: claim.map(|claim| Arc::new(read(claim))),
        waits_for_consumer: false,
        origin: Origin::None,
        pod: pod.map(|pod| Arc::new(read::<ImporterPod>(pod))),
        progress: None,
        now: NOW.parse().unwrap(),
    }
}

/// Phase, reason of the condition `Running`, and steps.
fn describe(plan: &Plan) -> (String, String, Vec<Step>) {
    let outcome = plan.outcome.as_ref();
    let reason = outcome.and_then(|outcome| outcome.running.reason);
    (
        outcome.map_or(String::new(), |outcome| outcome.phase.as_str().to_owned()),
        reason.map_or(String::new(), |reason| reason.as_str().to_owned()),
        plan.steps.clone(),
    )
}

#[track_caller]
fn check(observed: &Observed, phase: &str, reason: &str, steps: &[Step]) {
    let found = plan(observed);
    let expected = (phase.to_owned(), reason.to_owned(), steps.to_vec());
    assert_eq!(describe(&found), expected, "{found:#?}");
}

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
fn copy_waits_for_its_source() {
    let copy = json!({"source": {"pvc": {"namespace": "n", "name": "from"}}, "storage": {}});
    let case = |origin: Origin, claim: Option<Value>, phase: &str, reason: &str, steps: &[Step]| {
        let mut observed = observe(volume(&copy), claim, None);
        observed.origin = origin;
        check(&observed, phase, reason, steps);
    };
    let from = || "from".to_owned();
    let ready = || Origin::Ready(Arc::new(read(a_claim("Bound"))));
    let in_use = Origin::InUse {
        claim: from(),
        pod: "p".to_owned(),
    };
    let bound = || Some(a_claim("Bound"));
    case(
        Origin::Missing(from()),
        None,
        "Pending",
        "SourcePVCNotAvailabe",
        &[],
    );
    case(
        Origin::Unpopulated(from()),
        None,
        "Pending",
        "SourcePVCNotAvailabe",
        &[],
    );
    case(ready(), None, "Pending", "", &[Step::CreateClaim]);
    case(in_use, bound(), "Pending", "CloneSourceInUse", &[]);
    case(ready(), bound(), "CloneScheduled", "", &[Step::CreatePod]);
}

fn from_snapshot(storage: &Value) -> Value {
    json!({"source": {"snapshot": {"namespace": "n", "name": "copy"}}, "storage": storage})
}

#[test]
fn claim_is_created_from_a_complete_snapshot_that_fits() {
    let case = |origin: Origin, storage: &Value, phase: &str, reason: &str, steps: &[Step]| {
        let mut observed = observe(volume(&from_snapshot(storage)), None, None);
        observed.origin = origin;
        check(&observed, phase, reason, steps);
    };
    let name = || "copy".to_owned();
    let missing = "SourceSnapshotNotAvailable";
    let any = json!({});
    case(Origin::NoSnapshot(name()), &any, "Pending", missing, &[]);
    let incomplete = Origin::IncompleteSnapshot {
        name: name(),
        problem: Some("the disk is full".to_owned()),
    };
    case(incomplete, &any, "Pending", missing, &[]);
    let least = |mib: u64| Origin::Snapshot {
        least: Some(mib << 20),
    };
    let sized = json!({"resources": {"requests": {"storage": "10Mi"}}});
    let create = [Step::CreateClaim];
    case(least(11), &any, "Pending", "", &create);
    case(least(11), &sized, "Pending", "", &create);
    case(
        Origin::Snapshot { least: None },
        &sized,
        "Pending",
        "",
        &create,
    );
    case(least(12), &sized, "Failed", "DiskDoesNotFit", &[]);
}

#[test]
fn claim_of_a_snapshot_is_made_by_its_driver_and_the_pod_expands_its_disk() {
    let spec = from_snapshot(&json!({}));
    let whole = read(volume(&spec));
    let request = request::parse(&whole, None, ABLE).unwrap();
    let claim = claim::render(&whole, &request, Some(11 << 20), None);
    let expected = json!({
        "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
        "dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot",
                       "name": "copy"},
        "resources": {"requests": {"storage": "11Mi"}},
    });
    assert_eq!(claim["spec"], expected);
    let pod = rendered_pod(&spec, &a_claim("Bound"), None);
    let arguments = pod["spec"]["containers"][0]["args"].as_array().unwrap();
    assert_eq!(arguments.last().unwrap(), "expand");
    let observed = observe(volume(&spec), Some(a_claim("Bound")), None);
    check(&observed, "CloneScheduled", "", &[Step::CreatePod]);
}

#[test]
fn data_source_stands_for_what_is_copied() {
    let spec = json!({"sourceRef": {"kind": "DataSource", "name": "a"}, "storage": {}});
    let parse = |spec: &Value, target: Target| {
        let named = Named { target };
        request::parse(&read(volume(spec)), Some(&named), ABLE)
    };
    let at = |namespace: &str| Key::new(namespace, "from");
    let claim = parse(&spec, Target::Claim(at("n"))).unwrap();
    assert_eq!(claim.source, Source::Claim("from".to_owned()));
    let snapshot = parse(&spec, Target::Snapshot(at("n"))).unwrap();
    assert_eq!(snapshot.source, Source::Snapshot("from".to_owned()));
    let Refusal(refusal) = parse(&spec, Target::Claim(at("other"))).unwrap_err();
    assert!(
        refusal.starts_with("spec.sourceRef: it stands for persistentvolumeclaim other/from"),
        "{refusal}"
    );
    let mut both = spec.clone();
    both["source"] = json!({"blank": {}});
    parse(&both, Target::Claim(at("n"))).unwrap_err();

    let named = Named {
        target: Target::Claim(at("n")),
    };
    let made = claim::render(&read(volume(&spec)), &claim, Some(1 << 20), Some(&named));
    let notes = &made["metadata"]["annotations"];
    assert_eq!(notes["ferrovirt.io/copied-from"], "pvc/from");
}

#[test]
fn modes_follow_the_profile_unless_they_are_given() {
    let sets: Vec<ClaimPropertySet> = read(json!([
        {"accessModes": ["ReadWriteMany"], "volumeMode": "Block"},
        {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"},
    ]));
    let modes = |spec: Value| {
        let whole = read(volume(&spec));
        let mut request = request::parse(&whole, None, ABLE).unwrap();
        request.complete(&sets);
        let claim = claim::render(&whole, &request, Some(11 << 20), None);
        let text = |member: &str| claim["spec"][member].to_string();
        text("accessModes") + &text("volumeMode")
    };
    assert_eq!(modes(web()), r#"["ReadWriteMany"]"Block""#);
    let mut files = web();
    files["storage"]["volumeMode"] = json!("Filesystem");
    assert_eq!(modes(files), r#"["ReadWriteOnce"]"Filesystem""#);
    let mut once = web();
    once["storage"]["accessModes"] = json!(["ReadOnlyMany"]);
    assert_eq!(modes(once), r#"["ReadOnlyMany"]"Filesystem""#);
    let copy = from_snapshot(&json!({}));
    assert_eq!(modes(copy), r#"["ReadWriteOnce"]"Filesystem""#);
}

#[test]
fn data_volume_waits_for_its_data_source() {
    let mut observed = observe(volume(&web()), None, None);
    observed.request = Err(Unmet::Waits {
        reason: Reason::SourceNotPermitted,
        message: "not allowed".to_owned(),
        again: Some(Duration::from_mins(1)),
    });
    check(&observed, "Pending", "SourceNotPermitted", &[]);
    assert_eq!(plan(&observed).requeue_in, Some(Duration::from_mins(1)));
    observed.claim = Some(Arc::new(read(a_claim("Bound"))));
    check(&observed, "Pending", "SourceNotPermitted", &[]);
}

#[test]
fn claim_is_copied_after_its_upload() {
    let uploaded = |annotations: Value| {
        let mut claim = a_claim("Bound");
        claim["metadata"]["annotations"] = annotations;
        is_populated(&read(claim), None)
    };
    let target = "cdi.kubevirt.io/storage.upload.target";
    let phase = "cdi.kubevirt.io/storage.pod.phase";
    assert!(uploaded(json!({})));
    assert!(!uploaded(json!({target: ""})));
    assert!(!uploaded(json!({target: "", phase: "Pending"})));
    assert!(!uploaded(json!({target: "", phase: "Running"})));
    assert!(uploaded(json!({target: "", phase: "Succeeded"})));
    assert!(uploaded(
        json!({target: "", annotations::CDI_POPULATED_FOR: "disk"})
    ));
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

/// The data volume fails with a message that begins so.
#[track_caller]
fn check_refusal(spec: &Value, notes: Value, expected: &str) {
    let mut whole = volume(spec);
    whole["metadata"]["annotations"] = notes;
    let observed = observe(whole, None, None);
    check(&observed, "Failed", "ImportNotSupported", &[]);
    let message = plan(&observed).outcome.unwrap().running.message;
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn what_the_importer_cannot_do_is_refused() {
    let case = |spec: Value, notes: Value, expected: &str| check_refusal(&spec, notes, expected);
    let none = || json!({});
    for source in ["imageio", "vddk"] {
        let expected = format!("spec.source.{source}: ");
        case(with_source(json!({source: {}})), none(), &expected);
    }
    case(with_source(json!({})), none(), "spec.source: ");
    case(
        with_source(json!({"blank": {}, "pvc": {"name": "a"}})),
        none(),
        "spec.source: ",
    );
    case(
        with_source(json!({"blank": {}, "upload": {}})),
        none(),
        "spec.source: ",
    );
    for (url, secret, field) in [
        ("a/b", "", "url"),
        ("http://a/b", "", "url"),
        ("gs://a/b", "x", "secretRef"),
    ] {
        let source = json!({"gcs": {"url": url, "secretRef": secret}});
        case(
            with_source(source),
            none(),
            &format!("spec.source.gcs.{field}: "),
        );
    }
    case(
        with_source(json!({"s3": {"url": "gs://a/b"}})),
        none(),
        "spec.source.s3.url: ",
    );
    case(
        with_source(json!({"http": {"url": "ftp://a"}})),
        none(),
        "spec.source.http.url: ",
    );
    case(
        with_source(json!({"pvc": {"namespace": "other", "name": "a"}})),
        none(),
        "spec.source.pvc.namespace: ",
    );
    case(
        with_source(json!({"snapshot": {"namespace": "other", "name": "a"}})),
        none(),
        "spec.source.snapshot.namespace: ",
    );
    case(
        with_source(json!({"snapshot": {}})),
        none(),
        "spec.source.snapshot.name: ",
    );
    for field in ["imageStream", "secretRef", "certConfigMap"] {
        case(
            with_source(json!({"registry": {"url": "docker://a/b:c", field: "x"}})),
            none(),
            &format!("spec.source.registry.{field}: "),
        );
    }
    case(
        with_source(json!({"registry": {"url": "oci-archive://a"}})),
        none(),
        "spec.source.registry.url: ",
    );
}

#[test]
fn options_that_the_importer_lacks_are_refused() {
    let case = |spec: Value, notes: Value, expected: &str| check_refusal(&spec, notes, expected);
    let none = || json!({});
    for (field, value) in [
        ("contentType", json!("archive")),
        ("checkpoints", json!([{"previous": "", "current": "a"}])),
        ("preallocation", json!(true)),
    ] {
        let mut spec = web();
        spec[field] = value;
        case(spec, none(), &format!("spec.{field}: "));
    }
    let mut spec = web();
    spec["storage"] = json!({});
    case(spec, none(), "spec.storage.resources.requests.storage: ");
    let mut spec = web();
    spec["storage"]["dataSource"] = json!({"kind": "X", "name": "a"});
    case(spec, none(), "spec.storage.dataSource: ");
    let mut spec = web();
    spec["pvc"] = spec["storage"].clone();
    case(spec, none(), "spec: ");
    let checksum = |text: &str| json!({"ferrovirt.io/import-checksum": text});
    for wrong in ["md5:00", "sha256:00", "00"] {
        case(
            web(),
            checksum(wrong),
            "annotation ferrovirt.io/import-checksum: ",
        );
    }
    let valid = format!("sha256:{}", "0".repeat(64));
    case(
        with_source(json!({"blank": {}})),
        checksum(&valid),
        "annotation ferrovirt.io/import-checksum: ",
    );
    let mut whole = volume(&web());
    whole["metadata"]["annotations"] = checksum(&valid);
    assert!(observe(whole, None, None).request.is_ok());
}

#[test]
fn images_are_refused_where_nodes_cannot_mount_them() {
    let whole = volume(&with_source(json!({"registry": {"url": "docker://a/b:c"}})));
    let whole = read(whole);
    assert!(request::parse(&whole, None, ABLE).is_ok());
    let unable = Abilities {
        images: ContainerDisks::Copied,
        ..ABLE
    };
    let refusal = request::parse(&whole, None, unable).unwrap_err();
    assert!(
        refusal.0.starts_with("spec.source.registry: "),
        "{refusal:?}"
    );
}

#[test]
fn uploads_are_refused_where_no_proxy_receives_them() {
    let whole = read(volume(&with_source(json!({"upload": {}}))));
    assert!(request::parse(&whole, None, ABLE).is_ok());
    let unable = Abilities {
        uploads: Uploads::Refused,
        ..ABLE
    };
    let refusal = request::parse(&whole, None, unable).unwrap_err();
    assert!(refusal.0.starts_with("spec.source.upload: "), "{refusal:?}");
}

fn owner() -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "name": "disk", "uid": "u",
        "controller": true, "blockOwnerDeletion": true,
    })
}

fn rendered_claim(spec: &Value, source: Option<&Claim>) -> Value {
    let mut whole = volume(spec);
    whole["metadata"]["labels"] = json!({"instancetype.kubevirt.io/default-instancetype": "small"});
    whole["metadata"]["annotations"] = json!({
        "kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "1",
        "cdi.kubevirt.io/storage.populatedFor": "disk",
    });
    let whole = read(whole);
    let request = request::parse(&whole, None, ABLE).unwrap();
    claim::render(&whole, &request, source.and_then(claim::capacity), None)
}

#[test]
fn claim_has_defaults_owner_and_the_size_for_the_disk() {
    let expected = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "disk", "namespace": "n",
            "labels": {"instancetype.kubevirt.io/default-instancetype": "small"},
            "annotations": {"mine": "1", "cdi.kubevirt.io/storage.contentType": "kubevirt"},
            "ownerReferences": [owner()],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "11Mi"}},
        },
    });
    assert_eq!(rendered_claim(&web(), None), expected);
    let size = |spec: &Value, source: Option<&Claim>| {
        let claim = rendered_claim(spec, source);
        claim["spec"]["resources"]["requests"]["storage"].clone()
    };
    let mut block = web();
    block["storage"]["volumeMode"] = json!("Block");
    assert_eq!(size(&block, None), "10Mi");
    let target = rendered_claim(&with_source(json!({"upload": {}})), None);
    let mark = "cdi.kubevirt.io/storage.upload.target";
    assert_eq!(target["metadata"]["annotations"][mark], "");
    let by_hand = json!({
        "source": {"blank": {}},
        "pvc": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "10Mi"}}},
    });
    assert_eq!(size(&by_hand, None), "10Mi");
    let copied: Claim = read(a_claim("Bound"));
    let copy = json!({"source": {"pvc": {"name": "from"}}, "storage": {}});
    assert_eq!(size(&copy, Some(&copied)), "11Mi");
}

fn rendered_pod(spec: &Value, claim: &Value, source: Option<&Claim>) -> Value {
    let mut whole = volume(spec);
    if spec["source"]["http"].is_object() {
        let checksum = format!("sha256:{}", "0".repeat(64));
        whole["metadata"]["annotations"] = json!({"ferrovirt.io/import-checksum": checksum});
    }
    let whole = read(whole);
    let request = request::parse(&whole, None, ABLE).unwrap();
    let settings = Settings::defaults("launcher:1", Acceleration::Kvm);
    let pod = pod::render(&Input {
        whole: &whole,
        request: &request,
        claim: &read(claim.clone()),
        source,
        settings: &settings,
        restarts: 2,
    });
    json!(pod.unwrap())
}

#[test]
fn pod_is_unprivileged_and_has_what_the_source_needs() {
    let mut spec = web();
    spec["source"]["http"] = json!({
        "url": "https://example.com/disk.qcow2", "secretRef": "login", "certConfigMap": "authorities",
        "extraHeaders": ["a: b"], "secretExtraHeaders": ["token"],
    });
    let found = rendered_pod(&spec, &a_claim("Bound"), None);
    let metadata = json!({
        "name": "importer-u", "namespace": "n", "labels": {"kubevirt.io": "disk-import"},
        "annotations": {"ferrovirt.io/import-claim": "c", "ferrovirt.io/import-restarts": "2"},
        "ownerReferences": [owner()],
    });
    assert_eq!(found["metadata"], metadata);
    let security = json!({
        "runAsUser": 107, "runAsGroup": 107, "runAsNonRoot": true, "fsGroup": 107,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    let found = &found["spec"];
    assert_eq!(found["securityContext"], security);
    assert_eq!(found["automountServiceAccountToken"], false);
    let volumes = json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "disk"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "credentials", "secret": {"secretName": "login"}},
        {"name": "authorities", "configMap": {"name": "authorities"}},
        {"name": "headers-0", "secret": {"secretName": "token"}},
    ]);
    assert_eq!(found["volumes"], volumes);
    let container = json!({
        "name": "importer", "image": "launcher:1", "imagePullPolicy": "IfNotPresent",
        "command": ["/usr/bin/disk-import"],
        "args": [
            "--directory", "/data", "--size", "10485760", "--scratch", "/scratch",
            "http", "https://example.com/disk.qcow2",
            "--checksum", format!("sha256:{}", "0".repeat(64)),
            "--credentials", "/credentials", "--authorities", "/authorities",
            "--header=a: b", "--headers-from", "/headers/0",
        ],
        "resources": {
            "requests": {"cpu": "100m", "memory": "64M"},
            "limits": {"cpu": "1", "memory": "600M"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
            "runAsUser": 107, "runAsGroup": 107, "runAsNonRoot": true,
        },
        "volumeMounts": [
            {"name": "data", "mountPath": "/data", "readOnly": false},
            {"name": "scratch", "mountPath": "/scratch", "readOnly": false},
            {"name": "credentials", "mountPath": "/credentials", "readOnly": true},
            {"name": "authorities", "mountPath": "/authorities", "readOnly": true},
            {"name": "headers-0", "mountPath": "/headers/0", "readOnly": true},
        ],
    });
    assert_eq!(found["containers"], json!([container]));
    spec["source"]["http"]["url"] = json!("https://example.com/$(HOME)/$$a");
    let escaped = rendered_pod(&spec, &a_claim("Bound"), None);
    assert_eq!(
        escaped["spec"]["containers"][0]["args"][7],
        "https://example.com/$$(HOME)/$$$$a"
    );
    let arguments = |spec: &Value, claim: &Value, source: Option<&Claim>| {
        let pod = rendered_pod(spec, claim, source);
        let arguments = pod["spec"]["containers"][0]["args"].clone();
        let arguments: Vec<String> = read(arguments);
        arguments.join(" ")
    };
    let mut block = a_claim("Bound");
    block["spec"]["volumeMode"] = json!("Block");
    assert_eq!(
        arguments(&with_source(json!({"blank": {}})), &block, None),
        "--device /dev/import --scratch /scratch blank"
    );
    assert_eq!(
        arguments(
            &with_source(json!({"registry": {"url": "docker://a/b:c"}})),
            &a_claim("Bound"),
            None
        ),
        "--directory /data --size 10485760 --scratch /scratch image /source"
    );
    let copy = json!({"source": {"pvc": {"name": "from"}}, "storage": {}});
    let (files, device): (Claim, Claim) = (read(a_claim("Bound")), read(block));
    assert_eq!(
        arguments(&copy, &a_claim("Bound"), Some(&files)),
        "--directory /data --size 10899456 --scratch /scratch clone /source"
    );
    assert!(arguments(&copy, &a_claim("Bound"), Some(&device)).ends_with("clone /dev/source"));
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

#[test]
fn objects_in_buckets_are_read_with_their_keys() {
    let arguments = |source: Value| {
        let mut pod = rendered_pod(&with_source(source), &a_claim("Bound"), None);
        let all = pod["spec"]["containers"][0]["args"].take();
        let all: Vec<String> = read(all);
        (all[6..].join(" "), pod["spec"]["volumes"].clone())
    };
    let (found, volumes) = arguments(json!({"s3": {
        "url": "https://minio/images/a", "secretRef": "keys", "certConfigMap": "authorities"}}));
    let expected =
        "s3 https://minio/images/a --credentials /credentials --authorities /authorities";
    assert_eq!(found, expected);
    let secret = json!({"name": "credentials", "secret": {"secretName": "keys"}});
    assert!(volumes.as_array().unwrap().contains(&secret), "{volumes}");
    let (found, _) = arguments(json!({"s3": {"url": "s3://images/a"}}));
    assert_eq!(found, "s3 s3://images/a");
    let (found, _) = arguments(json!({"gcs": {"url": "gs://images/a"}}));
    assert_eq!(found, "http https://storage.googleapis.com/images/a");
}
