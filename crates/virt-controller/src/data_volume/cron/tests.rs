//! Plans of periodic imports.

use std::sync::Arc;
use std::time::Duration;

use launcher_pod::ContainerDisks;
use serde_json::{Value, json};

use super::super::request::{self, Abilities};
use super::act::{data_volume, status};
use super::observe::{Import, Managed, managed, schedule};
use super::plan::{Cleanup, Observed, Plan, Step, import_name, plan};
use crate::Uploads;

const NOW: &str = "2026-11-25T12:00:00Z";
const OLD: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
const NEW: &str = "sha256:2222222222222222222222222222222222222222222222222222222222222222";

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn cron() -> Value {
    json!({
        "metadata": {"name": "weekly", "namespace": "n", "uid": "u"},
        "spec": {
            "schedule": "0 * * * *", "managedDataSource": "debian", "importsToKeep": 2,
            "template": {"metadata": {"labels": {"mine": "1"}}, "spec": {
                "source": {"http": {"url": "https://example.com/disk.qcow2"}},
                "storage": {"resources": {"requests": {"storage": "1Gi"}}},
            }},
        },
    })
}

fn with_status(status: Value) -> Value {
    let mut cron = cron();
    cron["status"] = status;
    cron
}

/// The status after the import of a version.
fn imported(digest: &str, last: &str) -> Value {
    json!({
        "lastExecutionTimestamp": last,
        "currentImports": [{"DataVolumeName": import_name("debian", digest), "Digest": digest}],
    })
}

fn import(digest: &str, phase: &str, created: &str) -> Import {
    Import {
        name: import_name("debian", digest),
        uid: digest.to_owned(),
        phase: phase.into(),
        created: Some(created.parse().unwrap()),
        is_deleting: false,
    }
}

fn observe(cron: Value) -> Observed {
    let cron: kubevirt_api::data_import_cron::DataImportCron = read(cron);
    let template = json!({"metadata": {"name": "weekly", "namespace": "n"},
                          "spec": cron.spec.template.spec});
    let abilities = Abilities {
        images: ContainerDisks::ImageVolumes,
        uploads: Uploads::Refused,
    };
    Observed {
        schedule: schedule(&cron.spec.schedule),
        request: request::parse(&read(template), None, abilities),
        pod: None,
        imports: Vec::new(),
        managed: Managed::Missing,
        now: NOW.parse().unwrap(),
        cron: Arc::new(cron),
    }
}

fn pod(phase: &str, end: &Value) -> Value {
    json!({
        "metadata": {"name": "version-u", "namespace": "n", "uid": "p",
                     "creationTimestamp": "2026-11-25T11:59:00Z"},
        "status": {"phase": phase, "containerStatuses": [{
            "name": "importer", "ready": false, "image": "i", "imageID": "", "restartCount": 0,
            "state": {"terminated": end}}]},
    })
}

fn reported(digest: &str) -> Value {
    let report = import_report::Report::version(digest.to_owned());
    pod(
        "Succeeded",
        &json!({"exitCode": 0, "message": report.text()}),
    )
}

/// Reasons of the conditions, `!` before those that do not hold.
fn reasons(plan: &Plan) -> [String; 2] {
    [&plan.progressing, &plan.up_to_date].map(|verdict| {
        let mark = if verdict.holds { "" } else { "!" };
        format!("{mark}{}", verdict.reason)
    })
}

#[test]
fn pod_is_created_at_once_and_then_at_the_times_of_the_schedule() {
    let case = |cron: Value, steps: &[Step], requeue: Option<u64>| {
        let found = plan(&observe(cron));
        assert_eq!(found.steps, steps, "{found:#?}");
        assert_eq!(found.requeue_in, requeue.map(Duration::from_secs));
        found
    };
    let found = case(cron(), &[Step::CreatePod], None);
    assert_eq!(reasons(&found), ["Polling", "!NoImport"]);
    let last = json!(found.status.last_execution_timestamp);
    assert_eq!(last, NOW);
    case(
        with_status(json!({"lastExecutionTimestamp": NOW})),
        &[],
        Some(3600),
    );
    let earlier = json!({"lastExecutionTimestamp": "2026-11-25T10:59:59Z"});
    case(with_status(earlier), &[Step::CreatePod], None);
    // Without a schedule, until a version was found.
    let once = |status: Value| {
        let mut once = with_status(status);
        once["spec"]["schedule"] = json!("");
        once
    };
    case(once(imported(OLD, "2026-01-01T00:00:00Z")), &[], None);
    case(
        once(json!({"lastExecutionTimestamp": NOW})),
        &[],
        Some(3600),
    );
    let failed = json!({"lastExecutionTimestamp": "2026-11-25T11:00:00Z"});
    case(once(failed), &[Step::CreatePod], None);
}

