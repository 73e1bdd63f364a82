//! Copies from another namespace. The export controller runs, and the simulated node runs the export server; the tests
//! act as the importer.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kubevirt_api::export::VirtualMachineExport;
use serde_json::{Value, json};

use super::cluster::{NAMESPACE, TestCluster};
use super::data_volumes::wait_for_no_data_volume;

const IMAGES: &str = "images";

fn of_images<K>(cluster: &TestCluster) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(cluster.client.clone(), IMAGES)
}

/// A claim with a disk in another namespace.
pub(super) async fn prepare(cluster: &TestCluster) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": IMAGES}});
    cluster.create(namespace).await;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "fedora", "namespace": IMAGES,
                     "annotations": {"cdi.kubevirt.io/storage.contentType": "kubevirt"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "pv-fedora",
                 "resources": {"requests": {"storage": "2Gi"}}},
    });
    cluster.create(claim).await;
    let status = json!({"status": {"phase": "Bound", "capacity": {"storage": "2Gi"}}});
    let (parameters, status) = (PatchParams::default(), Patch::Merge(status));
    let claims = of_images::<PersistentVolumeClaim>(cluster);
    let patched = claims.patch_status("fedora", &parameters, &status).await;
    patched.unwrap();
}

fn copy(permitted: Option<&str>) -> Value {
    let notes = match permitted {
        Some(permitted) => json!({"ferrovirt.io/copy-permitted": permitted}),
        None => json!({}),
    };
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {"name": "disk", "namespace": NAMESPACE, "annotations": notes},
        "spec": {"source": {"pvc": {"namespace": IMAGES, "name": "fedora"}}, "storage": {}},
    })
}

async fn wait_for_claim(cluster: &TestCluster) {
    cluster
        .wait_until("there is a claim", async || {
            cluster.claims().get_opt("disk").await.unwrap().is_some()
        })
        .await;
}

async fn bind(cluster: &TestCluster) {
    wait_for_claim(cluster).await;
    let status = json!({"phase": "Bound", "capacity": {"storage": "2Gi"}});
    cluster
        .set_status::<PersistentVolumeClaim>("disk", status)
        .await;
}

/// What the controllers have made in the other namespace.
async fn left(cluster: &TestCluster) -> usize {
    let all = ListParams::default();
    let exports = of_images::<VirtualMachineExport>(cluster).list(&all).await;
    let secrets = of_images::<Secret>(cluster).list(&all).await;
    let pods = of_images::<Pod>(cluster).list(&all).await;
    exports.unwrap().items.len() + secrets.unwrap().items.len() + pods.unwrap().items.len()
}

/// Finishes the pod that reads from the export.
async fn finish(cluster: &TestCluster, pod: &str) {
    cluster
        .wait_until("the source is exported, and there is a pod", async || {
            cluster.pods().get_opt(pod).await.unwrap().is_some()
        })
        .await;
    cluster
        .set_status::<Pod>(pod, json!({"phase": "Succeeded"}))
        .await;
    cluster
        .wait_until("it is copied", async || {
            let found = cluster.data_volumes().get("disk").await.unwrap();
            found.data["status"]["phase"] == "Succeeded"
        })
        .await;
}

