//! Quotas: what they refuse, and what they show.

mod support;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use support::*;

const PODS: &str = "/api/v1/namespaces/default/pods";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

fn pod(name: &str, memory: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [
        {"name": "c", "image": "i:1", "resources": {"requests": {"memory": memory}}}]}})
}

#[tokio::test]
async fn what_does_not_fit_is_refused_until_there_is_room() {
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
    let silent = json!({"metadata": {"name": "c"},
                        "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    let (code, body) = api.call(Method::POST, PODS, silent).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    let message = body["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("must specify requests.memory for: c"),
        "{message}"
    );
    // Another namespace has its own.
    api.create("/api/v1/namespaces/kube-system/pods", pod("b", "768Mi"))
        .await;

    // A pod that is over takes nothing.
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
async fn of_many_at_once_only_as_many_as_fit_are_let_in() {
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
async fn scopes_are_refused_rather_than_passed_over() {
    let api = start().await;
    let quota = json!({"metadata": {"name": "q"},
                       "spec": {"hard": {"pods": "3"}, "scopes": ["BestEffort"]}});
    let (code, body) = api.call(Method::POST, QUOTAS, quota).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    let message = body["message"].as_str().unwrap_or_default();
    assert!(message.contains("spec.scopes"), "{message}");
}
