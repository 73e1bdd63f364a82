//! Data sources, and data volumes that name them.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::cluster::{NAMESPACE, TestCluster};

pub(super) fn data_source(name: &str, source: &Value) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"source": source},
    })
}

fn copy_of(name: &str, source: &Value) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"sourceRef": source, "storage": {}},
    })
}

async fn create<K>(api: Api<K>, body: Value)
where
    K: Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let object = serde_json::from_value(body).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Status, reason and message of the condition `Ready`.
async fn ready(cluster: &TestCluster, namespace: &str, name: &str) -> (String, String, String) {
    let found = cluster.importers("DataSource", namespace).get(name).await;
    let condition = found.unwrap().data["status"]["conditions"][0].clone();
    let text = |member: &str| condition[member].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

async fn wait_for_reason(cluster: &TestCluster, name: &str, reason: &str) {
    cluster
        .wait_until(&format!("data source {name} is {reason}"), async || {
            ready(cluster, NAMESPACE, name).await.1 == reason
        })
        .await;
}

async fn bind(cluster: &TestCluster, name: &str) {
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

async fn set_data_volume_phase(cluster: &TestCluster, name: &str, phase: &str) {
    let status = json!({"status": {"phase": phase}});
    cluster
        .data_volumes()
        .patch_status(
            name,
            &kube::api::PatchParams::default(),
            &kube::api::Patch::Merge(status),
        )
        .await
        .unwrap();
}

/// The reason of the condition `Running` of a data volume.
async fn running(cluster: &TestCluster, name: &str) -> String {
    let found = cluster.data_volumes().get(name).await.unwrap();
    let all = found.data["status"]["conditions"].as_array().cloned();
    let mut all = all.unwrap_or_default().into_iter();
    let running = all.find(|one| one["type"] == "Running").unwrap_or_default();
    running["reason"].as_str().unwrap_or_default().to_owned()
}

/// Finishes the pod that copies.
async fn copy(cluster: &TestCluster, name: &str) {
    bind(cluster, name).await;
    let uid = cluster.data_volumes().get(name).await.unwrap().uid();
    let pod = format!("importer-{}", uid.unwrap());
    cluster
        .wait_until("there is a pod", async || {
            cluster.pods().get_opt(&pod).await.unwrap().is_some()
        })
        .await;
    let ended = json!({"phase": "Succeeded"});
    cluster.set_status::<Pod>(&pod, ended).await;
    cluster
        .wait_until("it is copied", async || {
            let found = cluster.data_volumes().get(name).await.unwrap();
            found.data["status"]["phase"] == "Succeeded"
        })
        .await;
}

/// Makes a data source ready, for tests that crash the controller meanwhile.
pub(super) async fn prepared(cluster: &TestCluster) {
    cluster.create_claim("image").await;
    let source = data_source(
        "golden",
        &json!({"pvc": {"name": "image", "namespace": ""}}),
    );
    cluster.create(source).await;
    wait_for_reason(cluster, "golden", "Ready").await;
}

#[tokio::test(start_paused = true)]
async fn data_source_follows_the_data_behind_it() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    cluster.install_snapshotter().await;
    cluster.create(data_source("empty", &json!({}))).await;
    let image = json!({"pvc": {"namespace": NAMESPACE, "name": "image"}});
    cluster.create(data_source("golden", &image)).await;
    let golden = json!({"dataSource": {"namespace": NAMESPACE, "name": "golden"}});
    cluster.create(data_source("latest", &golden)).await;
    let latest = json!({"dataSource": {"namespace": NAMESPACE, "name": "latest"}});
    cluster.create(data_source("deep", &latest)).await;
    let snapshot = json!({"snapshot": {"namespace": NAMESPACE, "name": "yesterday"}});
    cluster.create(data_source("old", &snapshot)).await;
    wait_for_reason(&cluster, "empty", "NoSource").await;
    wait_for_reason(&cluster, "deep", "MaxReferenceDepthReached").await;
    for name in ["golden", "latest", "old"] {
        wait_for_reason(&cluster, name, "NotFound").await;
    }

    let image = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {"name": "image", "namespace": NAMESPACE},
        "spec": {"source": {"upload": {}},
                 "storage": {"resources": {"requests": {"storage": "1Gi"}}}},
    });
    cluster.create(image).await;
    bind(&cluster, "image").await;
    for name in ["golden", "latest"] {
        wait_for_reason(&cluster, name, "UploadScheduled").await;
    }
    set_data_volume_phase(&cluster, "image", "Succeeded").await;
    let uploaded = json!({"metadata": {"annotations": {
        "cdi.kubevirt.io/storage.pod.phase": "Succeeded"}}});
    cluster
        .claims()
        .patch(
            "image",
            &kube::api::PatchParams::default(),
            &kube::api::Patch::Merge(uploaded),
        )
        .await
        .unwrap();
    let copied = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": "yesterday", "namespace": NAMESPACE},
        "spec": {"source": {"persistentVolumeClaimName": "image"}},
    });
    cluster.create(copied).await;
    for name in ["golden", "latest", "old"] {
        wait_for_reason(&cluster, name, "Ready").await;
        let (status, _, message) = ready(&cluster, NAMESPACE, name).await;
        assert_eq!(status, "True");
        assert_eq!(message, "DataSource is ready to be consumed");
    }
    let found = cluster
        .importers("DataSource", NAMESPACE)
        .get("latest")
        .await;
    let claim = json!({"pvc": {"namespace": NAMESPACE, "name": "image"}});
    assert_eq!(found.unwrap().data["status"]["source"], claim);
    let writes = cluster.all_writes();
    cluster.advance(Duration::from_mins(1)).await;
    assert_eq!(cluster.all_writes(), writes, "writes without a change");

    let now = DeleteParams::default();
    cluster.data_volumes().delete("image", &now).await.unwrap();
    wait_for_reason(&cluster, "golden", "NotFound").await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn data_volume_is_a_copy_of_its_data_source() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    let reference = json!({"kind": "DataSource", "name": "golden"});
    cluster.create(copy_of("disk", &reference)).await;
    cluster
        .wait_until("it waits", async || {
            running(&cluster, "disk").await == "DataSourceNotReady"
        })
        .await;
    let old = json!({"pvc": {"namespace": NAMESPACE, "name": "old"}});
    cluster.create(data_source("golden", &old)).await;
    cluster
        .wait_until("it waits for the claim", async || {
            running(&cluster, "disk").await == "SourcePVCNotAvailabe"
        })
        .await;
    cluster.create_claim("old").await;
    bind(&cluster, "old").await;
    bind(&cluster, "disk").await;
    // The data source changes: the claim is filled with what it was created for.
    let new = json!({"spec": {"source": {"pvc": {"namespace": NAMESPACE, "name": "new"}}}});
    cluster
        .importers("DataSource", NAMESPACE)
        .patch(
            "golden",
            &kube::api::PatchParams::default(),
            &kube::api::Patch::Merge(new),
        )
        .await
        .unwrap();
    wait_for_reason(&cluster, "golden", "NotFound").await;
    copy(&cluster, "disk").await;
    let all = cluster.pods().list(&ListParams::default()).await.unwrap();
    for pod in all {
        let volumes = json!(pod.spec.unwrap().volumes);
        assert!(!volumes.to_string().contains("\"new\""), "{volumes}");
    }
    let claim = cluster.claims().get("disk").await.unwrap();
    assert_eq!(claim.annotations()["ferrovirt.io/copied-from"], "pvc/old");
    cluster.end().await;
}

