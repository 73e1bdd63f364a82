//! The table of plans, and the template that is made of a VM.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::finalizers;
use kubevirt_api::snapshot::VolumeBackup;
use kubevirt_api::template::VirtualMachineTemplateRequest;
use reasons::Reason;
use reconcile::Key;
use serde_json::{Value, json};

use super::observe::{Observed, Stage, stage, waits_for_vm};
use super::plan::{Progress, Step, plan};
use super::render::vm_key;
use super::{render, status};
use crate::restore::Target;

const NOW: &str = "2026-11-27T12:00:00Z";
const VOLUME: &str = "template-12345678-data";

fn request(more: &Value, status: &Value) -> VirtualMachineTemplateRequest {
    let mut request = json!({
        "metadata": {"name": "r", "namespace": "n", "uid": "12345678"},
        "spec": {"virtualMachineRef": {"namespace": "n", "name": "a"}},
        "status": status,
    });
    for (field, value) in more.as_object().unwrap() {
        request["spec"][field] = value.clone();
    }
    serde_json::from_value(request).unwrap()
}

fn ended(ready: &str) -> Value {
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": "x", "message": "",
            "lastTransitionTime": "2026-11-27T11:59:00Z",
        })
    };
    json!({"conditions": [condition("Progressing", "False"), condition("Ready", ready)]})
}

fn vm() -> Value {
    json!({
        "metadata": {"name": "a", "labels": {"app": "wiki"}},
        "spec": {
            "runStrategy": "Always",
            "dataVolumeTemplates": [
                {"metadata": {"name": "a-data"}, "spec": {"source": {"blank": {}}}},
            ],
            "template": {"spec": {
                "domain": {
                    "firmware": {"uuid": "u", "serial": "s", "bootloader": {"bios": {}}},
                    "chassis": {"serial": "s", "asset": "a"},
                    "devices": {"interfaces": [{"name": "one", "macAddress": "02:00:00:00:00:01"}]},
                },
                "volumes": [
                    {"name": "data", "dataVolume": {"name": "a-data"}},
                    {"name": "init", "cloudInitNoCloud": {"userData": "echo ${HOME} ${{X}}"}},
                ],
            }},
        },
    })
}

fn backups() -> Vec<VolumeBackup> {
    let backups = json!([{
        "volumeName": "data", "volumeSnapshotName": "copy",
        "persistentVolumeClaim": {"metadata": {"name": "a-data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "local", "volumeName": "pv",
            "resources": {"requests": {"storage": "1Gi"}},
        }},
    }]);
    serde_json::from_value(backups).unwrap()
}

fn source(volumes: &Value) -> Target {
    let status = json!({"volumeSnapshotStatuses": volumes});
    Target {
        object: vm(),
        uid: "vm".to_owned(),
        status: serde_json::from_value(status).unwrap(),
    }
}

fn observed(more: &Value, status: &Value) -> Observed {
    Observed {
        request: Arc::new(request(more, status)),
        has_importer: true,
        now: NOW.parse().unwrap(),
        ..Observed::default()
    }
}

fn with_snapshot(status: &Value) -> Observed {
    let mut observed = observed(&json!({}), &Value::Null);
    let snapshot = json!({"metadata": {"name": "s", "uid": "s"}, "spec": {}, "status": status});
    observed.snapshot = serde_json::from_value(snapshot).unwrap();
    observed
}

fn ready() -> Observed {
    let mut observed = with_snapshot(&json!({"readyToUse": true, "phase": "Succeeded"}));
    observed.copied = Some(Ok(vm()));
    observed.backups = backups();
    observed
}

fn add_volume(observed: &mut Observed, phase: &str, owner: &str) {
    let volume = json!({
        "metadata": {
            "name": VOLUME, "namespace": "n",
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "X", "name": "x", "uid": owner, "controller": true,
            }],
        },
        "status": {"phase": phase},
    });
    observed.volumes = vec![serde_json::from_value(volume).unwrap()];
}

fn protect(observed: &mut Observed) {
    let request = Arc::make_mut(&mut observed.request);
    request.metadata.finalizers = Some(vec![finalizers::TEMPLATE_REQUEST.to_owned()]);
}

fn add_template(observed: &mut Observed, made_by: &str) {
    let template = json!({"metadata": {
        "name": "r", "uid": "t", "labels": {"template.kubevirt.io/RequestUID": made_by},
    }});
    observed.template = serde_json::from_value(template).unwrap();
}

