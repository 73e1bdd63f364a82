//! Limit ranges: defaults of pods, and refusals.

use crate::{
    other_servers::{authority, bundle, serve, service, webhooks},
    support::*,
};
use axum::{Json, Router, routing::post};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use serving::ClientCertificates;

const PODS: &str = "/api/v1/namespaces/default/pods";
const RANGES: &str = "/api/v1/namespaces/default/limitranges";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

fn pod(name: &str, resources: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [
        {"name": "c", "image": "i:1"}]}});
    pod["spec"]["containers"][0]["resources"] = resources;
    pod
}

#[tokio::test]
async fn pods_get_defaults_and_are_refused_outside_of_the_limits() {
    let api = start().await;
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "Container", "max": {"memory": "1Gi"}, "defaultRequest": {"memory": "128Mi"}}]}});
    let made = api.create(RANGES, range).await;
    assert_eq!(
        made["spec"]["limits"][0]["default"],
        json!({"memory": "1Gi"})
    );

    let made = api.create(PODS, pod("a", json!({}))).await;
    assert_eq!(
        made["spec"]["containers"][0]["resources"],
        json!({"limits": {"memory": "1Gi"}, "requests": {"memory": "128Mi"}})
    );
    assert_eq!(
        made["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: memory request for container c; memory limit for container c"
    );
    let large = pod("b", json!({"limits": {"memory": "2Gi"}}));
    let (code, body) = api.call(Method::POST, PODS, large.clone()).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert_eq!(
        body["message"],
        "pods \"b\" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi"
    );
    // Other namespaces have their own ranges, and existing pods keep what they have.
    api.create("/api/v1/namespaces/kube-system/pods", large)
        .await;
    let small = json!({"metadata": {"name": "s"}, "spec": {"limits": [
        {"type": "Pod", "max": {"memory": "1Mi"}}]}});
    api.create(RANGES, small).await;
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    let (code, _) = api
        .patch(
            &format!("{PODS}/a"),
            "application/merge-patch+json",
            labelled,
        )
        .await;
    assert_eq!(code, StatusCode::OK);
}

#[tokio::test]
async fn amounts_that_are_numbers_count_and_requests_are_within_defaults() {
    let api = start().await;
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "Container", "max": {"cpu": 2}, "default": {"cpu": 1, "memory": "1Gi"}}]}});
    let made = api.create(RANGES, range).await;
    assert_eq!(made["spec"]["limits"][0]["max"], json!({"cpu": "2"}));
    let made = api.create(PODS, pod("a", json!({}))).await;
    assert_eq!(
        made["spec"]["containers"][0]["resources"]["limits"],
        json!({"cpu": "1", "memory": "1Gi"})
    );
    assert_eq!(made["status"]["qosClass"], "Guaranteed");
    for (resources, why) in [
        (
            json!({"requests": {"memory": "2Gi"}}),
            "spec.containers[0].resources.requests: Invalid value: \"2Gi\": must be less than or equal to memory limit \
             of 1Gi",
        ),
        (
            json!({"limits": {"memory": "much"}}),
            "spec.containers[0].resources.limits[memory]: Invalid value: \"much\": is not a quantity",
        ),
    ] {
        let (code, body) = api.call(Method::POST, PODS, pod("b", resources)).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
        let message = body["message"].as_str().unwrap_or_default();
        assert!(message.contains(why), "{message}");
    }
    let range = json!({"metadata": {"name": "c"}, "spec": {"limits": [
        {"type": "PersistentVolumeClaim", "max": {"storage": "1000"}}]}});
    api.create(RANGES, range).await;
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": 1024}}}});
    let (code, body) = api.call(Method::POST, CLAIMS, claim).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert_eq!(
        body["message"],
        "persistentvolumeclaims \"c\" is forbidden: maximum storage usage per PersistentVolumeClaim is 1k, but \
         request is 1024"
    );
}

#[tokio::test]
async fn claims_are_refused_outside_of_the_limits() {
    let api = start().await;
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]}});
    api.create(RANGES, range).await;
    let claim = |name: &str, storage: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": storage}}}})
    };
    api.create(CLAIMS, claim("a", "1Gi")).await;
    let (code, body) = api.call(Method::POST, CLAIMS, claim("b", "2Gi")).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert_eq!(
        body["message"],
        "persistentvolumeclaims \"b\" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, but \
         request is 2Gi"
    );
}

#[tokio::test]
async fn range_whose_values_contradict_each_other_is_invalid() {
    let api = start().await;
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]}});
    let (code, body) = api.call(Method::POST, RANGES, range).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    let message = body["message"].as_str().unwrap_or_default();
    assert!(
        message.contains(
            "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1"
        ),
        "{message}"
    );
}

async fn add_sidecar(Json(review): Json<Value>) -> Json<Value> {
    let sidecar = json!({"name": "sidecar", "image": "i:1"});
    let patch = json!([{"op": "add", "path": "/spec/containers/-", "value": sidecar}]);
    Json(
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
            "uid": review["request"]["uid"], "allowed": true,
            "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string()),
        }}),
    )
}

#[tokio::test]
async fn containers_of_webhooks_get_defaults() {
    let api = start().await;
    let ca = authority();
    let hooks = Router::new().route("/mutate", post(add_sidecar));
    let clients = ClientCertificates::Ignored;
    let address = serve(&api, &ca, "backend.default.svc", clients, hooks).await;
    service(&api, address).await;
    let mut hooks = webhooks("MutatingWebhookConfiguration", "mutate", &bundle(&ca));
    hooks["webhooks"][0]["rules"][0]["resources"] = json!(["pods"]);
    let group = "/apis/admissionregistration.k8s.io/v1";
    api.create(&format!("{group}/mutatingwebhookconfigurations"), hooks)
        .await;
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "Container", "max": {"memory": "1Gi"}}]}});
    api.create(RANGES, range).await;
    let made = api.create(PODS, pod("a", json!({}))).await;
    let containers = made["spec"]["containers"].as_array();
    let limits: Vec<&Value> = containers
        .into_iter()
        .flatten()
        .map(|one| &one["resources"]["limits"]["memory"])
        .collect();
    assert_eq!(limits, ["1Gi", "1Gi"]);
    api.stop.cancel();
}
