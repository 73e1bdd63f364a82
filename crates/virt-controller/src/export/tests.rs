//! Tables over the plan, and what is rendered.

use std::sync::Arc;
use std::time::Duration;

use cluster_config::ClusterConfig;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::conditions;
use kubevirt_api::export::{
    ConditionType, VirtualMachineExport, VirtualMachineExportPhase as Phase,
};
use launcher_pod::{Acceleration, Settings};
use reasons::Reason;
use serde_json::{Value, json};

use super::observe::{Front, Observed, Restored, Source, Volume};
use super::plan::{Claims, Plan, Progress, Step, plan};
use super::pod::Served;
use super::view::{ExporterPod, State};
use super::{ExportProxy, links, manifest, names, pod, status};
use crate::view::Claim;

fn now() -> Timestamp {
    "2026-11-26T04:00:00Z".parse().unwrap()
}

fn export(kind: &str) -> Value {
    json!({
        "metadata": {
            "name": "copy", "namespace": "ns", "uid": "u",
            "creationTimestamp": "2026-11-26T03:59:00Z",
        },
        "spec": {"source": {"kind": kind, "name": "source"}},
    })
}

fn claim(name: &str) -> Claim {
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"volumeMode": "Filesystem"},
        "status": {"phase": "Bound", "capacity": {"storage": "2Gi"}},
    }))
    .unwrap();
    Claim::from(claim)
}

fn volume(name: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        claim_name: name.to_owned(),
        original: name.to_owned(),
        claim: Some(Arc::new(claim(name))),
        is_populated: true,
        is_disk: true,
        ..Volume::default()
    }
}

fn restored(name: &str) -> Volume {
    let restored = Restored {
        body: json!({}),
        is_ours: true,
        has_copy: true,
    };
    Volume {
        claim_name: format!("copy-{name}"),
        restored: Some(restored),
        ..volume(name)
    }
}

/// An export of a claim that only lacks its pod.
fn observed() -> Observed {
    Observed {
        proxy: None,
        export: Arc::new(serde_json::from_value(export("PersistentVolumeClaim")).unwrap()),
        source: Source::Claim,
        volumes: vec![volume("source")],
        front: Front::Ready {
            certificate: "secret-1".to_owned(),
            authority: "PEM".to_owned(),
            token: "export-token-copy".to_owned(),
        },
        pod: None,
        is_over: false,
        now: now(),
    }
}

fn of_kind(kind: &str, source: Source, volumes: Vec<Volume>) -> Observed {
    Observed {
        export: Arc::new(serde_json::from_value(export(kind)).unwrap()),
        source,
        volumes,
        ..observed()
    }
}

fn machine(has_guest: bool) -> Observed {
    let vm = json!({"metadata": {"name": "source"}});
    of_kind(
        "VirtualMachine",
        Source::Machine { vm, has_guest },
        vec![volume("root")],
    )
}

fn with_pod(mut observed: Observed, state: State) -> Observed {
    observed.pod = Some(Arc::new(ExporterPod {
        state,
        served: Served::wanted(&observed).unwrap_or_default(),
        ..ExporterPod::default()
    }));
    observed
}

/// The reason of `Ready`, or none when there is nothing to wait for.
fn reason(plan: &Plan) -> Option<Reason> {
    match &plan.progress {
        Progress::Waits { ready: cause, .. }
        | Progress::Skipped(cause)
        | Progress::Starting(cause)
        | Progress::Terminated(cause) => Some(cause.0),
        Progress::Ended | Progress::Ready => None,
    }
}

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "each case is used once")]
fn check(name: &str, observed: Observed, step: Option<Step>, expected: Option<Reason>) {
    let planned = plan(&observed);
    assert_eq!(planned.step, step, "{name}: {planned:?}");
    assert_eq!(reason(&planned), expected, "{name}: {planned:?}");
}

#[test]
fn missing_and_unknown_sources_have_a_reason() {
    let missing = |kind: &str| of_kind(kind, Source::Missing, Vec::new());
    check(
        "no claim",
        missing("PersistentVolumeClaim"),
        None,
        Some(Reason::Initializing),
    );
    check(
        "no VM",
        missing("VirtualMachine"),
        None,
        Some(Reason::ExportVMNotFound),
    );
    let snapshot = "VirtualMachineSnapshot";
    check(
        "no snapshot",
        missing(snapshot),
        None,
        Some(Reason::VMSnapshotNotFound),
    );
    check(
        "backup",
        of_kind("VirtualMachineBackup", Source::Unknown, Vec::new()),
        None,
        Some(Reason::FeatureNotSupported),
    );
}

