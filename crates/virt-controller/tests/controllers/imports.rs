//! Data volumes that this controller populates; the tests act as the node that runs the importer.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::cluster::TestCluster;

fn data_volume(name: &str) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": {"name": name},
        "spec": {
            "source": {"http": {"url": "http://example.com/disk.qcow2"}},
            "storage": {"resources": {"requests": {"storage": "1Gi"}}},
        },
    })
}

async fn create(cluster: &TestCluster, volume: Value) {
    let volume = serde_json::from_value(volume).unwrap();
    let made = cluster.data_volumes();
    made.create(&PostParams::default(), &volume).await.unwrap();
}

async fn status(cluster: &TestCluster, name: &str) -> Value {
    let found = cluster.data_volumes().get(name).await.unwrap();
    found.data["status"].clone()
}

async fn wait_for_phase(cluster: &TestCluster, name: &str, phase: &str) {
    cluster
        .wait_until(&format!("{name} is {phase}"), async || {
            status(cluster, name).await["phase"] == phase
        })
        .await;
}

/// Status and reason of a condition.
fn condition(status: &Value, kind: &str) -> (String, String) {
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|one| one["type"] == kind);
    let found = found.unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&found["status"]), text(&found["reason"]))
}

async fn bind_claim(cluster: &TestCluster, name: &str) {
    cluster
        .wait_until("there is a claim", async || {
            cluster.claims().get_opt(name).await.unwrap().is_some()
        })
        .await;
    let status = json!({"phase": "Bound", "capacity": {"storage": "2Gi"}});
    cluster
        .set_status::<PersistentVolumeClaim>(name, status)
        .await;
}

/// The name of the importer's pod of a data volume.
async fn importer(cluster: &TestCluster, name: &str) -> String {
    let uid = cluster.data_volumes().get(name).await.unwrap().uid();
    let pod = format!("importer-{}", uid.unwrap());
    cluster
        .wait_until("there is an importer", async || {
            cluster.pods().get_opt(&pod).await.unwrap().is_some()
        })
        .await;
    pod
}

fn container(state: &Value) -> Value {
    json!({"name": "importer", "ready": false, "image": "launcher:1", "imageID": "",
           "restartCount": 0, "state": state})
}

async fn set_pod(cluster: &TestCluster, pod: &str, phase: &str, state: &Value) {
    let status = json!({"phase": phase, "containerStatuses": [container(state)]});
    cluster.set_status::<Pod>(pod, status).await;
}

async fn succeed(cluster: &TestCluster, pod: &str) {
    let end = json!({"terminated": {"exitCode": 0, "finishedAt": "2026-11-21T12:00:00Z"}});
    set_pod(cluster, pod, "Succeeded", &end).await;
}

async fn import(cluster: &TestCluster, name: &str) {
    bind_claim(cluster, name).await;
    let pod = importer(cluster, name).await;
    succeed(cluster, &pod).await;
    wait_for_phase(cluster, name, "Succeeded").await;
    cluster
        .wait_until("the importer is gone", async || {
            cluster.pods().get_opt(&pod).await.unwrap().is_none()
        })
        .await;
}

async fn delete(cluster: &TestCluster, name: &str) {
    let now = DeleteParams::default();
    cluster.data_volumes().delete(name, &now).await.unwrap();
    cluster
        .wait_until("claim and pods are gone", async || {
            let pods = cluster.pods().list(&ListParams::default()).await.unwrap();
            let claim = cluster.claims().get_opt(name).await.unwrap();
            claim.is_none() && pods.items.is_empty()
        })
        .await;
}

/// Imports a disk, for tests that crash the controller meanwhile.
pub(super) async fn imported(cluster: &TestCluster) {
    create(cluster, data_volume("disk")).await;
    import(cluster, "disk").await;
    delete(cluster, "disk").await;
}

