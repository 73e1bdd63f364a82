//! Quotas: rejections and statuses.

use crate::support::*;
use http::{Method, StatusCode};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

fn pod(name: &str, memory: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [
        {"name": "c", "image": "i:1", "resources": {"requests": {"memory": memory}}}]}})
}

#[tokio::test]
async fn objects_over_quota_are_rejected_until_capacity_is_free() {
    let api = start().await;
    let quota = json!({"metadata": {"name": "small"},
                       "spec": {"hard": {"requests.memory": "1Gi", "pods": "2"}}});
    api.create(QUOTAS, quota).await;
    api.create(PODS, pod("a", "512Mi")).await;
    let at = format!("{QUOTAS}/small");
    api.until(&at, |quota| {
        quota["status"]["hard"]["requests.memory"] == "1Gi"
            && quota["status"]["used"] == json!({"requests.memory": "512Mi", "pods": "1"})
    })
    .await;

    let (code, body) = api.call(Method::POST, PODS, pod("b", "768Mi")).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert_eq!(
        body["message"],
        "pods \"b\" is forbidden: exceeded quota: small, requested: requests.memory=768Mi, used: \
         requests.memory=512Mi, limited: requests.memory=1Gi"
    );
    assert_eq!(body["reason"], "Forbidden");
    let unspecified = json!({"metadata": {"name": "c"},
                        "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    let (code, body) = api.call(Method::POST, PODS, unspecified).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    let message = body["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("must specify requests.memory for: c"),
        "{message}"
    );
    // Other namespaces have their own quota.
    api.create("/api/v1/namespaces/kube-system/pods", pod("b", "768Mi"))
        .await;

    // A completed pod uses nothing.
    let status = format!("{PODS}/a/status");
    let over = json!({"status": {"phase": "Succeeded"}});
    let (code, _) = api
        .patch(&status, "application/merge-patch+json", over)
        .await;
    assert_eq!(code, StatusCode::OK);
    api.create(PODS, pod("b", "768Mi")).await;
    api.until(&at, |quota| {
        quota["status"]["used"] == json!({"requests.memory": "768Mi", "pods": "1"})
    })
    .await;
}

#[tokio::test]
async fn concurrent_creates_cannot_exceed_the_quota() {
    let api = start().await;
    let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "3"}}});
    api.create(QUOTAS, quota).await;
    let names: Vec<String> = (0..8).map(|n| format!("p{n}")).collect();
    let tries = names
        .iter()
        .map(|name| api.call(Method::POST, PODS, pod(name, "1Mi")));
    let codes = futures::future::join_all(tries).await;
    let made = codes
        .iter()
        .filter(|(code, _)| *code == StatusCode::CREATED);
    assert_eq!(made.count(), 3);
}

#[tokio::test]
async fn scopes_are_rejected() {
    let api = start().await;
    let quota = json!({"metadata": {"name": "q"},
                       "spec": {"hard": {"pods": "3"}, "scopes": ["BestEffort"]}});
    let (code, body) = api.call(Method::POST, QUOTAS, quota).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    let message = body["message"].as_str().unwrap_or_default();
    assert!(message.contains("spec.scopes"), "{message}");
}