/// The reason of a request that is pending or has failed.
fn problem(observed: &Observed) -> (&'static str, Reason) {
    match plan(observed).progress {
        Progress::Pending((reason, _)) => ("pending", reason),
        Progress::Failed((reason, _)) => ("failed", reason),
        other => panic!("no problem: {other:?}"),
    }
}

const IMPOSSIBLE: (&str, Reason) = ("failed", Reason::TemplateNotPossible);

#[test]
fn request_begins_when_the_disks_can_be_copied() {
    let mut one = observed(&json!({}), &Value::Null);
    assert_eq!(problem(&one), ("pending", Reason::SourceDoesNotExist));
    assert!(waits_for_vm(&one.request, &Key::new("n", "a")));
    assert!(!waits_for_vm(&one.request, &Key::new("n", "b")));
    assert!(!waits_for_vm(&one.request, &Key::new("other", "a")));
    one.source = Some(source(&json!([{"name": "data", "enabled": false}])));
    assert_eq!(problem(&one), ("pending", Reason::VMVolumeSnapshotsInvalid));
    one.source = Some(source(&json!([{"name": "data", "enabled": true}])));
    assert_eq!(plan(&one).step, Some(Step::CreateSnapshot));
    // The disks could not be copied, and a guest would be frozen for nothing.
    one.has_importer = false;
    assert_eq!(problem(&one), ("pending", Reason::VMVolumeSnapshotsInvalid));
    assert!(plan(&one).requeue_in.is_some());
    one.has_importer = true;
    add_template(&mut one, "another");
    assert_eq!(problem(&one), ("failed", Reason::TemplateExists));
    for (namespace, name) in [("a/b", "a"), ("n", "../a"), ("n", "")] {
        let wrong = json!({"virtualMachineRef": {"namespace": namespace, "name": name}});
        assert_eq!(problem(&observed(&wrong, &Value::Null)), IMPOSSIBLE);
    }
}

/// The garbage collector deletes nothing of another namespace.
#[test]
fn snapshot_in_another_namespace_goes_before_the_finalizer() {
    let other = json!({"virtualMachineRef": {"namespace": "other", "name": "a"}});
    let mut one = observed(&other, &Value::Null);
    assert_eq!(problem(&one), ("pending", Reason::SourceDoesNotExist));
    one.source = Some(source(&json!([{"name": "data", "enabled": true}])));
    assert_eq!(plan(&one).step, Some(Step::AddFinalizer));
    protect(&mut one);
    assert_eq!(plan(&one).step, Some(Step::CreateSnapshot));
    let vm = vm_key(&one.request).unwrap();
    let snapshot = render::snapshot(&one.request, &vm);
    assert_eq!(snapshot["metadata"]["namespace"], "other");
    assert_eq!(snapshot["metadata"]["ownerReferences"], json!([]));
    let volume = render::data_volume(&one.request, &vm, &backups()[0]);
    assert_eq!(volume["metadata"]["namespace"], "n");
    assert_eq!(
        volume["metadata"]["annotations"]["ferrovirt.io/copy-permitted"],
        "snapshot/other/copy"
    );
    let from = json!({"namespace": "other", "name": "copy"});
    assert_eq!(volume["spec"]["source"]["snapshot"], from);
    one.snapshot = with_snapshot(&Value::Null).snapshot;
    let request = Arc::make_mut(&mut one.request);
    request.metadata.deletion_timestamp = Some(Time(NOW.parse().unwrap()));
    assert_eq!(plan(&one).step, Some(Step::DeleteSnapshot));
    one.snapshot = None;
    assert_eq!(plan(&one).step, Some(Step::RemoveFinalizer));
}

/// In one namespace, the snapshot belongs to the request, and no right is recorded.
#[test]
fn snapshot_in_the_same_namespace_belongs_to_the_request() {
    let one = observed(&json!({}), &Value::Null);
    let vm = vm_key(&one.request).unwrap();
    let snapshot = render::snapshot(&one.request, &vm);
    assert_eq!(
        snapshot["metadata"]["ownerReferences"][0]["uid"],
        "12345678"
    );
    let volume = render::data_volume(&one.request, &vm, &backups()[0]);
    let notes = volume["metadata"]["annotations"].as_object().unwrap();
    assert!(!notes.contains_key("ferrovirt.io/copy-permitted"));
}

