//! Garbage collection: owners, circles of owners, and propagation.

use crate::support::*;
use http::{Method, StatusCode};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";

fn owner(of: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": of["kind"], "name": of["metadata"]["name"],
           "uid": of["metadata"]["uid"], "controller": false, "blockOwnerDeletion": true})
}

fn owned_by(name: &str, owners: &[&Value]) -> Value {
    let mut map = config_map(name);
    map["metadata"]["ownerReferences"] = owners.iter().map(|one| owner(one)).collect();
    map
}

async fn delete_with(api: &Running, uri: &str, policy: &str) {
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy});
    let (code, answer) = api.call(Method::DELETE, uri, options).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
}

#[tokio::test]
async fn circle_of_owners_does_not_block_foreground_deletion() {
    let api = start().await;
    let mut made = Vec::new();
    for name in ["pod1", "pod2", "pod3"] {
        made.push(api.create(PODS, pod(name)).await);
    }
    for (at, name) in ["pod1", "pod2", "pod3"].iter().enumerate() {
        let references = json!({"metadata": {"ownerReferences": [owner(&made[(at + 2) % 3])]}});
        let uri = format!("{PODS}/{name}");
        let (code, answer) = api.patch(&uri, STRATEGIC, references).await;
        assert_eq!(code, StatusCode::OK, "{answer}");
    }
    delete_with(&api, &format!("{PODS}/pod1"), "Foreground").await;
    for name in ["pod1", "pod2", "pod3"] {
        api.until_deleted(&format!("{PODS}/{name}")).await;
    }
}

#[tokio::test]
async fn dependent_with_another_owner_is_released() {
    let api = start().await;
    let first = api.create(MAPS, config_map("first")).await;
    let second = api.create(MAPS, config_map("second")).await;
    api.create(MAPS, owned_by("both", &[&first, &second])).await;
    delete_with(&api, &format!("{MAPS}/first"), "Foreground").await;
    api.until_deleted(&format!("{MAPS}/first")).await;
    let (code, kept) = api.get(&format!("{MAPS}/both")).await;
    assert_eq!(code, StatusCode::OK);
    let owners = kept["metadata"]["ownerReferences"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    assert_eq!(owners.len(), 1);
    assert_eq!(owners[0]["name"], "second");
}

#[tokio::test]
async fn removed_owner_reference_releases_a_waiting_owner() {
    let api = start().await;
    let parent = api.create(MAPS, config_map("parent")).await;
    let mut child = owned_by("child", &[&parent]);
    child["metadata"]["finalizers"] = json!(["x.y/z"]);
    api.create(MAPS, child).await;
    delete_with(&api, &format!("{MAPS}/parent"), "Foreground").await;
    api.until(&format!("{MAPS}/child"), |child| {
        child["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    assert_eq!(api.get(&format!("{MAPS}/parent")).await.0, StatusCode::OK);
    let release = json!({"metadata": {"ownerReferences": null}});
    let (code, answer) = api.patch(&format!("{MAPS}/child"), MERGE, release).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    api.until_deleted(&format!("{MAPS}/parent")).await;
}

#[tokio::test]
async fn owner_reference_added_by_a_patch_counts() {
    let api = start().await;
    api.create(MAPS, config_map("child")).await;
    let mut ghost = api.create(MAPS, config_map("ghost")).await;
    ghost["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000".into();
    let references = json!({"metadata": {"ownerReferences": [owner(&ghost)]}});
    let uri = format!("{MAPS}/child");
    let (code, answer) = api.patch(&uri, MERGE, references).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    // The name exists, but the uid is that of an owner that is gone.
    api.until_deleted(&uri).await;
    assert_eq!(api.get(&format!("{MAPS}/ghost")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn owners_are_of_the_same_namespace() {
    let api = start().await;
    let parent = api.create(MAPS, config_map("parent")).await;
    let elsewhere = "/api/v1/namespaces/kube-system/configmaps";
    api.create(elsewhere, owned_by("stray", &[&parent])).await;
    api.until_deleted(&format!("{elsewhere}/stray")).await;
    // The owner of a cluster-scoped object cannot be namespaced: nothing is known about it.
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let mut class = json!({"metadata": {"name": "kept"}, "value": 1});
    class["metadata"]["ownerReferences"] = json!([owner(&parent)]);
    api.create(classes, class).await;
    // An unknown kind of owner keeps its dependents, too.
    let mut map = config_map("unknown");
    map["metadata"]["ownerReferences"] = json!([{"apiVersion": "example.com/v1", "kind": "Widget",
        "name": "w", "uid": "1"}]);
    api.create(MAPS, map).await;
    api.create(MAPS, owned_by("last", &[&parent])).await;
    api.delete(&format!("{MAPS}/parent")).await;
    api.until_deleted(&format!("{MAPS}/last")).await;
    assert_eq!(api.get(&format!("{classes}/kept")).await.0, StatusCode::OK);
    assert_eq!(api.get(&format!("{MAPS}/unknown")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn orphans_stay_without_their_owner() {
    let api = start().await;
    let parent = api.create(MAPS, config_map("parent")).await;
    api.create(MAPS, owned_by("child", &[&parent])).await;
    delete_with(&api, &format!("{MAPS}/parent"), "Orphan").await;
    api.until_deleted(&format!("{MAPS}/parent")).await;
    let (code, child) = api.get(&format!("{MAPS}/child")).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(child["metadata"].get("ownerReferences"), None);
}
