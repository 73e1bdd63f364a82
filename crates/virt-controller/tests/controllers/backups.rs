//! Backups of running VMs, with the part of virt-handler played by the test.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use kubevirt_api::backup::{VirtualMachineBackup, VirtualMachineBackupTracker};
use kubevirt_api::export::VirtualMachineExport;
use serde_json::{Value, json};

use super::cluster::{NAMESPACE, TestCluster};
use super::hotplug::{report_with, volume, wait_for_attachments, wait_for_phase, with_guest};

/// A claim that `with_guest` makes.
const CLAIM: &str = "one";
const VOLUME: &str = "nightly-backup-target-pvc";

fn backups(cluster: &TestCluster) -> Api<VirtualMachineBackup> {
    Api::namespaced(cluster.client.clone(), NAMESPACE)
}

async fn create(cluster: &TestCluster, spec: Value) {
    let object = json!({
        "apiVersion": "backup.kubevirt.io/v1alpha1", "kind": "VirtualMachineBackup",
        "metadata": {"name": "nightly", "namespace": NAMESPACE}, "spec": spec,
    });
    let object: VirtualMachineBackup = serde_json::from_value(object).unwrap();
    let parameters = PostParams::default();
    backups(cluster).create(&parameters, &object).await.unwrap();
}

fn of_vm() -> Value {
    json!({
        "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "a"}, "pvcName": CLAIM,
    })
}

/// The condition; null if there is none.
async fn condition(cluster: &TestCluster, kind: &str) -> Value {
    let backup = backups(cluster).get("nightly").await.unwrap();
    let all = json!(backup.status.unwrap_or_default().conditions);
    let mut all = all.as_array().cloned().unwrap_or_default().into_iter();
    all.find(|one| one["type"] == kind).unwrap_or_default()
}

async fn wait_for(cluster: &TestCluster, kind: &str, reason: &str) -> Value {
    cluster
        .wait_until(&format!("{kind} is {reason}"), async || {
            condition(cluster, kind).await["reason"] == reason
        })
        .await;
    condition(cluster, kind).await
}

/// What is requested of virt-handler, and what it reports; null if nothing.
async fn report(cluster: &TestCluster) -> Value {
    let vmi = json!(cluster.vmis().get("a").await.unwrap());
    vmi["status"]["changedBlockTracking"]["backupStatus"].clone()
}

/// The checkpoint that is requested of virt-handler.
async fn requested(cluster: &TestCluster) -> Value {
    let vmi = json!(cluster.vmis().get("a").await.unwrap());
    vmi["metadata"]["annotations"]["ferrovirt.io/requested-checkpoint"].clone()
}

/// Reports, as virt-handler does.
async fn write(cluster: &TestCluster, members: Value) {
    let patch = json!({"status": {"changedBlockTracking": {"state": "", "backupStatus": members}}});
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
    let vmis = cluster.vmis();
    vmis.patch("a", &parameters, &patch).await.unwrap();
}

/// Has the claim brought to the guest, until the backup is to be made.
async fn begin(cluster: &TestCluster) {
    wait_for_phase(cluster, VOLUME, "AttachedToNode").await;
    wait_for_attachments(cluster, &[&[CLAIM]]).await;
    report_with(cluster, VOLUME, json!({"phase": "MountedToPod"})).await;
    cluster
        .wait_until("the backup is to be made", async || {
            report(cluster).await["backupName"] == "nightly"
        })
        .await;
}

/// Has the claim leave the guest.
async fn detach(cluster: &TestCluster) {
    wait_for_phase(cluster, VOLUME, "Detaching").await;
    report_with(cluster, VOLUME, json!({"phase": "UnMountedFromPod"})).await;
    wait_for_attachments(cluster, &[]).await;
}