/// Adopts a claim that exists already, for the same tests.
pub(super) async fn adopted(cluster: &TestCluster) {
    let claim = json!({
        "metadata": {"name": "disk"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let claim = serde_json::from_value(claim).unwrap();
    let made = cluster.claims();
    made.create(&PostParams::default(), &claim).await.unwrap();
    let mut volume = data_volume("disk");
    volume["metadata"]["annotations"] = json!({"cdi.kubevirt.io/allowClaimAdoption": "true"});
    create(cluster, volume).await;
    wait_for_phase(cluster, "disk", "Succeeded").await;
    delete(cluster, "disk").await;
}

#[tokio::test(start_paused = true)]
async fn data_volume_becomes_a_populated_claim() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    create(&cluster, data_volume("disk")).await;
    bind_claim(&cluster, "disk").await;
    let claim = cluster.claims().get("disk").await.unwrap();
    let owner = &claim.owner_references()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.controller),
        ("DataVolume", Some(true))
    );
    let pod = importer(&cluster, "disk").await;
    wait_for_phase(&cluster, "disk", "ImportScheduled").await;
    let now = json!({"running": {"startedAt": "2026-11-21T12:00:00Z"}});
    set_pod(&cluster, &pod, "Running", &now).await;
    wait_for_phase(&cluster, "disk", "ImportInProgress").await;
    let seen = status(&cluster, "disk").await;
    assert_eq!(condition(&seen, "Running").0, "True");
    assert_eq!(condition(&seen, "Bound").0, "True");
    assert_eq!(condition(&seen, "Ready").0, "False");
    assert_eq!(seen["progress"], "N/A");

    succeed(&cluster, &pod).await;
    wait_for_phase(&cluster, "disk", "Succeeded").await;
    let seen = status(&cluster, "disk").await;
    assert_eq!(seen["progress"], "100.0%");
    assert_eq!(condition(&seen, "Ready").0, "True");
    assert_eq!(
        condition(&seen, "Running"),
        ("False".to_owned(), "Completed".to_owned())
    );
    let claim = cluster.claims().get("disk").await.unwrap();
    assert_eq!(
        claim.annotations()["cdi.kubevirt.io/storage.populatedFor"],
        "disk"
    );
    cluster
        .wait_until("the importer is gone", async || {
            cluster.pods().get_opt(&pod).await.unwrap().is_none()
        })
        .await;
    for reason in ["ImportScheduled", "ImportInProgress", "ImportSucceeded"] {
        assert_eq!(cluster.events_of(reason).await, 1, "{reason}");
    }
    let writes = cluster.all_writes();
    cluster.advance(Duration::from_mins(30)).await;
    assert_eq!(cluster.all_writes(), writes, "writes without a change");
    delete(&cluster, "disk").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn failure_has_a_reason_and_a_remedy() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    create(&cluster, data_volume("disk")).await;
    bind_claim(&cluster, "disk").await;
    let pod = importer(&cluster, "disk").await;
    let end = |reason: &str, transient: bool| {
        let report = import_report::Report::failure(reason, "why".to_owned(), transient);
        json!({"terminated": {"exitCode": 1, "message": report.text()}})
    };
    set_pod(
        &cluster,
        &pod,
        "Running",
        &end("ImportSourceNotFound", true),
    )
    .await;
    wait_for_phase(&cluster, "disk", "ImportInProgress").await;
    let seen = status(&cluster, "disk").await;
    assert_eq!(condition(&seen, "Running").1, "ImportSourceNotFound");
    let text = seen["conditions"].to_string();
    assert!(text.contains("why. Correct the address"), "{text}");
    assert_eq!(cluster.events_of("ImportSourceNotFound").await, 1);

    set_pod(
        &cluster,
        &pod,
        "Running",
        &end("ImportChecksumMismatch", false),
    )
    .await;
    wait_for_phase(&cluster, "disk", "Failed").await;
    let seen = status(&cluster, "disk").await;
    assert_eq!(condition(&seen, "Ready").1, "ImportChecksumMismatch");
    cluster
        .wait_until("the importer is gone", async || {
            cluster.pods().get_opt(&pod).await.unwrap().is_none()
        })
        .await;
    cluster.advance(Duration::from_mins(30)).await;
    assert!(cluster.pods().get_opt(&pod).await.unwrap().is_none());
    let claim = cluster.claims().get("disk").await.unwrap();
    assert!(
        !claim
            .annotations()
            .contains_key("cdi.kubevirt.io/storage.populatedFor")
    );
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn lost_importer_is_replaced() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    create(&cluster, data_volume("disk")).await;
    bind_claim(&cluster, "disk").await;
    let pod = importer(&cluster, "disk").await;
    let first = cluster.pods().get(&pod).await.unwrap().uid();
    let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "no space left"});
    cluster.set_status::<Pod>(&pod, evicted).await;
    cluster
        .wait_until("there is another importer", async || {
            let found = cluster.pods().get_opt(&pod).await.unwrap();
            found.is_some_and(|found| found.uid() != first)
        })
        .await;
    import(&cluster, "disk").await;
    assert_eq!(status(&cluster, "disk").await["restartCount"], 1);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn refused_data_volume_says_why_and_makes_nothing() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    let mut volume = data_volume("disk");
    volume["spec"]["source"] = json!({"vddk": {"url": "https://a"}});
    create(&cluster, volume).await;
    wait_for_phase(&cluster, "disk", "Failed").await;
    let seen = status(&cluster, "disk").await;
    assert_eq!(condition(&seen, "Running").1, "ImportNotSupported");
    assert!(cluster.claims().get_opt("disk").await.unwrap().is_none());
    // The definition itself refuses what cannot be meant.
    let mut volume = data_volume("other");
    volume["spec"]["pvc"] = volume["spec"]["storage"].clone();
    let volume = serde_json::from_value(volume).unwrap();
    let refused = cluster.data_volumes();
    let refused = refused.create(&PostParams::default(), &volume).await;
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("give exactly one of pvc and storage"),
        "{text}"
    );
    let change = json!({"spec": {"source": {"vddk": {"url": "https://b"}}}});
    let changed = cluster.data_volumes();
    let changed = changed
        .patch("disk", &PatchParams::default(), &Patch::Merge(change))
        .await;
    let text = changed.unwrap_err().to_string();
    assert!(text.contains("cannot be changed"), "{text}");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn copy_waits_until_its_source_is_free() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    let mut copy = data_volume("copy");
    copy["spec"] =
        json!({"source": {"pvc": {"namespace": "default", "name": "disk"}}, "storage": {}});
    create(&cluster, copy).await;
    wait_for_phase(&cluster, "copy", "Pending").await;
    create(&cluster, data_volume("disk")).await;
    import(&cluster, "disk").await;
    cluster.create_vmi_on_claim("user", "disk").await;
    cluster
        .wait_until("the VMI has a pod", async || {
            let pods = cluster.pods().list(&ListParams::default()).await.unwrap();
            !pods.items.is_empty()
        })
        .await;
    bind_claim(&cluster, "copy").await;
    cluster
        .wait_until("the copy waits", async || {
            condition(&status(&cluster, "copy").await, "Running").1 == "CloneSourceInUse"
        })
        .await;
    let now = DeleteParams::default();
    cluster.vmis().delete("user", &now).await.unwrap();
    let pod = importer(&cluster, "copy").await;
    wait_for_phase(&cluster, "copy", "CloneScheduled").await;
    succeed(&cluster, &pod).await;
    wait_for_phase(&cluster, "copy", "Succeeded").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn data_volume_from_a_snapshot_waits_for_it() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    cluster.install_snapshotter().await;
    let mut copy = data_volume("copy");
    copy["spec"] = json!({"source": {"snapshot": {"namespace": "default", "name": "yesterday"}},
                          "storage": {"storageClassName": "local"}});
    create(&cluster, copy).await;
    cluster
        .wait_until("the copy waits", async || {
            let seen = status(&cluster, "copy").await;
            condition(&seen, "Running").1 == "SourceSnapshotNotAvailable"
        })
        .await;
    let snapshot = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": "yesterday", "namespace": "default"},
        "spec": {"source": {"persistentVolumeClaimName": "disk"}},
    });
    cluster.create(snapshot).await;
    import_phases(&cluster, "copy").await;
    let claim = cluster.claims().get("copy").await.unwrap();
    let spec = claim.spec.unwrap();
    let source = spec.data_source.unwrap();
    assert_eq!(
        (source.kind.as_str(), source.name.as_str()),
        ("VolumeSnapshot", "yesterday")
    );
    let requests = spec.resources.unwrap().requests.unwrap();
    assert_eq!(requests["storage"].0, "2Gi");
    cluster.end().await;
}