#[test]
fn new_version_is_imported_once() {
    let mut observed = observe(with_status(json!({"lastExecutionTimestamp": NOW})));
    observed.pod = Some(Arc::new(read(reported(NEW))));
    let found = plan(&observed);
    let [Step::Import(wanted)] = found.steps.as_slice() else {
        panic!("{found:#?}");
    };
    assert_eq!(wanted.data_volume_name, "debian-222222222222");
    assert_eq!(wanted.digest, NEW);
    assert_eq!(found.cleanups, [Cleanup::DeletePod]);
    assert_eq!(reasons(&found), ["ImportProgressing", "!Outdated"]);

    observed.imports = vec![import(NEW, "ImportInProgress", NOW)];
    let found = plan(&observed);
    assert_eq!(found.steps, []);
    assert_eq!(found.cleanups, [Cleanup::DeletePod]);

    // A failed import is deleted first, and created in the next pass.
    observed.imports = vec![import(NEW, "Failed", NOW)];
    let found = plan(&observed);
    assert_eq!(found.steps, []);
    let deleted = Cleanup::DeleteImport("debian-222222222222".to_owned());
    assert_eq!(found.cleanups, [deleted]);
}

#[test]
fn data_source_follows_complete_imports_only() {
    let mut observed = observe(with_status(imported(NEW, NOW)));
    observed.managed = Managed::Ours(Some(import_name("debian", OLD)));
    assert_eq!(reasons(&plan(&observed)), ["!NoImport", "!NoImport"]);
    let mut case = |phase: &str, steps: &[Step], expected: [&str; 2]| {
        observed.imports = vec![import(NEW, phase, NOW)];
        let found = plan(&observed);
        assert_eq!(found.steps, steps, "{phase}");
        assert_eq!(reasons(&found), expected, "{phase}");
        found
    };
    case("", &[], ["ImportProgressing", "!Outdated"]);
    case("ImportInProgress", &[], ["ImportProgressing", "!Outdated"]);
    case("Failed", &[], ["!NoImport", "!ImportFailed"]);
    let name = import_name("debian", NEW);
    let done = case(
        "Succeeded",
        &[Step::Point(name.clone())],
        ["!NoImport", "UpToDate"],
    );
    assert_eq!(done.status.last_imported_pvc.clone().unwrap().name, name);
    assert_eq!(json!(done.status.last_import_timestamp), NOW);
    observed.managed = Managed::Ours(Some(name));
    assert_eq!(plan(&observed).steps, []);
}

#[test]
fn failed_look_is_reported_and_leaves_the_imports() {
    let failure = |transient: bool| {
        let report =
            import_report::Report::failure("ImportSourceNotFound", "gone".to_owned(), transient);
        json!({"exitCode": 1, "message": report.text()})
    };
    let case = |pod: Value, reason: &str, cleanups: &[Cleanup]| {
        let mut observed = observe(with_status(imported(OLD, NOW)));
        observed.imports = vec![import(OLD, "Succeeded", NOW)];
        observed.managed = Managed::Ours(Some(import_name("debian", OLD)));
        observed.pod = Some(Arc::new(read(pod)));
        let found = plan(&observed);
        assert_eq!(found.steps, [], "{found:#?}");
        assert_eq!(found.up_to_date.reason, reason, "{found:#?}");
        assert_eq!(found.cleanups, cleanups, "{found:#?}");
        assert_eq!(found.status.current_imports[0].digest, OLD);
    };
    case(pod("Running", &failure(true)), "ImportSourceNotFound", &[]);
    let delete = [Cleanup::DeletePod];
    case(
        pod("Running", &failure(false)),
        "ImportSourceNotFound",
        &delete,
    );
    case(
        pod("Failed", &failure(true)),
        "ImportSourceNotFound",
        &delete,
    );
    case(reported("sha256:zz"), "ImportFailed", &delete);
    case(reported("../../etc"), "ImportFailed", &delete);
    case(
        pod("Succeeded", &json!({"exitCode": 0, "message": "x"})),
        "ImportFailed",
        &delete,
    );
}

