//! Claims that clients upload a disk into; the tests act as the node that runs the pod.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use super::cluster::TestCluster;

const PHASE: &str = "cdi.kubevirt.io/storage.pod.phase";
const READY: &str = "cdi.kubevirt.io/storage.pod.ready";

fn data_volume() -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": {"name": "disk"},
        "spec": {
            "source": {"upload": {}},
            "storage": {"resources": {"requests": {"storage": "1Gi"}}},
        },
    })
}

async fn create_data_volume(cluster: &TestCluster) {
    let volume = serde_json::from_value(data_volume()).unwrap();
    let made = cluster.data_volumes();
    made.create(&PostParams::default(), &volume).await.unwrap();
}

/// As `image-upload pvc` does.
async fn create_claim(cluster: &TestCluster, content: &str) {
    let claim = json!({
        "metadata": {"name": "disk", "annotations": {
            "cdi.kubevirt.io/storage.upload.target": "",
            "cdi.kubevirt.io/storage.contentType": content,
        }},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let claim = serde_json::from_value(claim).unwrap();
    let made = cluster.claims();
    made.create(&PostParams::default(), &claim).await.unwrap();
}

async fn annotation(cluster: &TestCluster, name: &str) -> String {
    let claim = cluster.claims().get("disk").await.unwrap();
    claim.annotations().get(name).cloned().unwrap_or_default()
}

async fn wait_for_annotation(cluster: &TestCluster, name: &str, value: &str) {
    cluster
        .wait_until(&format!("{name} is {value}"), async || {
            annotation(cluster, name).await == value
        })
        .await;
}

async fn wait_for_phase(cluster: &TestCluster, phase: &str) {
    cluster
        .wait_until(&format!("the data volume is {phase}"), async || {
            let found = cluster.data_volumes().get("disk").await.unwrap();
            found.data["status"]["phase"] == phase
        })
        .await;
}

async fn bind_claim(cluster: &TestCluster) {
    cluster
        .wait_until("there is a claim", async || {
            cluster.claims().get_opt("disk").await.unwrap().is_some()
        })
        .await;
    let status = json!({"phase": "Bound", "capacity": {"storage": "2Gi"}});
    cluster
        .set_status::<PersistentVolumeClaim>("disk", status)
        .await;
}

/// The name of the pod that receives the upload.
async fn receiver(cluster: &TestCluster) -> String {
    let uid = cluster.claims().get("disk").await.unwrap().uid();
    let pod = format!("upload-{}", uid.unwrap());
    cluster
        .wait_until("there is a pod", async || {
            cluster.pods().get_opt(&pod).await.unwrap().is_some()
        })
        .await;
    pod
}

async fn set_pod(cluster: &TestCluster, pod: &str, phase: &str, state: &Value) {
    let container = json!({"name": "importer", "ready": false, "image": "launcher:1", "imageID": "",
                           "restartCount": 0, "state": state});
    let status = json!({"phase": phase, "containerStatuses": [container]});
    cluster.set_status::<Pod>(pod, status).await;
}

async fn start(cluster: &TestCluster, pod: &str) {
    let now = json!({"running": {"startedAt": "2026-11-21T12:00:00Z"}});
    set_pod(cluster, pod, "Running", &now).await;
    wait_for_annotation(cluster, READY, "true").await;
}

/// The pod ends, and is deleted after its success is on the claim.
async fn succeed(cluster: &TestCluster, pod: &str) {
    let end = json!({"terminated": {"exitCode": 0, "finishedAt": "2026-11-21T12:00:00Z"}});
    set_pod(cluster, pod, "Succeeded", &end).await;
    wait_for_annotation(cluster, PHASE, "Succeeded").await;
    assert_eq!(annotation(cluster, READY).await, "false");
    wait_for_no_pod(cluster).await;
}

async fn wait_for_no_pod(cluster: &TestCluster) {
    cluster
        .wait_until("no pod is left", async || {
            let pods = cluster.pods().list(&ListParams::default()).await.unwrap();
            pods.items.is_empty()
        })
        .await;
}

/// Uploads into a data volume, for tests that crash the controller meanwhile.
pub(super) async fn uploaded(cluster: &TestCluster) {
    create_data_volume(cluster).await;
    bind_claim(cluster).await;
    let pod = receiver(cluster).await;
    start(cluster, &pod).await;
    wait_for_phase(cluster, "UploadReady").await;
    succeed(cluster, &pod).await;
    wait_for_phase(cluster, "Succeeded").await;
    let now = DeleteParams::default();
    cluster.data_volumes().delete("disk", &now).await.unwrap();
    cluster
        .wait_until("the claim is gone", async || {
            cluster.claims().get_opt("disk").await.unwrap().is_none()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn data_volume_is_ready_for_an_upload_and_then_populated() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    create_data_volume(&cluster).await;
    bind_claim(&cluster).await;
    wait_for_phase(&cluster, "UploadScheduled").await;
    let pod = receiver(&cluster).await;
    start(&cluster, &pod).await;
    wait_for_phase(&cluster, "UploadReady").await;
    // A container that restarts cannot receive anything, and nothing is taken for complete.
    let end = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
    set_pod(&cluster, &pod, "Running", &end).await;
    wait_for_annotation(&cluster, READY, "false").await;
    wait_for_phase(&cluster, "UploadScheduled").await;
    start(&cluster, &pod).await;
    wait_for_phase(&cluster, "UploadReady").await;
    succeed(&cluster, &pod).await;
    wait_for_phase(&cluster, "Succeeded").await;
    wait_for_annotation(&cluster, "cdi.kubevirt.io/storage.populatedFor", "disk").await;
    for reason in ["UploadScheduled", "UploadSucceeded", "ImportSucceeded"] {
        assert!(cluster.events_of(reason).await > 0, "{reason}");
    }
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn claim_without_a_data_volume_receives_an_upload() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    create_claim(&cluster, "kubevirt").await;
    bind_claim(&cluster).await;
    let pod = receiver(&cluster).await;
    start(&cluster, &pod).await;
    succeed(&cluster, &pod).await;
    let writes = cluster.all_writes();
    cluster.advance(std::time::Duration::from_mins(30)).await;
    assert_eq!(cluster.all_writes(), writes, "writes without a change");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn pod_of_a_deleted_claim_is_deleted() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    create_claim(&cluster, "kubevirt").await;
    bind_claim(&cluster).await;
    let pod = receiver(&cluster).await;
    start(&cluster, &pod).await;
    let now = DeleteParams::default();
    cluster.claims().delete("disk", &now).await.unwrap();
    wait_for_no_pod(&cluster).await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn archive_is_refused_with_a_reason() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    create_claim(&cluster, "archive").await;
    bind_claim(&cluster).await;
    let reason = "cdi.kubevirt.io/storage.condition.running.reason";
    wait_for_annotation(&cluster, reason, "ImportNotSupported").await;
    assert_eq!(cluster.events_of("ImportNotSupported").await, 1);
    let pods = cluster.pods().list(&ListParams::default()).await.unwrap();
    assert!(pods.items.is_empty());
    cluster.end().await;
}