/// Neither a TPM nor firmware variables are in the disks.
#[test]
fn vm_with_state_outside_of_its_disks_has_no_template() {
    let keeps_state = ("failed", Reason::SourceVMWithBackendStorageInvalid);
    let mut with_tpm = vm();
    let domain = &mut with_tpm["spec"]["template"]["spec"]["domain"];
    domain["devices"]["tpm"] = json!({"persistent": true});
    let mut one = observed(&json!({}), &Value::Null);
    let mut copied = source(&json!([{"name": "data", "enabled": true}]));
    copied.object = with_tpm.clone();
    one.source = Some(copied);
    assert_eq!(problem(&one), keeps_state);
    // A preference asks for it: nothing is copied.
    let mut preferred = observed(&json!({}), &Value::Null);
    preferred.source = Some(source(&json!([{"name": "data", "enabled": true}])));
    preferred.copied = Some(Ok(with_tpm.clone()));
    assert_eq!(problem(&preferred), keeps_state);
    // The preference was changed before the snapshot.
    let mut expanded = ready();
    expanded.copied = Some(Ok(with_tpm));
    assert_eq!(problem(&expanded), keeps_state);
}

/// The data volumes belong to nobody.
fn release(observed: &mut Observed) {
    for volume in &mut observed.volumes {
        volume.metadata.owner_references = None;
    }
}

#[test]
fn template_follows_the_data_volumes() {
    let waits = plan(&with_snapshot(&Value::Null));
    assert_eq!(
        (waits.step, waits.progress),
        (None, Progress::Working(None))
    );
    let mut one = ready();
    assert_eq!(plan(&one).step, Some(Step::CreateVolume(0)));
    add_volume(&mut one, "CloneInProgress", "12345678");
    let filling = plan(&one);
    assert_eq!(filling.step, None);
    let Progress::Working(Some((_, message))) = filling.progress else {
        panic!("{:?}", filling.progress);
    };
    assert!(message.contains(VOLUME), "{message}");
    assert!(filling.requeue_in.is_some());
    add_volume(&mut one, "Failed", "12345678");
    assert_eq!(problem(&one), IMPOSSIBLE);
    add_volume(&mut one, "Succeeded", "12345678");
    assert_eq!(plan(&one).step, Some(Step::AddFinalizer));
    protect(&mut one);
    assert_eq!(plan(&one).step, Some(Step::ReleaseVolume(0)));
    release(&mut one);
    assert!(matches!(plan(&one).step, Some(Step::CreateTemplate(_))));
    add_template(&mut one, "12345678");
    assert_eq!(plan(&one).step, Some(Step::OwnVolume(0)));
    add_volume(&mut one, "Succeeded", "t");
    let done = plan(&one);
    assert_eq!((done.step, &done.progress), (None, &Progress::Succeeded));
    let shown = status::render(&one, &done.progress);
    assert_eq!(shown.template_ref.as_ref().unwrap().name, "r");
    let after = VirtualMachineTemplateRequest {
        status: Some(shown),
        ..one.request.as_ref().clone()
    };
    assert_eq!(stage(&after), Stage::Succeeded);
    one.request = Arc::new(after);
    assert_eq!(plan(&one).step, Some(Step::DeleteSnapshot));
    one.snapshot = None;
    assert_eq!(plan(&one).step, Some(Step::RemoveFinalizer));
}

#[test]
fn disk_that_is_being_deleted_gets_no_template() {
    let mut one = ready();
    protect(&mut one);
    add_volume(&mut one, "Succeeded", "12345678");
    for released in [false, true] {
        if released {
            release(&mut one);
        }
        one.volumes[0].metadata.deletion_timestamp = Some(Time(NOW.parse().unwrap()));
        let waits = plan(&one);
        assert_eq!(waits.step, None);
        assert!(waits.requeue_in.is_some());
    }
    one.volumes.clear();
    assert_eq!(plan(&one).step, Some(Step::CreateVolume(0)));
}

/// Nothing deletes a released data volume after the finalizer.
#[test]
fn failed_request_deletes_released_data_volumes_before_its_finalizer() {
    let mut one = observed(&json!({}), &ended("False"));
    protect(&mut one);
    add_volume(&mut one, "Succeeded", "12345678");
    release(&mut one);
    assert_eq!(plan(&one).step, Some(Step::DeleteVolume(0)));
    // One of another request, or that is used already.
    let mut other = one.volumes[0].clone();
    other.metadata.name = Some("template-1234567-data".to_owned());
    one.volumes = vec![other];
    assert_eq!(plan(&one).step, Some(Step::RemoveFinalizer));
    add_volume(&mut one, "Succeeded", "t");
    assert_eq!(plan(&one).step, Some(Step::RemoveFinalizer));
}