#[test]
fn each_state_has_one_step_and_one_reason() {
    let pending = Some(Reason::ExporterPodPending);
    check("new", observed(), Some(Step::Start), pending);
    let mut without_service = observed();
    without_service.front = Front::None;
    check("no service", without_service, Some(Step::Publish), pending);
    let mut taken = observed();
    taken.front = Front::Taken;
    check("other service", taken, None, Some(Reason::Initializing));
    check("halted VM", machine(false), Some(Step::Start), pending);
    check(
        "running VM",
        machine(true),
        None,
        Some(Reason::ExportSourceInUse),
    );
    let mut diskless = machine(false);
    diskless.volumes.clear();
    check(
        "VM without claims",
        diskless,
        None,
        Some(Reason::VMNoVolumes),
    );
    let mut incomplete = machine(false);
    incomplete.volumes[0].claim = None;
    check(
        "VM without its claim",
        incomplete,
        None,
        Some(Reason::VolumesNotPopulated),
    );
    let mut unpopulated = observed();
    unpopulated.volumes[0].is_populated = false;
    check("no data", unpopulated, None, Some(Reason::ExportPVCPending));
    let mut used = observed();
    used.volumes[0].user = Some("pod virt-launcher-a".to_owned());
    check("used claim", used, None, Some(Reason::ExportSourceInUse));
}

#[test]
fn snapshot_is_exported_by_claims_of_its_own() {
    let snapshot = "VirtualMachineSnapshot";
    let pending = Some(Reason::ExporterPodPending);
    let not_ready = Source::NotReady("not yet".to_owned());
    check(
        "snapshot that is not ready",
        of_kind(snapshot, not_ready, Vec::new()),
        None,
        Some(Reason::NotAllPVCsCreated),
    );
    let of_snapshot = |volumes| of_kind(snapshot, Source::Snapshot(json!({})), volumes);
    check(
        "empty snapshot",
        of_snapshot(vec![]),
        None,
        Some(Reason::VMSnapshotNoVolumes),
    );
    check(
        "snapshot",
        of_snapshot(vec![restored("a")]),
        Some(Step::Start),
        pending,
    );
    let mut missing = restored("b");
    missing.claim = None;
    let mut copyless = missing.clone();
    copyless.restored = Some(Restored::default());
    check(
        "snapshot whose copy is gone",
        of_snapshot(vec![copyless]),
        None,
        Some(Reason::NotAllPVCsCreated),
    );
    check(
        "snapshot with a claim to restore",
        of_snapshot(vec![restored("a"), missing]),
        Some(Step::CreateClaims),
        Some(Reason::NotAllPVCsCreated),
    );
    let mut foreign = restored("a");
    foreign.restored = Some(Restored::default());
    check(
        "snapshot with a claim of somebody else",
        of_snapshot(vec![foreign]),
        None,
        Some(Reason::NotAllPVCsCreated),
    );
    let mut unbound = restored("a");
    unbound.is_populated = false;
    check(
        "snapshot with a claim that is not bound",
        of_snapshot(vec![unbound.clone()]),
        None,
        Some(Reason::ExportPVCPending),
    );
    unbound.waits_for_consumer = true;
    check(
        "snapshot with a claim that its pod binds",
        of_snapshot(vec![unbound]),
        Some(Step::Start),
        pending,
    );
}

#[test]
fn export_of_a_copy_ends_with_it_and_has_its_claim_bound() {
    let mut over = with_pod(observed(), State::Ready);
    over.is_over = true;
    assert_eq!(plan(&over).step, Some(Step::DeleteExport));
    let mut unbound = observed();
    unbound.volumes[0].is_populated = false;
    unbound.volumes[0].waits_for_consumer = true;
    assert_eq!(plan(&unbound).step, None);
    unbound.volumes[0].is_own = true;
    assert_eq!(plan(&unbound).step, Some(Step::Start));
}

#[test]
fn pod_decides_whether_the_export_is_ready() {
    let check = |state: State, expected: &Progress| {
        let planned = plan(&with_pod(observed(), state));
        assert_eq!(&planned.progress, expected);
        assert_eq!(planned.step, None);
    };
    check(State::Ready, &Progress::Ready);
    let cause = |reason, message: &str| (reason, message.to_owned());
    let pending = Reason::ExporterPodPending;
    check(
        State::Starting(None),
        &Progress::Starting(cause(pending, "the export server is starting")),
    );
    check(
        State::Starting(Some("no room".to_owned())),
        &Progress::Starting(cause(pending, "no room")),
    );
    check(
        State::Completed,
        &Progress::Terminated(cause(Reason::PodCompleted, "the export server has ended")),
    );
}