async fn allow_copies(client: Client) {
    let role = json!({"metadata": {"name": "copy"}, "rules": [{
        "apiGroups": ["cdi.kubevirt.io"], "resources": ["datavolumes/source"],
        "verbs": ["create"]}]});
    create(Api::<Role>::namespaced(client.clone(), "images"), role).await;
    let binding = json!({
        "metadata": {"name": "copy"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "copy"},
        "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "default"}],
    });
    create(Api::<RoleBinding>::namespaced(client, "images"), binding).await;
}

/// As for the class of CVE-2025-14459: neither whether data exists in another namespace is told, nor is it copied.
#[tokio::test(start_paused = true)]
async fn reference_to_another_namespace_needs_a_permission() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    let namespaces = Api::<Namespace>::all(cluster.client.clone());
    create(namespaces, json!({"metadata": {"name": "images"}})).await;
    let there = json!({"pvc": {"namespace": "images", "name": "fedora"}});
    let ours = json!({"pvc": {"namespace": NAMESPACE, "name": "ours"}});
    for (name, source) in [("fedora", &there), ("ours", &ours)] {
        let mut of_images = data_source(name, source);
        of_images["metadata"]["namespace"] = json!("images");
        cluster.create(of_images).await;
    }
    cluster.create(data_source("spy", &there)).await;
    for (name, source) in [("theirs", "fedora"), ("ours-copy", "ours")] {
        let reference = json!({"kind": "DataSource", "namespace": "images", "name": source});
        cluster.create(copy_of(name, &reference)).await;
        cluster
            .wait_until("it waits for a permission", async || {
                running(&cluster, name).await == "SourceNotPermitted"
            })
            .await;
    }
    wait_for_reason(&cluster, "spy", "SourceNotPermitted").await;

    allow_copies(cluster.client.clone()).await;
    wait_for_reason(&cluster, "spy", "NotFound").await;
    cluster
        .wait_until(
            "it waits for the claim of the other namespace",
            async || running(&cluster, "theirs").await == "SourcePVCNotAvailabe",
        )
        .await;
    cluster
        .wait_until("it waits for the claim", async || {
            running(&cluster, "ours-copy").await == "SourcePVCNotAvailabe"
        })
        .await;
    cluster.create_claim("ours").await;
    bind(&cluster, "ours").await;
    copy(&cluster, "ours-copy").await;
    cluster.end().await;
}