async fn is_clean(cluster: &TestCluster) {
    cluster
        .wait_until("the guest has nothing of the backup", async || {
            let vmi = cluster.vmis().get("a").await.unwrap();
            let has_finalizer = match backups(cluster).get_opt("nightly").await.unwrap() {
                Some(backup) => !backup.finalizers().is_empty(),
                None => false,
            };
            vmi.spec.utility_volumes.is_empty()
                && report(cluster).await.is_null()
                && volume(cluster, VOLUME).await.is_null()
                && !has_finalizer
        })
        .await;
}

async fn back_up(cluster: &TestCluster) {
    create(cluster, of_vm()).await;
    begin(cluster).await;
    let request = report(cluster).await;
    assert!(request["startTimestamp"].is_string(), "{request}");
    assert_eq!(request["completed"], Value::Null);
    write(cluster, json!({"backupMsg": "30 % of the data is copied"})).await;
    let done = json!({
        "completed": true, "quiesceStatus": "Succeeded", "backupMsg": "directory d",
        "volumes": [{"volumeName": "root"}],
    });
    write(cluster, done).await;
    // The claim is still in use.
    wait_for_phase(cluster, VOLUME, "Detaching").await;
    assert_eq!(condition(cluster, "Complete").await, Value::Null);
    detach(cluster).await;
    let complete = wait_for(cluster, "Complete", "Completed").await;
    assert_eq!(complete["message"], format!("claim {CLAIM}, directory d"));
    wait_for(cluster, "Quiesced", "QuiesceSucceeded").await;
    let backup = backups(cluster).get("nightly").await.unwrap();
    let status = json!(backup.status);
    assert_eq!(status["type"], "Full");
    assert_eq!(status["includedVolumes"], json!([{"volumeName": "root"}]));
    is_clean(cluster).await;
}

async fn abort(cluster: &TestCluster) {
    create(cluster, of_vm()).await;
    begin(cluster).await;
    wait_for(cluster, "Progressing", "Initiated").await;
    let parameters = DeleteParams::default();
    backups(cluster)
        .delete("nightly", &parameters)
        .await
        .unwrap();
    wait_for_phase(cluster, VOLUME, "Detaching").await;
    wait_for(cluster, "Progressing", "Aborting").await;
    let cancelled = json!({"completed": true, "failed": true, "backupMsg": "it was cancelled"});
    write(cluster, cancelled).await;
    detach(cluster).await;
    cluster
        .wait_until("the backup is gone", async || {
            let found = backups(cluster).get_opt("nightly").await.unwrap();
            found.is_none()
        })
        .await;
    is_clean(cluster).await;
}

