//! Storage profiles, and data volumes that follow them.

use std::time::Duration;

use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kubevirt_api::storage_profile::StorageProfile;
use serde_json::{Value, json};

use super::cluster::{NAMESPACE, TestCluster};

fn profiles(cluster: &TestCluster) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<StorageProfile>(&());
    Api::all_with(cluster.client.clone(), &kind)
}

async fn create_class(cluster: &TestCluster, name: &str, provisioner: &str) {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": name}, "provisioner": provisioner,
    });
    cluster.create(class).await;
}

async fn wait_for_status(cluster: &TestCluster, name: &str, part: &Value) {
    cluster
        .wait_until(&format!("profile {name} has {part}"), async || {
            let found = profiles(cluster).get_opt(name).await.unwrap();
            let status = found.map(|found| found.data["status"].clone());
            let members = part.as_object().unwrap();
            status.is_some_and(|status| {
                members
                    .iter()
                    .all(|(member, value)| status[member] == *value)
            })
        })
        .await;
}

/// Keeps the profile of a class, for tests that crash the controller meanwhile.
pub(super) async fn kept(cluster: &TestCluster) {
    create_class(cluster, "fast", "ferrovirt.io/local").await;
    wait_for_status(
        cluster,
        "fast",
        &json!({"provisioner": "ferrovirt.io/local"}),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn each_class_has_a_profile_until_it_is_deleted() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    kept(&cluster).await;
    create_class(&cluster, "other", "example.com/disks").await;
    let expected = json!({
        "storageClass": "other", "cloneStrategy": "copy", "snapshotClass": null,
        "claimPropertySets": null, "dataImportCronSourceFormat": "pvc",
    });
    wait_for_status(&cluster, "other", &expected).await;
    cluster.install_snapshotter().await;
    let class = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
        "metadata": {"name": "copies"},
        "driver": "example.com/disks", "deletionPolicy": "Delete",
    });
    cluster.create(class).await;
    wait_for_status(&cluster, "other", &json!({"snapshotClass": "copies"})).await;
    let writes = cluster.all_writes();
    cluster.advance(Duration::from_mins(1)).await;
    assert_eq!(cluster.all_writes(), writes, "writes without a change");

    let classes = Api::<StorageClass>::all(cluster.client.clone());
    classes
        .delete("other", &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .wait_until("the profile is gone", async || {
            profiles(&cluster).get_opt("other").await.unwrap().is_none()
        })
        .await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn data_volume_takes_the_modes_of_the_profile() {
    let cluster = TestCluster::new().await;
    cluster.install_own_importer().await;
    kept(&cluster).await;
    let sets = json!([{"accessModes": ["ReadWriteMany"], "volumeMode": "Block"}]);
    let patch = Patch::Merge(json!({"spec": {"claimPropertySets": sets}}));
    profiles(&cluster)
        .patch("fast", &PatchParams::default(), &patch)
        .await
        .unwrap();
    wait_for_status(&cluster, "fast", &json!({"claimPropertySets": sets})).await;
    let volume = |name: &str, storage: &Value| {
        let mut storage = storage.clone();
        storage["resources"] = json!({"requests": {"storage": "1Gi"}});
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"source": {"blank": {}}, "storage": storage},
        })
    };
    for (name, storage, access, mode) in [
        (
            "a",
            json!({"storageClassName": "fast"}),
            "ReadWriteMany",
            "Block",
        ),
        (
            "b",
            json!({"storageClassName": "fast", "accessModes": ["ReadWriteOnce"]}),
            "ReadWriteOnce",
            "Filesystem",
        ),
        (
            "c",
            json!({"storageClassName": "none"}),
            "ReadWriteOnce",
            "Filesystem",
        ),
    ] {
        cluster.create(volume(name, &storage)).await;
        cluster
            .wait_until("there is a claim", async || {
                cluster.claims().get_opt(name).await.unwrap().is_some()
            })
            .await;
        let spec = cluster.claims().get(name).await.unwrap().spec.unwrap();
        assert_eq!(spec.access_modes.unwrap(), [access], "{name}");
        assert_eq!(spec.volume_mode.as_deref(), Some(mode), "{name}");
        let requests = spec.resources.unwrap().requests.unwrap();
        let is_disk = requests["storage"].0 == "1Gi";
        assert_eq!(is_disk, mode == "Block", "{name}");
    }
    cluster.end().await;
}
