//! Tokens for uploads, and the proxy in front of a node.
#![expect(clippy::unwrap_used, reason = "a test fails so")]

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Path,
    routing::put,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use virt_api::UploadProxy;

use crate::server::Running;

const REQUESTS: &str =
    "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/default/uploadtokenrequests";
const READY: &str = "cdi.kubevirt.io/storage.pod.ready";
const PHASE: &str = "cdi.kubevirt.io/storage.pod.phase";

fn claim(name: &str, target: bool) -> Value {
    let mut claim = json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    if target {
        let mark = "cdi.kubevirt.io/storage.upload.target";
        claim["metadata"]["annotations"] = json!({mark: "", READY: "true"});
    }
    claim
}

fn token_request(claim: &str) -> Value {
    json!({
        "apiVersion": "upload.cdi.kubevirt.io/v1beta1", "kind": "UploadTokenRequest",
        "metadata": {"name": "token-for-virtctl"}, "spec": {"pvcName": claim},
    })
}

async fn token(server: &Running, claim: &str) -> String {
    let answer = server.post(REQUESTS, &token_request(claim)).await;
    assert_eq!(answer.code, StatusCode::CREATED, "{answer:?}");
    let token = answer.json()["status"]["token"].as_str().map(str::to_owned);
    token.unwrap()
}

/// A node whose virt-handler returns the name of the pod and what it received.
async fn serve_node(server: &Running) {
    let receive = async |Path(uid): Path<String>, body: Bytes| match body.len() {
        6 => Ok(format!("{uid}:6")),
        _ => Err((StatusCode::BAD_REQUEST, "the image is damaged")),
    };
    let answers = Router::new().route("/v1/pods/{uid}/upload", put(receive));
    let address = server.serve("virt-handler.here", answers).await;
    let node = json!({"metadata": {
        "name": "here", "annotations": {"ferrovirt.io/handler-address": address.to_string()},
    }});
    let nodes: Api<Node> = Api::all(server.api.client.clone());
    let node = serde_json::from_value(node).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
}

/// Creates the pod of the upload, and returns its UID.
async fn create_pod(server: &Running, claim: &str) -> String {
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(server.api.client.clone());
    let uid = claims.get(claim).await.unwrap().uid().unwrap();
    let name = format!("upload-{uid}");
    let owner = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim,
                       "uid": uid, "controller": true});
    let pod = json!({
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": {"nodeName": "here", "containers": [{"name": "importer", "image": "i"}]},
    });
    server.create::<Pod>(pod).await;
    let pods: Api<Pod> = Api::default_namespaced(server.api.client.clone());
    pods.get(&name).await.unwrap().uid().unwrap()
}

async fn send(proxy: &UploadProxy, method: Method, path: &str, token: &str) -> (u16, String) {
    send_file(proxy, (method, path), token, "a disk").await
}

async fn send_file(
    proxy: &UploadProxy,
    (method, path): (Method, &str),
    token: &str,
    file: &'static str,
) -> (u16, String) {
    let request = Request::builder().method(method).uri(path);
    let request = match token {
        "" => request,
        token => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
    };
    let request = request.body(Body::from(file)).unwrap();
    let response = proxy.clone().router().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8_lossy(&body).into_owned())
}

fn proxy(server: &Running) -> UploadProxy {
    UploadProxy::new(
        server.tokens.clone(),
        server.api.client.clone(),
        server.nodes(),
    )
}

async fn annotate(server: &Running, claim: &str, name: &str, value: &str) {
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(server.api.client.clone());
    let patch = Patch::Merge(json!({"metadata": {"annotations": {name: value}}}));
    let parameters = PatchParams::default();
    claims.patch(claim, &parameters, &patch).await.unwrap();
}

#[tokio::test]
async fn token_is_for_a_target_and_a_user_with_the_right() {
    let server = Running::start().await;
    server
        .create::<PersistentVolumeClaim>(claim("disk", true))
        .await;
    server
        .create::<PersistentVolumeClaim>(claim("other", false))
        .await;
    assert!(!token(&server, "disk").await.is_empty());
    for (name, code) in [("other", 400), ("missing", 404), ("", 400)] {
        let answer = server.post(REQUESTS, &token_request(name)).await;
        assert_eq!(answer.code.as_u16(), code, "{name}: {answer:?}");
    }
    let answer = server.request_of("eve", &Method::POST, REQUESTS).await;
    assert_eq!(answer.code, StatusCode::FORBIDDEN, "{answer:?}");
    let listed = "/apis/upload.cdi.kubevirt.io/v1beta1";
    let listed = server.request(&Method::GET, listed).await.json();
    assert_eq!(listed["resources"][0]["kind"], "UploadTokenRequest");
    annotate(&server, "disk", PHASE, "Succeeded").await;
    let answer = server.post(REQUESTS, &token_request("disk")).await;
    assert_eq!(answer.code, StatusCode::CONFLICT, "{answer:?}");
}

