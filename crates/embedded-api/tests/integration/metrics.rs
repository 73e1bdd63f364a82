//! The path `/metrics`.

use embedded_api::Identity;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn scrape(api: &Running, user: Identity) -> (StatusCode, String) {
    let client = api.api.client(user, "default");
    let request = http::Request::get("/metrics")
        .body(Vec::new())
        .expect("a request");
    match client.request_text(request).await {
        Ok(text) => (StatusCode::OK, text),
        Err(kube::Error::Api(status)) => {
            let code = StatusCode::from_u16(status.code).expect("a code");
            (code, status.message)
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

#[tokio::test]
async fn requests_watches_and_objects_are_counted() {
    let api = start().await;
    api.create(MAPS, config_map("one")).await;
    let (code, _) = api
        .call(Method::GET, &format!("{MAPS}/absent"), Value::Null)
        .await;
    assert_eq!(code, StatusCode::NOT_FOUND);
    let watch = api.watch(&format!("{MAPS}?watch=1")).await;
    let (code, text) = scrape(&api, Identity::component("test")).await;
    assert_eq!(code, StatusCode::OK);
    for line in [
        "ferrovirt_embedded_api_requests_total{verb=\"get\",resource=\"configmaps\",code=\"404\"} ",
        "ferrovirt_embedded_api_requests_total{verb=\"create\",resource=\"configmaps\",code=\"201\"} ",
        "ferrovirt_embedded_api_request_duration_seconds_count{verb=\"watch\"} ",
        "ferrovirt_embedded_api_watchers{resource=\"configmaps\"} ",
        "ferrovirt_embedded_api_objects{resource=\"configmaps\"} ",
        "ferrovirt_embedded_api_database_bytes ",
        "ferrovirt_embedded_api_log_bytes ",
        "process_resident_memory_bytes ",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    drop(watch);
}

#[tokio::test]
async fn metrics_need_the_right_to_their_path() {
    let api = start().await;
    let ann = || Identity::new("ann", &[]);
    assert_eq!(scrape(&api, ann()).await.0, StatusCode::FORBIDDEN);
    let rules = json!([{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]);
    let role = json!({"metadata": {"name": "scraper"}, "rules": rules});
    api.create(&format!("{RBAC}/clusterroles"), role).await;
    let binding = json!({
        "metadata": {"name": "scraper"},
        "roleRef": {"kind": "ClusterRole", "name": "scraper"},
        "subjects": [{"kind": "User", "name": "ann"}],
    });
    api.create(&format!("{RBAC}/clusterrolebindings"), binding)
        .await;
    let (code, text) = scrape(&api, ann()).await;
    assert_eq!(code, StatusCode::OK, "{text}");
}