#[tokio::test(start_paused = true)]
async fn backup_completes_once_its_claim_has_left_the_guest() {
    let cluster = with_guest().await;
    let uid = cluster.vmis().get("a").await.unwrap().uid();
    back_up(&cluster).await;
    let events = cluster
        .events_of("VirtualMachineBackupCompletedSuccessfully")
        .await;
    assert_eq!(events, 1);
    assert_eq!(cluster.vmis().get("a").await.unwrap().uid(), uid);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn deleted_backup_is_cancelled_first() {
    let cluster = with_guest().await;
    abort(&cluster).await;
    let events = cluster.events_of("VirtualMachineBackupAborting").await;
    assert_eq!(events, 1);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn failed_copy_has_its_message_and_leaves_nothing() {
    let cluster = with_guest().await;
    create(&cluster, of_vm()).await;
    begin(&cluster).await;
    let failed = json!({"completed": true, "failed": true, "backupMsg": "no space"});
    write(&cluster, failed).await;
    detach(&cluster).await;
    let failed = wait_for(&cluster, "Failed", "Failed").await;
    let message = failed["message"].as_str().unwrap();
    assert!(message.starts_with("no space. "), "{message}");
    assert_eq!(cluster.events_of("VirtualMachineBackupFailed").await, 1);
    is_clean(&cluster).await;
    cluster.end().await;
}

/// Whether the copy was whole is unknown.
#[tokio::test(start_paused = true)]
async fn backup_of_a_guest_that_ends_has_failed() {
    let cluster = with_guest().await;
    create(&cluster, of_vm()).await;
    begin(&cluster).await;
    wait_for(&cluster, "Progressing", "Initiated").await;
    cluster
        .patch_vm("a", json!({"spec": {"runStrategy": "Halted"}}))
        .await;
    wait_for(&cluster, "Failed", "SourceLost").await;
    cluster.end().await;
}

fn of_tracker() -> Value {
    let source = json!({
        "apiGroup": "backup.kubevirt.io", "kind": "VirtualMachineBackupTracker", "name": "t",
    });
    json!({"source": source, "pvcName": CLAIM})
}

fn trackers(cluster: &TestCluster) -> Api<VirtualMachineBackupTracker> {
    Api::namespaced(cluster.client.clone(), NAMESPACE)
}

async fn create_tracker(cluster: &TestCluster) {
    let tracker: VirtualMachineBackupTracker = serde_json::from_value(json!({
        "metadata": {"name": "t", "namespace": NAMESPACE},
        "spec": {"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "a"}},
    }))
    .unwrap();
    let parameters = PostParams::default();
    let created = trackers(cluster).create(&parameters, &tracker).await;
    created.unwrap();
}

#[tokio::test(start_paused = true)]
async fn tracker_without_a_checkpoint_gets_a_full_backup() {
    let cluster = with_guest().await;
    create(&cluster, of_tracker()).await;
    let waits = wait_for(&cluster, "Progressing", "Initializing").await;
    assert_eq!(
        waits["message"],
        "there is no VirtualMachineBackupTracker t"
    );
    create_tracker(&cluster).await;
    begin(&cluster).await;
    wait_for(&cluster, "Progressing", "Initiated").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn deletion_of_the_tracker_leaves_nothing_in_the_guest() {
    let cluster = with_guest().await;
    create_tracker(&cluster).await;
    create(&cluster, of_tracker()).await;
    begin(&cluster).await;
    wait_for(&cluster, "Progressing", "Initiated").await;
    let parameters = DeleteParams::default();
    trackers(&cluster).delete("t", &parameters).await.unwrap();
    let done = json!({"completed": true, "volumes": [{"volumeName": "root"}]});
    write(&cluster, done).await;
    detach(&cluster).await;
    wait_for(&cluster, "Complete", "Completed").await;
    is_clean(&cluster).await;
    cluster.end().await;
}

async fn latest(cluster: &TestCluster) -> Value {
    let tracker = trackers(cluster).get("t").await.unwrap();
    json!(tracker.status)["latestCheckpoint"].clone()
}

/// Makes a backup of the tracker; returns the checkpoint that is requested of virt-handler, and the backup's
/// status. `reported` is the checkpoint of the report, of the directory and of the request.
async fn back_up_tracked(
    cluster: &TestCluster,
    spec: Value,
    reported: fn(&str, &Value) -> Value,
) -> (Value, Value) {
    create(cluster, spec).await;
    begin(cluster).await;
    let request = report(cluster).await;
    let start: Time = serde_json::from_value(request["startTimestamp"].clone()).unwrap();
    let own = model::backup_directory("nightly", &start);
    assert_eq!(request["checkpointName"], Value::Null, "it is the result");
    let requested = requested(cluster).await;
    let done = json!({
        "completed": true, "backupMsg": "directory d", "volumes": [{"volumeName": "root"}],
        "checkpointName": reported(&own, &requested),
    });
    write(cluster, done).await;
    detach(cluster).await;
    wait_for(cluster, "Complete", "Completed").await;
    is_clean(cluster).await;
    let backup = backups(cluster).get("nightly").await.unwrap();
    let parameters = DeleteParams::default();
    backups(cluster)
        .delete("nightly", &parameters)
        .await
        .unwrap();
    // The next backup of this name is another directory.
    tokio::time::advance(Duration::from_secs(1)).await;
    (requested, json!(backup.status))
}

/// A full backup, an increment, and one that becomes a full one.
async fn back_up_three_times(cluster: &TestCluster) {
    create_tracker(cluster).await;
    let as_requested: fn(&str, &Value) -> Value = |_, requested| requested.clone();
    let (first, status) = back_up_tracked(cluster, of_tracker(), as_requested).await;
    assert_eq!(
        (&status["type"], &status["checkpointName"]),
        (&json!("Full"), &first)
    );
    let checkpoint = latest(cluster).await;
    assert_eq!(checkpoint["name"], first);
    assert_eq!(checkpoint["volumes"], json!([{"volumeName": "root"}]));
    let (second, status) = back_up_tracked(cluster, of_tracker(), as_requested).await;
    assert_eq!(second, first, "the checkpoint to build on");
    assert_eq!(status["type"], "Incremental");
    let checkpoint = latest(cluster).await["name"].clone();
    assert!(checkpoint != first && checkpoint == status["checkpointName"]);
    let fell_back: fn(&str, &Value) -> Value = |own, _| json!(own);
    let (third, status) = back_up_tracked(cluster, of_tracker(), fell_back).await;
    assert_eq!(third, checkpoint);
    assert_eq!(status["type"], "Full");
    assert_eq!(latest(cluster).await["name"], status["checkpointName"]);
}

#[tokio::test(start_paused = true)]
async fn backups_of_a_tracker_build_on_its_last_checkpoint() {
    let cluster = with_guest().await;
    back_up_three_times(&cluster).await;
    let mut forced = of_tracker();
    forced["forceFullBackup"] = json!(true);
    let before = latest(&cluster).await["name"].clone();
    let (requested, _) = back_up_tracked(&cluster, forced, |_, request| request.clone()).await;
    assert!(requested.is_string() && requested != before, "{requested}");
    // Without a checkpoint, the tracker keeps its last one.
    let before = latest(&cluster).await["name"].clone();
    back_up_tracked(&cluster, of_tracker(), |_, _| Value::Null).await;
    assert_eq!(latest(&cluster).await["name"], before);
    // A backup of the VM leaves none.
    let (requested, _) = back_up_tracked(&cluster, of_vm(), |_, _| Value::Null).await;
    assert_eq!(requested, Value::Null);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn checkpoints_of_other_trackers_are_kept() {
    let cluster = with_guest().await;
    create_tracker(&cluster).await;
    for (name, vm) in [("other", "a"), ("foreign", "b")] {
        let tracker: VirtualMachineBackupTracker = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": vm}},
        }))
        .unwrap();
        let api = trackers(&cluster);
        api.create(&PostParams::default(), &tracker).await.unwrap();
        let status =
            json!({"status": {"latestCheckpoint": {"name": format!("{name}-checkpoint")}}});
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(status));
        api.patch_status(name, &parameters, &patch).await.unwrap();
    }
    create(&cluster, of_tracker()).await;
    begin(&cluster).await;
    let vmi = cluster.vmis().get("a").await.unwrap();
    let kept = vmi.annotations().get("ferrovirt.io/kept-checkpoints");
    assert_eq!(kept.map(String::as_str), Some("other-checkpoint"));
    cluster.end().await;
}

fn exports(cluster: &TestCluster) -> Api<VirtualMachineExport> {
    Api::namespaced(cluster.client.clone(), NAMESPACE)
}

/// Has the guest offer its disks.
async fn begin_offer(cluster: &TestCluster) {
    let token = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "token", "namespace": NAMESPACE}, "stringData": {"token": "secret"},
    });
    cluster.create(token).await;
    let mut spec = of_vm();
    spec["mode"] = json!("Pull");
    spec["tokenSecretRef"] = json!("token");
    spec["ttlDuration"] = json!("15m");
    create(cluster, spec).await;
    begin(cluster).await;
    let vmi = cluster.vmis().get("a").await.unwrap();
    let mode = vmi.annotations().get("ferrovirt.io/backup-mode");
    assert_eq!(mode.map(String::as_str), Some("Pull"));
    let offered = json!({"quiesceStatus": "Succeeded", "volumes": [{"volumeName": "root"}]});
    write(cluster, offered).await;
}