/// The garbage collector would take the disks of the template with the request.
#[test]
fn deleted_request_gives_its_disks_to_its_template_first() {
    let mut one = ready();
    let deleted = |one: &mut Observed| {
        let request = Arc::make_mut(&mut one.request);
        request.metadata.deletion_timestamp = Some(Time(NOW.parse().unwrap()));
    };
    deleted(&mut one);
    add_volume(&mut one, "Succeeded", "12345678");
    assert_eq!(plan(&one).step, None);
    protect(&mut one);
    assert_eq!(plan(&one).step, Some(Step::DeleteVolume(0)));
    // Nothing else would delete it.
    release(&mut one);
    assert_eq!(plan(&one).step, Some(Step::DeleteVolume(0)));
    add_template(&mut one, "another");
    assert_eq!(plan(&one).step, Some(Step::DeleteVolume(0)));
    add_template(&mut one, "12345678");
    assert_eq!(plan(&one).step, Some(Step::OwnVolume(0)));
    add_volume(&mut one, "Succeeded", "t");
    assert_eq!(plan(&one).step, Some(Step::DeleteSnapshot));
    one.snapshot = None;
    assert_eq!(plan(&one).step, Some(Step::RemoveFinalizer));
}

#[test]
fn data_volumes_say_why_they_have_no_data() {
    let mut one = ready();
    let condition = |kind: &str, status: &str, message: &str| json!({"type": kind, "status": status, "message": message});
    for (phase, conditions, expected) in [
        (
            "Pending",
            json!([
                condition("Running", "False", ""),
                condition("Bound", "False", "no space")
            ]),
            "(no space)",
        ),
        (
            "CloneInProgress",
            json!([condition("Running", "True", "copies")]),
            "get their data",
        ),
        (
            "Failed",
            json!([condition("Running", "False", "no server")]),
            "has failed: no server",
        ),
    ] {
        let volume = json!({
            "metadata": {"name": VOLUME, "namespace": "n"},
            "status": {"phase": phase, "conditions": conditions},
        });
        one.volumes = vec![serde_json::from_value(volume).unwrap()];
        let message = match plan(&one).progress {
            Progress::Working(Some((_, message))) | Progress::Failed((_, message)) => message,
            other => panic!("no message: {other:?}"),
        };
        assert!(message.contains(expected), "{message}");
        assert!(!message.contains("copies"), "{message}");
    }
}

#[test]
fn request_fails_without_its_snapshot_or_a_disk() {
    let failed = json!({"phase": "Failed", "conditions": [{
        "type": "Failure", "status": "True", "reason": "SnapshotDeadlineExceeded", "message": "late",
    }]});
    assert_eq!(problem(&with_snapshot(&failed)), IMPOSSIBLE);
    let mut gone = observed(&json!({}), &Value::Null);
    add_volume(&mut gone, "Pending", "12345678");
    assert_eq!(problem(&gone), IMPOSSIBLE);
    let mut lost = ready();
    lost.copied = None;
    assert_eq!(problem(&lost), IMPOSSIBLE);
    let mut not_expanded = ready();
    not_expanded.copied = Some(Err("no instance type".to_owned()));
    assert_eq!(problem(&not_expanded), IMPOSSIBLE);
    let mut partial = ready();
    partial.backups = Vec::new();
    assert_eq!(problem(&partial), IMPOSSIBLE);
    let mut not_copied = ready();
    not_copied.backups[0].volume_snapshot_name = None;
    assert_eq!(problem(&not_copied), IMPOSSIBLE);
}

#[test]
fn ended_request_is_cleaned_up_and_deleted_after_its_time() {
    let ttl = |seconds: i32| json!({"ttlSecondsAfterFinished": seconds});
    for (more, ready, step, requeue_in) in [
        (json!({}), "True", None, None),
        (ttl(60), "True", Some(Step::DeleteRequest), None),
        (ttl(90), "True", None, Some(Duration::from_secs(30))),
        // A failed one stays.
        (ttl(0), "False", None, None),
    ] {
        let mut one = observed(&more, &ended(ready));
        let end = plan(&one);
        assert_eq!((end.step, end.requeue_in), (step, requeue_in), "{more}");
        assert_eq!(end.progress, Progress::Ended);
        one.snapshot = with_snapshot(&Value::Null).snapshot;
        assert_eq!(plan(&one).step, Some(Step::DeleteSnapshot), "{more}");
        protect(&mut one);
        assert_eq!(plan(&one).step, Some(Step::DeleteSnapshot), "{more}");
        one.snapshot = None;
        assert_eq!(plan(&one).step, Some(Step::RemoveFinalizer), "{more}");
    }
}