#[test]
fn old_imports_are_deleted_beyond_the_number_to_keep() {
    let digests: Vec<String> = (1..=5)
        .map(|one| OLD.replace('1', &one.to_string()))
        .collect();
    let imports = |current: usize| {
        let mut observed = observe(with_status(imported(&digests[current], NOW)));
        let days = (1..=5).rev().map(|day| format!("2026-11-0{day}T00:00:00Z"));
        let all = digests.iter().zip(days);
        observed.imports = all
            .map(|(digest, day)| import(digest, "Succeeded", &day))
            .collect();
        observed.managed = Managed::Ours(Some(import_name("debian", &digests[current])));
        observed
    };
    let deleted = |observed: &Observed| {
        let cleanups = plan(observed).cleanups.into_iter();
        let names = cleanups.map(|one| match one {
            Cleanup::DeleteImport(name) => name,
            Cleanup::DeletePod => panic!("a pod"),
        });
        names.collect::<Vec<String>>()
    };
    let name = |at: usize| import_name("debian", &digests[at]);
    assert_eq!(deleted(&imports(0)), [name(2), name(3), name(4)]);
    // The current one is old: the address has the former version again.
    assert_eq!(deleted(&imports(3)), [name(2), name(4)]);
    for (field, value, expected) in [
        ("garbageCollect", json!("Never"), 0),
        ("importsToKeep", json!(0), 4),
        ("importsToKeep", Value::Null, 2),
    ] {
        let mut observed = imports(0);
        let mut changed = with_status(imported(&digests[0], NOW));
        changed["spec"][field] = value.clone();
        observed.cron = Arc::new(read(changed));
        assert_eq!(deleted(&observed).len(), expected, "{field} {value}");
    }
}

#[test]
fn what_cannot_be_carried_out_is_refused() {
    let case = |field: &str, value: Value, part: &str| {
        let mut cron = cron();
        *cron.pointer_mut(field).unwrap() = value;
        let found = plan(&observe(cron));
        assert_eq!((found.steps.len(), found.cleanups.len()), (0, 0));
        assert_eq!(found.up_to_date.reason, "ImportNotSupported");
        assert!(found.up_to_date.message.contains(part), "{found:#?}");
    };
    case(
        "/spec/schedule",
        json!("* * *"),
        "spec.schedule: it has 3 fields",
    );
    let none = json!({});
    case(
        "/spec/template/spec/source",
        none,
        "spec.source: give exactly one of",
    );
    let mut observed = observe(cron());
    observed.managed = Managed::Foreign;
    let found = plan(&observed);
    assert_eq!(found.steps, []);
    assert!(
        found
            .up_to_date
            .message
            .contains("debian was not made by this object")
    );
}

#[test]
fn only_a_data_source_with_the_label_is_changed() {
    let source = |labels: Value| {
        let source = json!({"metadata": {"name": "debian", "labels": labels},
                            "spec": {"source": {"pvc": {"namespace": "n", "name": "a"}}}});
        managed(&read(source), "weekly")
    };
    let ours = json!({"cdi.kubevirt.io/dataImportCron": "weekly"});
    assert_eq!(source(ours), Managed::Ours(Some("a".to_owned())));
    let other = json!({"cdi.kubevirt.io/dataImportCron": "daily"});
    assert_eq!(source(other), Managed::Foreign);
    assert_eq!(source(json!({})), Managed::Foreign);
}

#[test]
fn data_volume_is_the_template_with_the_version() {
    let mut cron = cron();
    let wanted = kubevirt_api::data_import_cron::ImportStatus {
        data_volume_name: import_name("debian", NEW),
        digest: NEW.to_owned(),
    };
    let key = reconcile::Key::new("n", "weekly");
    let made = data_volume(&read(cron.clone()), &key, &wanted);
    let metadata = json!({
        "name": "debian-222222222222", "namespace": "n",
        "labels": {"mine": "1", "cdi.kubevirt.io/dataImportCron": "weekly"},
        "annotations": {
            "ferrovirt.io/import-digest": NEW,
            "cdi.kubevirt.io/storage.bind.immediate.requested": "true",
        },
        "ownerReferences": [],
    });
    assert_eq!(made["metadata"], metadata);
    assert_eq!(made["spec"], cron["spec"]["template"]["spec"]);
    cron["spec"]["retentionPolicy"] = json!("None");
    let made = data_volume(&read(cron), &key, &wanted);
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "u");
}

#[test]
fn status_has_both_conditions() {
    let observed = observe(cron());
    let found = status(
        &plan(&observed),
        &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(observed.now),
    );
    let kinds: Vec<&str> = found
        .conditions
        .iter()
        .map(|one| one.type_.as_str())
        .collect();
    assert_eq!(kinds, ["Progressing", "UpToDate"]);
    assert_eq!(json!(found)["sourceFormat"], "pvc");
}