#[test]
fn failed_pod_is_replaced_after_a_pause() {
    let failed = |seconds: i64| State::Failed {
        message: "evicted".to_owned(),
        at: Some(now() - SignedDuration::from_secs(seconds)),
    };
    let planned = plan(&with_pod(observed(), failed(3)));
    assert_eq!(planned.step, None);
    assert_eq!(planned.requeue_in, Some(Duration::from_secs(7)));
    let planned = plan(&with_pod(observed(), failed(10)));
    let message = "the pod of the export server failed: evicted".to_owned();
    let step = Step::DeletePod(Reason::ExporterPodFailedOrCompleted, message);
    assert_eq!(planned.step, Some(step));
}

#[test]
fn pod_is_removed_while_the_source_is_used() {
    for state in [State::Ready, State::Starting(None), State::Completed] {
        let planned = plan(&with_pod(machine(true), state));
        let message = "VirtualMachine source is running".to_owned();
        let step = Step::DeletePod(Reason::ExportPaused, message);
        assert_eq!(planned.step, Some(step));
        assert!(matches!(planned.progress, Progress::Waits { .. }));
    }
}

#[test]
fn pod_that_serves_something_else_is_replaced() {
    let check = |changed: Observed| {
        let planned = plan(&changed);
        let message = "the volumes of the export have changed".to_owned();
        let step = Step::DeletePod(Reason::ExportPaused, message);
        assert_eq!(planned.step, Some(step));
    };
    let running = || with_pod(machine(false), State::Ready);
    let mut more = running();
    more.volumes.push(volume("data"));
    check(more);
    let mut files = running();
    files.volumes[0].is_disk = false;
    check(files);
    let mut renewed = running();
    renewed.front = Front::Ready {
        certificate: "secret-2".to_owned(),
        authority: "PEM 2".to_owned(),
        token: "export-token-copy".to_owned(),
    };
    check(renewed);
}

#[test]
fn claim_that_is_being_deleted_is_released() {
    let mut deleted = claim("source");
    deleted.metadata.deletion_timestamp = Some(Time(now()));
    let mut observed = with_pod(observed(), State::Ready);
    observed.volumes[0].claim = Some(Arc::new(deleted));
    let message = "claim source is being deleted".to_owned();
    check(
        "deleted claim",
        observed,
        Some(Step::DeletePod(Reason::ExportPaused, message)),
        Some(Reason::VolumesNotPopulated),
    );
}

#[test]
fn export_ends_with_its_time() {
    let with_lifetime = |lifetime: Option<&str>, minutes: i64| {
        let mut export = export("PersistentVolumeClaim");
        if let Some(lifetime) = lifetime {
            export["spec"]["ttlDuration"] = lifetime.into();
        }
        let mut observed = with_pod(observed(), State::Ready);
        observed.export = Arc::new(serde_json::from_value(export).unwrap());
        observed.now = now() + SignedDuration::from_mins(minutes);
        plan(&observed)
    };
    let minute = Duration::from_mins(1);
    assert_eq!(
        with_lifetime(None, 118).requeue_in,
        Some(Duration::from_secs(30))
    );
    assert_eq!(
        with_lifetime(Some("2m"), 0).requeue_in,
        Some(Duration::from_secs(30))
    );
    let planned = with_lifetime(None, 119);
    assert_eq!(planned.step, Some(Step::DeleteExport));
    let planned = with_lifetime(Some("90s"), 0);
    assert_eq!(planned.requeue_in, Some(minute / 2));
    assert_eq!(with_lifetime(Some("90s"), 1).step, Some(Step::DeleteExport));
}

#[test]
fn deleted_export_is_left_to_its_deletion() {
    let mut export = export("PersistentVolumeClaim");
    export["metadata"]["deletionTimestamp"] = "2026-11-26T04:00:00Z".into();
    let mut observed = observed();
    observed.export = Arc::new(serde_json::from_value(export).unwrap());
    assert_eq!(plan(&observed), Plan::state(Progress::Ended));
}

fn proxy() -> ExportProxy {
    ExportProxy {
        url: "https://host:6443".to_owned(),
        authority: "HOST".to_owned(),
    }
}