/// A full copy of each disk, which nobody can use.
#[test]
fn failed_request_keeps_no_data_volumes() {
    let mut one = observed(&json!({}), &ended("False"));
    add_volume(&mut one, "Failed", "another");
    assert_eq!(plan(&one).step, None);
    add_volume(&mut one, "Failed", "12345678");
    assert_eq!(plan(&one).step, Some(Step::DeleteVolume(0)));
    one.volumes[0].metadata.deletion_timestamp = Some(Time(NOW.parse().unwrap()));
    assert_eq!(plan(&one).step, None);
    let mut succeeded = observed(&json!({}), &ended("True"));
    add_volume(&mut succeeded, "Succeeded", "12345678");
    assert_eq!(plan(&succeeded).step, None);
}

#[test]
fn template_has_no_identity_and_its_own_disks() {
    let more = json!({"templateName": "golden", "templateLabels": {"team": "web"}});
    let request = request(&more, &Value::Null);
    let template = render::template(&request, &vm(), &backups()).unwrap();
    assert_eq!(
        template["metadata"],
        json!({
            "name": "golden", "namespace": "n",
            "labels": {"team": "web", "template.kubevirt.io/RequestUID": "12345678"},
        })
    );
    let made = &template["spec"]["virtualMachine"];
    assert_eq!(made["metadata"], json!({"name": "${NAME}"}));
    let spec = &made["spec"]["template"]["spec"];
    assert_eq!(
        spec["domain"],
        json!({
            "firmware": {"bootloader": {"bios": {}}},
            "chassis": {"asset": "a"},
            "devices": {"interfaces": [{"name": "one"}]},
        })
    );
    assert_eq!(
        spec["volumes"][0],
        json!({"name": "data", "dataVolume": {"name": "${NAME}-data"}})
    );
    assert_eq!(
        made["spec"]["dataVolumeTemplates"],
        json!([{
            "metadata": {"name": "${NAME}-data"},
            "spec": {
                "source": {"pvc": {"namespace": "n", "name": VOLUME}},
                "storage": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local"},
            },
        }])
    );
}

/// A volume may name the claim of its data volume, or be a dump of the memory.
#[test]
fn disks_are_replaced_however_the_vm_names_them() {
    let request = request(&json!({}), &Value::Null);
    let mut vm = vm();
    vm["spec"]["template"]["spec"]["volumes"] = json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "a-data"}},
        {"name": "dump", "memoryDump": {"claimName": "dump"}},
    ]);
    let template = render::template(&request, &vm, &backups()).unwrap();
    let spec = &template["spec"]["virtualMachine"]["spec"];
    assert_eq!(
        spec["template"]["spec"]["volumes"],
        json!([{"name": "data", "dataVolume": {"name": "${NAME}-data"}}])
    );
    let templates = spec["dataVolumeTemplates"].as_array().unwrap();
    let names: Vec<_> = templates
        .iter()
        .map(|one| &one["metadata"]["name"])
        .collect();
    assert_eq!(names, ["${NAME}-data"]);
}

/// A script of the guest must not be read as references to parameters.
#[test]
fn texts_of_the_vm_are_not_parameters() {
    let request = request(&json!({}), &Value::Null);
    let template = render::template(&request, &vm(), &backups()).unwrap();
    let parameters = template["spec"]["parameters"].as_array().unwrap();
    let names: Vec<_> = parameters.iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["NAME", "DOLLAR"]);
    let spec = &template["spec"]["virtualMachine"]["spec"]["template"]["spec"];
    let text = spec["volumes"][1]["cloudInitNoCloud"]["userData"]
        .as_str()
        .unwrap();
    assert_eq!(text, "echo ${DOLLAR}HOME} ${DOLLAR}{X}}");
    let value = parameters[1]["value"].as_str().unwrap();
    assert_eq!(text.replace("${DOLLAR}", value), "echo ${HOME} ${{X}}");
    let mut plain = vm();
    plain["spec"]["template"]["spec"]["volumes"][1] = json!({"name": "init", "emptyDisk": {}});
    let template = render::template(&request, &plain, &backups()).unwrap();
    let parameters = template["spec"]["parameters"].as_array().unwrap();
    assert_eq!(parameters.len(), 1);
}