/// Offers the disks, until the time of the backup is over.
async fn offer(cluster: &TestCluster) {
    begin_offer(cluster).await;
    wait_for(cluster, "Progressing", "ExportReady").await;
    let status = json!(backups(cluster).get("nightly").await.unwrap().status);
    let volume = &status["includedVolumes"][0];
    let url = volume["mapEndpoint"].as_str().unwrap_or_default();
    assert!(url.ends_with("/exports/root/map"), "{status}");
    assert!(status["endpointCert"].is_string(), "{status}");
    let pod = cluster.pods().get("virt-export-nightly").await.unwrap();
    let pod = json!(pod);
    let arguments = json!(pod["spec"]["containers"][0]["args"]);
    assert!(
        arguments.to_string().contains("--backup-volume"),
        "{arguments}"
    );

    cluster.advance(Duration::from_mins(15)).await;
    wait_for_phase(cluster, VOLUME, "Detaching").await;
    let ended = json!({"completed": true, "backupMsg": "the disks are not offered any more"});
    write(cluster, ended).await;
    report_with(cluster, VOLUME, json!({"phase": "UnMountedFromPod"})).await;
    wait_for_attachments(cluster, &[]).await;
    wait_for(cluster, "Complete", "Completed").await;
    let status = json!(backups(cluster).get("nightly").await.unwrap().status);
    assert_eq!(status["endpointCert"], Value::Null);
    cluster
        .wait_until("the export is gone", async || {
            let found = exports(cluster).get_opt("nightly").await;
            found.unwrap().is_none()
        })
        .await;
    is_clean(cluster).await;
}