#[test]
fn status_has_links_while_the_export_is_ready() {
    let observed = with_pod(machine(false), State::Ready);
    let shown = status::render(&observed, &Progress::Ready, Some(&proxy()));
    assert_eq!(shown.phase, Some(Phase::Ready));
    assert_eq!(shown.token_secret_ref.as_deref(), Some("export-token-copy"));
    assert_eq!(shown.service_name.as_deref(), Some("virt-export-copy"));
    assert_eq!(shown.virtual_machine_name.as_deref(), Some("source"));
    let expiry = shown.ttl_expiration_time.clone().unwrap().0;
    assert_eq!(expiry, "2026-11-26T05:59:00Z".parse().unwrap());
    assert!(conditions::is_true(
        &shown.conditions,
        &ConditionType::Ready
    ));
    assert!(conditions::is_true(
        &shown.conditions,
        &ConditionType::PvcReady
    ));
    let expected = json!({
        "internal": {
            "cert": "PEM",
            "volumes": [{"name": "root", "formats": [
                {"format": "raw", "url": "https://virt-export-copy.ns.svc/volumes/root/disk.img"},
                {"format": "gzip", "url": "https://virt-export-copy.ns.svc/volumes/root/disk.img.gz"},
            ]}],
            "manifests": [
                {"type": "all", "url": "https://virt-export-copy.ns.svc/internal/manifests/all"},
                {"type": "auth-header-secret",
                 "url": "https://virt-export-copy.ns.svc/internal/manifests/secret"},
            ],
        },
    });
    let mut links = json!(shown.links);
    let external = links["external"].take();
    links.as_object_mut().unwrap().remove("external");
    assert_eq!(links, expected);
    let base =
        "https://host:6443/api/export.kubevirt.io/v1/namespaces/ns/virtualmachineexports/copy";
    assert_eq!(external["cert"], "HOST");
    let url = &external["volumes"][0]["formats"][0]["url"];
    assert_eq!(*url, format!("{base}/volumes/root/disk.img"));
    let url = &external["manifests"][0]["url"];
    assert_eq!(*url, format!("{base}/external/manifests/all"));

    let cause = (Reason::ExportSourceInUse, "it runs".to_owned());
    let waits = Progress::Waits {
        ready: cause,
        claims: Claims::Ready,
    };
    let mut paused = observed;
    let mut export = paused.export.as_ref().clone();
    export.status = Some(shown);
    paused.export = Arc::new(export);
    let shown = status::render(&paused, &waits, None);
    assert_eq!((shown.phase, shown.links), (Some(Phase::Pending), None));
    let ready = conditions::find(&shown.conditions, &ConditionType::Ready).unwrap();
    assert_eq!(ready.reason.as_deref(), Some("InUse"));
}

#[test]
fn claim_with_files_has_no_disk_and_no_manifest() {
    let mut observed = observed();
    observed.volumes[0].is_disk = false;
    let link = links::of(&observed, None).internal.unwrap();
    assert_eq!(links::of(&observed, None).external, None);
    assert_eq!(link.manifests, []);
    let formats: Vec<String> = link.volumes[0]
        .formats
        .iter()
        .map(|one| format!("{} {}", one.format, one.url))
        .collect();
    let base = "https://virt-export-copy.ns.svc/volumes/source";
    assert_eq!(
        formats,
        [
            format!("dir {base}/dir"),
            format!("tar.gz {base}/disk.tar.gz")
        ]
    );
}

#[test]
fn names_are_valid_and_belong_to_one_export() {
    let named = |name: &str| {
        let mut export = export("PersistentVolumeClaim");
        export["metadata"]["name"] = name.into();
        export["metadata"]["uid"] = "12345678-9".into();
        serde_json::from_value::<VirtualMachineExport>(export).unwrap()
    };
    assert_eq!(names::server(&named("a")), "virt-export-a");
    assert_eq!(names::server(&named("a.b")), "virt-export-a-b-12345678");
    let long = names::server(&named(&"a".repeat(200)));
    assert!(long.len() <= 63, "{long}");
    assert_ne!(long, names::server(&named(&"a".repeat(201))));
    let suffix = "0123456789";
    let tokens = ["export-token-a", "export-token-a-0123456789"];
    assert_eq!(names::tokens(&named("a"), suffix), tokens);
    let manifests = names::manifests(&named("a"), "{}");
    assert!(
        manifests.starts_with("exporter-vm-manifest-a-"),
        "{manifests}"
    );
    assert_eq!(manifests, names::manifests(&named("a"), "{}"));
    assert_ne!(manifests, names::manifests(&named("a"), "{\"a\":1}"));
}

