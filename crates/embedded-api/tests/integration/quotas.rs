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
async fn scopes_choose_the_pods_that_count() {
    let api = start().await;
    for (name, scopes) in [("best", "BestEffort"), ("ends", "Terminating")] {
        let quota = json!({"metadata": {"name": name},
                           "spec": {"hard": {"pods": "1"}, "scopes": [scopes]}});
        api.create(QUOTAS, quota).await;
    }
    let plain = |name: &str| {
        json!({"metadata": {"name": name},
               "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
    };
    api.create(PODS, plain("a")).await;
    let (code, refused) = api.call(Method::POST, PODS, plain("b")).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert_eq!(
        refused["message"],
        "pods \"b\" is forbidden: exceeded quota: best, requested: pods=1, used: pods=1, limited: pods=1"
    );
    // Pods with requests are not of that scope.
    api.create(PODS, pod("c", "1Mi")).await;
    let mut ending = pod("d", "1Mi");
    ending["spec"]["activeDeadlineSeconds"] = 60.into();
    api.create(PODS, ending.clone()).await;
    ending["metadata"]["name"] = "e".into();
    let (code, _) = api.call(Method::POST, PODS, ending).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    for name in ["best", "ends"] {
        api.until(&format!("{QUOTAS}/{name}"), |quota| {
            quota["status"]["used"]["pods"] == "1"
        })
        .await;
    }
}

#[tokio::test]
async fn priority_classes_have_their_own_quota() {
    let api = start().await;
    let class = json!({"metadata": {"name": "high"}, "value": 1000});
    api.create("/apis/scheduling.k8s.io/v1/priorityclasses", class)
        .await;
    let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"},
        "scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}}});
    api.create(QUOTAS, quota).await;
    let important = |name: &str| {
        let mut object = pod(name, "1Mi");
        object["spec"]["priorityClassName"] = "high".into();
        object
    };
    let made = api.create(PODS, important("a")).await;
    assert_eq!(made["spec"]["priority"], 1000);
    let (code, _) = api.call(Method::POST, PODS, important("b")).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    api.create(PODS, pod("c", "1Mi")).await;
}

#[tokio::test]
async fn every_kind_and_node_ports_can_be_counted() {
    let api = start().await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {
        "services.nodeports": "1", "services.loadbalancers": "0",
        "count/leases.coordination.k8s.io": "5", "count/widgets.example.com": "1"}}});
    api.create(QUOTAS, quota).await;
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, kind: &str| json!({"metadata": {"name": name}, "spec": {"type": kind, "ports": [{"port": 80}]}});
    api.create(services, service("a", "NodePort")).await;
    api.create(services, service("b", "ClusterIP")).await;
    for (name, kind) in [("c", "NodePort"), ("d", "LoadBalancer")] {
        let (code, _) = api.call(Method::POST, services, service(name, kind)).await;
        assert_eq!(code, StatusCode::FORBIDDEN, "{name}");
    }
    // A change of the type counts too.
    let merge = "application/merge-patch+json";
    let change = json!({"spec": {"type": "NodePort"}});
    let (code, refused) = api.patch(&format!("{services}/b"), merge, change).await;
    assert_eq!(code, StatusCode::FORBIDDEN, "{refused}");
    assert_eq!(
        refused["message"],
        "services \"b\" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: \
         services.nodeports=1, limited: services.nodeports=1"
    );
    api.create(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        definition(),
    )
    .await;
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let widget = |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}});
    api.create(widgets, widget("one")).await;
    let (code, _) = api.call(Method::POST, widgets, widget("two")).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    api.until(&format!("{QUOTAS}/q"), |quota| {
        quota["status"]["used"]["services.nodeports"] == "1"
            && quota["status"]["used"]["count/widgets.example.com"] == "1"
    })
    .await;
}