#[tokio::test(start_paused = true)]
async fn disks_are_offered_until_the_time_of_the_backup_is_over() {
    let cluster = with_guest().await;
    offer(&cluster).await;
    cluster.end().await;
}

/// The backup does as its message says when the other export is deleted, and does not wait for the end of its time.
#[tokio::test(start_paused = true)]
async fn offer_goes_on_when_an_export_of_its_name_is_deleted() {
    let cluster = with_guest().await;
    let foreign = json!({
        "apiVersion": "export.kubevirt.io/v1", "kind": "VirtualMachineExport",
        "metadata": {"name": "nightly", "namespace": NAMESPACE},
        "spec": {"source": {"apiGroup": "", "kind": "PersistentVolumeClaim", "name": "none"}},
    });
    cluster.create(foreign).await;
    begin_offer(&cluster).await;
    let waits = wait_for(&cluster, "Progressing", "PreparingExport").await;
    let message = waits["message"].as_str().unwrap_or_default();
    assert!(message.contains("delete it"), "{waits}");
    let parameters = DeleteParams::default();
    let deleted = exports(&cluster).delete("nightly", &parameters).await;
    deleted.unwrap();
    wait_for(&cluster, "Progressing", "ExportReady").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn backups_survive_a_crash_of_the_controllers_at_every_failpoint() {
    let names = ::failpoints::NAMES.lines();
    for name in names.filter(|name| name.starts_with("virt-controller/backup/")) {
        let mut cluster = with_guest().await;
        cluster.crash_after(name);
        if name.ends_with("/track") {
            back_up_three_times(&cluster).await;
        } else if name.ends_with("/offer") || name.ends_with("/withdraw") {
            offer(&cluster).await;
        } else {
            back_up(&cluster).await;
        }
        assert!(
            !cluster.is_crash_pending(),
            "failpoint {name} was not reached"
        );
        cluster.end().await;
        if name.ends_with("/detach") || name.ends_with("/forget") {
            let mut cluster = with_guest().await;
            cluster.crash_after(name);
            abort(&cluster).await;
            assert!(!cluster.is_crash_pending(), "{name} was not reached");
            cluster.end().await;
        }
    }
}