/// Copies a claim, beside what a controller left that was killed midway.
pub(super) async fn copied(cluster: &TestCluster) {
    let made = cluster.create(copy(Some("pvc/images/fedora"))).await;
    let uid = made.uid().unwrap();
    // The controllers know the data volume, and export its source only when its claim is bound.
    wait_for_claim(cluster).await;
    let half_done = json!({
        "apiVersion": "export.kubevirt.io/v1", "kind": "VirtualMachineExport",
        "metadata": {"name": format!("copy-{uid}"), "namespace": IMAGES,
                     "annotations": {"ferrovirt.io/copy-for": format!("{NAMESPACE}/disk/{uid}")}},
        "spec": {"source": {"apiGroup": "", "kind": "PersistentVolumeClaim", "name": "fedora"},
                 "tokenSecretRef": format!("copy-{uid}-gone")},
    });
    cluster.create(half_done).await;
    bind(cluster).await;
    finish(cluster, &format!("importer-{uid}")).await;
    cluster
        .wait_until("nothing is left in the other namespace", async || {
            left(cluster).await == 0
        })
        .await;
    let now = DeleteParams::default();
    cluster.data_volumes().delete("disk", &now).await.unwrap();
    cluster
        .wait_until("nothing of the data volume is left", async || {
            let all = ListParams::default();
            let claim = cluster.claims().get_opt("disk").await.unwrap();
            let own = |name: String| name.contains(&uid);
            let secrets = Api::<Secret>::namespaced(cluster.client.clone(), NAMESPACE);
            let secrets = secrets.list(&all).await.unwrap().items;
            let maps = Api::<ConfigMap>::namespaced(cluster.client.clone(), NAMESPACE);
            let maps = maps.list(&all).await.unwrap().items;
            claim.is_none()
                && !secrets.iter().any(|one| own(one.name_any()))
                && !maps.iter().any(|one| own(one.name_any()))
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn claim_of_another_namespace_is_copied_through_an_export() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    prepare(&cluster).await;
    copied(&cluster).await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn deleted_copy_leaves_no_export() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    prepare(&cluster).await;
    let made = cluster.create(copy(Some("pvc/images/fedora"))).await;
    let pod = format!("importer-{}", made.uid().unwrap());
    bind(&cluster).await;
    cluster
        .wait_until("there is a pod", async || {
            cluster.pods().get_opt(&pod).await.unwrap().is_some()
        })
        .await;
    assert_ne!(left(&cluster).await, 0);
    let now = DeleteParams::default();
    cluster.data_volumes().delete("disk", &now).await.unwrap();
    cluster
        .wait_until("nothing is left in the other namespace", async || {
            left(&cluster).await == 0
        })
        .await;
    cluster.end().await;
}

/// The annotation counts for the source that it names alone.
#[tokio::test(start_paused = true)]
async fn copy_that_no_review_permits_waits_for_a_right() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    prepare(&cluster).await;
    for permitted in [
        None,
        Some("pvc/images/other"),
        Some("snapshot/images/fedora"),
    ] {
        cluster.create(copy(permitted)).await;
        cluster
            .wait_until("it waits for a permission", async || {
                let found = cluster.data_volumes().get("disk").await.unwrap();
                let all = found.data["status"]["conditions"].as_array().cloned();
                let mut all = all.unwrap_or_default().into_iter();
                all.any(|one| one["type"] == "Running" && one["reason"] == "SourceNotPermitted")
            })
            .await;
        assert!(cluster.claims().get_opt("disk").await.unwrap().is_none());
        assert_eq!(left(&cluster).await, 0);
        let now = DeleteParams::default();
        cluster.data_volumes().delete("disk", &now).await.unwrap();
        wait_for_no_data_volume(&cluster, "disk").await;
    }
    cluster.end().await;
}

/// A user who may create pods and claims beside the data volume gets nothing exported by them.
#[tokio::test(start_paused = true)]
async fn forged_pod_is_no_permission() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    prepare(&cluster).await;
    let uid = cluster.create(copy(None)).await.uid().unwrap();
    let owner = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "name": "disk", "uid": uid,
        "controller": true,
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("importer-{uid}"), "namespace": NAMESPACE,
                     "labels": {"kubevirt.io": "disk-import"}, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "importer", "image": "registry.example/any"}]},
    });
    cluster.create(pod).await;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "disk", "namespace": NAMESPACE, "ownerReferences": [owner]},
        "spec": {"accessModes": ["ReadWriteOnce"],
                 "resources": {"requests": {"storage": "2Gi"}}},
    });
    cluster.create(claim).await;
    bind(&cluster).await;
    cluster
        .wait_until("the pod is followed", async || {
            let found = cluster.data_volumes().get("disk").await.unwrap();
            let phase = found.data["status"]["phase"].as_str();
            phase.is_some_and(|phase| phase != "Pending")
        })
        .await;
    assert_eq!(left(&cluster).await, 0);
    cluster.end().await;
}
