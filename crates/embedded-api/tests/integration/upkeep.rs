//! Background tasks, and checks against other objects.

use crate::support::*;
use http::{Method, StatusCode};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const MERGE: &str = "application/merge-patch+json";

async fn ready_pod(api: &Running, name: &str) {
    let mut object = pod(name);
    object["metadata"]["labels"] = json!({"app": "a"});
    object["spec"]["nodeName"] = "n".into();
    api.create(PODS, object).await;
    let status = json!({"status": {"phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}]}});
    let (code, answer) = api
        .patch(&format!("{PODS}/{name}/status"), MERGE, status)
        .await;
    assert_eq!(code, StatusCode::OK, "{answer}");
}

async fn evict(api: &Running, name: &str) -> (StatusCode, Value) {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
                          "metadata": {"name": name}});
    let uri = format!("{PODS}/{name}/eviction");
    api.call(Method::POST, &uri, eviction).await
}

#[tokio::test]
async fn pods_are_evicted_within_their_budget() {
    let api = start().await;
    for name in ["x", "y"] {
        ready_pod(&api, name).await;
    }
    let budget = json!({"metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    api.create(BUDGETS, budget).await;
    let uri = format!("{BUDGETS}/b");
    let counted = |left: i64| {
        move |b: &Value| {
            b["status"]["disruptionsAllowed"] == left && b["status"]["observedGeneration"] == 1
        }
    };
    api.until(&uri, counted(1)).await;
    assert_eq!(evict(&api, "x").await.0, StatusCode::CREATED);
    let (code, refused) = evict(&api, "y").await;
    assert_eq!(code, StatusCode::TOO_MANY_REQUESTS);
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    assert_eq!(refused["message"], message);
    ready_pod(&api, "z").await;
    api.until(&uri, counted(1)).await;
    assert_eq!(evict(&api, "y").await.0, StatusCode::CREATED);
}

#[tokio::test]
async fn namespace_is_emptied_and_reports_finalizers() {
    let api = start().await;
    let namespace =
        json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes", "a.b/c"]}});
    api.create("/api/v1/namespaces", namespace).await;
    let maps = "/api/v1/namespaces/n/configmaps";
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["x.y/z"]);
    api.create(maps, held).await;
    api.create(maps, config_map("free")).await;
    let uri = "/api/v1/namespaces/n";
    api.delete(uri).await;
    let terminating = api
        .until(uri, |namespace| {
            namespace["status"]["conditions"][4]["status"] == "True"
        })
        .await;
    assert_eq!(
        terminating["status"]["conditions"][4]["message"],
        "Some content in the namespace has finalizers remaining: x.y/z in 1 resource instances"
    );
    assert_eq!(terminating["status"]["phase"], "Terminating");
    api.patch(
        &format!("{maps}/held"),
        MERGE,
        json!({"metadata": {"finalizers": null}}),
    )
    .await;
    // Our finalizer is removed once the namespace is empty; the other one is not ours.
    let waits = api
        .until(uri, |namespace| {
            namespace["spec"]["finalizers"] == json!(["a.b/c"])
        })
        .await;
    assert_eq!(waits["status"]["conditions"][3]["status"], "False");
    let mut free = waits.clone();
    free["spec"]["finalizers"] = json!([]);
    let (code, _) = api.put(&format!("{uri}/finalize"), free).await;
    assert_eq!(code, StatusCode::OK);
    api.until_deleted(uri).await;
}

#[tokio::test]
async fn claims_get_the_newest_default_class() {
    let api = start().await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let made = api.create(claims, claim("early")).await;
    assert_eq!(made["spec"]["storageClassName"], Value::Null);
    for (name, default) in [("plain", "false"), ("local", "true")] {
        let class = json!({"provisioner": "p", "metadata": {"name": name, "annotations":
            {"storageclass.kubernetes.io/is-default-class": default}}});
        api.create("/apis/storage.k8s.io/v1/storageclasses", class)
            .await;
    }
    let made = api.create(claims, claim("late")).await;
    assert_eq!(made["spec"]["storageClassName"], "local");
    let mut own = claim("own");
    own["spec"]["storageClassName"] = "".into();
    let made = api.create(claims, own).await;
    assert_eq!(made["spec"]["storageClassName"], "");
}

#[tokio::test]
async fn pods_get_a_service_account() {
    let api = start().await;
    let made = api.create(PODS, pod("p")).await;
    assert_eq!(made["spec"]["serviceAccountName"], "default");
    let mut named = pod("q");
    named["spec"]["serviceAccountName"] = "robot".into();
    let (code, refused) = api.call(Method::POST, PODS, named.clone()).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert_eq!(
        refused["message"],
        "pods \"q\" is forbidden: error looking up service account default/robot: serviceaccount \"robot\" not found"
    );
    let robot = json!({"metadata": {"name": "robot"}, "imagePullSecrets": [{"name": "s"}]});
    api.create("/api/v1/namespaces/default/serviceaccounts", robot)
        .await;
    let made = api.create(PODS, named).await;
    assert_eq!(made["spec"]["imagePullSecrets"], json!([{"name": "s"}]));
}

#[tokio::test]
async fn applying_a_missing_object_requires_create_permission() {
    let api = start().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"metadata": {"name": "patcher"}, "rules": [
        {"verbs": ["patch"], "apiGroups": [""], "resources": ["configmaps"]}]});
    api.create(&format!("{rbac}/roles"), role).await;
    let binding = json!({"metadata": {"name": "patcher"},
        "roleRef": {"kind": "Role", "name": "patcher"},
        "subjects": [{"kind": "User", "name": "ann"}]});
    api.create(&format!("{rbac}/rolebindings"), binding).await;
    let ann = embedded_api::Identity::new("ann", &[]);
    let uri = "/api/v1/namespaces/default/configmaps/a?fieldManager=m";
    let apply = "application/apply-patch+yaml";
    let (code, _) = api.patch_as(&ann, uri, apply, config_map("a")).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    api.create("/api/v1/namespaces/default/configmaps", config_map("a"))
        .await;
    let (code, _) = api.patch_as(&ann, uri, apply, config_map("a")).await;
    assert_eq!(code, StatusCode::OK);
}
