//! The table of plans, and the template that is made of a VM.

use std::sync::Arc;
use std::time::Duration;

use kubevirt_api::snapshot::VolumeBackup;
use kubevirt_api::template::VirtualMachineTemplateRequest;
use reasons::Reason;
use serde_json::{Value, json};

use super::observe::{Observed, Stage, stage, waits_for_vm};
use super::plan::{Progress, Step, plan};
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
            "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": owner}],
        },
        "status": {"phase": phase},
    });
    observed.volumes = vec![serde_json::from_value(volume).unwrap()];
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
    assert!(waits_for_vm(&one.request, "a") && !waits_for_vm(&one.request, "b"));
    one.source = Some(source(&json!([{"name": "data", "enabled": false}])));
    assert_eq!(problem(&one), ("pending", Reason::VMVolumeSnapshotsInvalid));
    one.source = Some(source(&json!([{"name": "data", "enabled": true}])));
    assert_eq!(plan(&one).step, Some(Step::CreateSnapshot));
    add_template(&mut one, "another");
    assert_eq!(problem(&one), ("failed", Reason::TemplateExists));
    let other = json!({"virtualMachineRef": {"namespace": "other", "name": "a"}});
    assert_eq!(problem(&observed(&other, &Value::Null)), IMPOSSIBLE);
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
    add_volume(&mut one, "Failed", "12345678");
    assert_eq!(problem(&one), IMPOSSIBLE);
    add_volume(&mut one, "Succeeded", "12345678");
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
    }
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