/// Follows a copy of a snapshot to its end.
async fn import_phases(cluster: &TestCluster, name: &str) {
    bind_claim(cluster, name).await;
    let pod = importer(cluster, name).await;
    wait_for_phase(cluster, name, "CloneScheduled").await;
    let now = json!({"running": {"startedAt": "2026-11-21T12:00:00Z"}});
    set_pod(cluster, &pod, "Running", &now).await;
    wait_for_phase(cluster, name, "CloneFromSnapshotSourceInProgress").await;
    succeed(cluster, &pod).await;
    wait_for_phase(cluster, name, "Succeeded").await;
}

#[tokio::test(start_paused = true)]
async fn vm_runs_from_its_imported_template() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    let source = json!({"source": {"blank": {}}});
    cluster.create_vm_with_template("a", "Always", source).await;
    cluster.wait_for_printable("a", "Provisioning").await;
    import(&cluster, "a-data").await;
    cluster.wait_for_printable("a", "Running").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn data_volumes_of_cdi_are_left_to_cdi() {
    let cluster = TestCluster::new().await;
    cluster.install_importer().await;
    // A leftover of ours decides nothing.
    let definitions = Api::<CustomResourceDefinition>::all(cluster.client.clone());
    let ours = json!({"metadata": {"labels": {"ferrovirt.io/importer": ""}}});
    let (other, parameters) = ("datasources.cdi.kubevirt.io", PatchParams::default());
    let patch = Patch::Merge(ours);
    let patched = definitions.patch(other, &parameters, &patch);
    patched.await.unwrap();
    create(&cluster, data_volume("disk")).await;
    cluster.advance(Duration::from_mins(5)).await;
    assert!(status(&cluster, "disk").await.is_null());
    assert!(cluster.claims().get_opt("disk").await.unwrap().is_none());
    cluster.end().await;
}