#[tokio::test]
async fn file_goes_to_the_pod_of_its_claim() {
    let server = Running::start().await;
    server
        .create::<PersistentVolumeClaim>(claim("disk", true))
        .await;
    serve_node(&server).await;
    let (token, proxy) = (token(&server, "disk").await, proxy(&server));
    let pod = create_pod(&server, "disk").await;
    for path in ["/v1beta1/upload", "/v1beta1/upload-async"] {
        let head = send(&proxy, Method::HEAD, path, &token).await;
        assert_eq!(head, (200, String::new()));
        let sent = send(&proxy, Method::POST, path, &token).await;
        assert_eq!(sent, (200, format!("{pod}:6")));
    }
    annotate(&server, "disk", PHASE, "Succeeded").await;
    let (code, text) = send(&proxy, Method::POST, "/v1beta1/upload", &token).await;
    assert_eq!(code, 409, "{text}");
    assert!(text.contains("has its disk already"), "{text}");
}

#[tokio::test]
async fn claim_says_why_a_file_was_refused() {
    let server = Running::start().await;
    server
        .create::<PersistentVolumeClaim>(claim("disk", true))
        .await;
    serve_node(&server).await;
    let (token, proxy) = (token(&server, "disk").await, proxy(&server));
    create_pod(&server, "disk").await;
    let to = (Method::POST, "/v1beta1/upload");
    let sent = send_file(&proxy, to, &token, "no disk").await;
    assert_eq!(sent, (400, "the image is damaged".to_owned()));
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(server.api.client.clone());
    let claim = claims.get("disk").await.unwrap();
    let noted = claim.annotations().get("ferrovirt.io/upload-refused");
    assert_eq!(noted.map(String::as_str), Some("the image is damaged"));
}

#[tokio::test]
async fn nothing_is_sent_without_a_valid_token() {
    let server = Running::start().await;
    server
        .create::<PersistentVolumeClaim>(claim("disk", true))
        .await;
    let proxy = proxy(&server);
    let path = "/v1beta1/upload";
    let old = json!({"nbf": 0, "exp": 300, "namespace": "default", "claim": "disk", "uid": "u"});
    let old = BASE64_STANDARD.encode(old.to_string());
    for (method, token, expected) in [
        (Method::POST, "", "has no upload token"),
        (Method::HEAD, "", ""),
        (Method::POST, "nonsense", "was not issued by this server"),
        (Method::POST, old.as_str(), "has expired"),
    ] {
        let (code, text) = send(&proxy, method, path, token).await;
        assert_eq!(code, 401, "{text}");
        assert!(text.contains(expected), "{text}");
    }
    // The claim of the token, not of its name.
    let made = token(&server, "disk").await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(server.api.client.clone());
    let now = kube::api::DeleteParams::default().grace_period(0);
    claims.delete("disk", &now).await.unwrap();
    let (code, text) = send(&proxy, Method::POST, path, &made).await;
    assert_eq!(code, 404, "{text}");
    server
        .create::<PersistentVolumeClaim>(claim("disk", true))
        .await;
    let (code, text) = send(&proxy, Method::POST, path, &made).await;
    assert_eq!(code, 401, "{text}");
    assert!(text.contains("deleted and created again"), "{text}");
}

#[tokio::test]
async fn forms_and_other_methods_are_refused_with_a_reason() {
    let server = Running::start().await;
    let proxy = proxy(&server);
    for path in ["/v1beta1/upload-form", "/v1beta1/upload-form-async"] {
        let (code, text) = send(&proxy, Method::POST, path, "x").await;
        assert_eq!(code, 501, "{text}");
        assert!(text.contains("forms are not supported"), "{text}");
    }
    let (code, text) = send(&proxy, Method::DELETE, "/v1beta1/upload", "x").await;
    assert_eq!(code, 405, "{text}");
}