#[test]
fn pod_reads_its_claims_as_an_unprivileged_user() {
    let mut observed = of_kind(
        "VirtualMachine",
        Source::Unknown,
        vec![volume("root"), volume("files"), volume("block")],
    );
    observed.volumes[1].is_disk = false;
    let block: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": "block"}, "spec": {"volumeMode": "Block"},
    }))
    .unwrap();
    observed.volumes[2].claim = Some(Arc::new(Claim::from(block)));
    let written = json!({"supportContainerResources": [
        {"type": "vmexport", "resources": {"limits": {"memory": "1Gi"}}},
    ]});
    let config = ClusterConfig {
        written: serde_json::from_value(written).unwrap(),
        ..ClusterConfig::default()
    };
    let rendered = pod::pod(&pod::Input {
        export: &observed.export,
        volumes: &observed.volumes,
        offer: None,
        certificate: "secret-1",
        token: "export-token-copy",
        manifests: Some("manifests-1"),
        settings: &Settings::defaults("launcher:1", Acceleration::Kvm),
        config: &config,
    });
    // The pod is recognised as what was wanted.
    assert_eq!(Some(Served::by(&rendered)), Served::wanted(&observed));
    insta::assert_yaml_snapshot!(rendered);
}

#[test]
fn manifest_imports_the_vm_from_the_export() {
    let vm = json!({
        "metadata": {
            "name": "source", "namespace": "ns", "uid": "u", "generation": 4,
            "labels": {"app": "web"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        },
        "spec": {
            "runStrategy": "Halted",
            "instancetype": {"name": "u1.small", "revisionName": "r"},
            "dataVolumeTemplates": [{
                "metadata": {"name": "root", "creationTimestamp": null},
                "spec": {"source": {"blank": {}}, "storage": {}},
            }],
            "template": {"spec": {"volumes": [
                {"name": "a", "dataVolume": {"name": "root"}},
                {"name": "b", "persistentVolumeClaim": {"claimName": "data", "hotpluggable": true}},
                {"name": "c", "cloudInitNoCloud": {"userData": "x"}},
                {"name": "d", "memoryDump": {"claimName": "dump"}},
            ]}},
        },
        "status": {"ready": false},
    });
    let mut observed = of_kind(
        "VirtualMachine",
        Source::Unknown,
        vec![volume("root"), volume("data"), volume("dump")],
    );
    observed.volumes[2].is_disk = false;
    let base = links::Base {
        url: "https://x".to_owned(),
        authority: "PEM\n".to_owned(),
    };
    let objects = manifest::objects(&observed.export, &vm, &observed.volumes, &base);
    insta::assert_snapshot!(manifest::yaml(&objects).unwrap());
    let list: Value = serde_json::from_str(&manifest::list(&objects)).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 3);
}

#[test]
fn pod_status_is_understood() {
    let check = |status: Value, expected: State| {
        let pod: Pod = serde_json::from_value(json!({"status": status})).unwrap();
        assert_eq!(ExporterPod::from(pod).state, expected, "{status}");
    };
    let container = |state: Value| {
        json!([{"name": "exporter", "image": "i", "imageID": "", "ready": false,
                "restartCount": 0, "state": state}])
    };
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let why = |text: &str| State::Starting(Some(text.to_owned()));
    check(json!({}), State::Starting(None));
    check(
        json!({"phase": "Running", "conditions": ready}),
        State::Ready,
    );
    check(json!({"phase": "Running"}), State::Starting(None));
    check(json!({"phase": "Succeeded"}), State::Completed);
    check(
        json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "no room"},
        ]}),
        why("no room"),
    );
    let waiting = json!({"waiting": {"reason": "ErrImagePull", "message": "gone"}});
    check(
        json!({"phase": "Pending", "containerStatuses": container(waiting)}),
        why("ErrImagePull: gone"),
    );
    let ended = json!({"terminated": {"exitCode": 1, "message": "volume a has no disk\n"}});
    check(
        json!({"phase": "Running", "containerStatuses": container(ended)}),
        why("the export server has ended: volume a has no disk"),
    );
    check(
        json!({"phase": "Failed", "message": "evicted"}),
        State::Failed {
            message: "evicted".to_owned(),
            at: None,
        },
    );
}
