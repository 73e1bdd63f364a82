//! Webhooks, aggregated API servers and kubelets over real TLS; and `kubectl` from outside.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails so")]

use std::{net::SocketAddr, path::Path, process::Stdio};

use crate::support::*;
use axum::{
    Extension, Json, Router,
    routing::{get, post},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use embedded_api::{KubeletClient, Settings};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use serving::{Authority, ClientCertificates, Leaf, Peer, Server, TlsSource, Validity};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub(crate) fn validity() -> Validity {
    Validity::starting(Timestamp::now(), SignedDuration::from_hours(1))
}

pub(crate) fn authority() -> Authority {
    Authority::create("test", validity()).unwrap()
}

pub(crate) fn bundle(ca: &Authority) -> String {
    STANDARD.encode(ca.trust().pem())
}

/// Serves `router` over TLS under `name`, optionally requiring client certificates.
pub(crate) async fn serve(
    api: &Running,
    ca: &Authority,
    name: &str,
    clients: ClientCertificates,
    router: Router,
) -> SocketAddr {
    let mut leaf = Leaf::server(name, validity());
    leaf.addresses.push([127, 0, 0, 1].into());
    let tls = TlsSource::fixed(&ca.issue(&leaf).unwrap(), &clients).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    api.tasks
        .spawn(Server::new(listener, tls, router).run(api.stop.clone()));
    address
}

/// Creates a service `default/backend` whose only endpoint is `address`.
pub(crate) async fn service(api: &Running, address: SocketAddr) {
    let meta = json!({"name": "backend"});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": meta,
                         "spec": {"ports": [{"port": 443, "name": "https"}]}});
    api.create("/api/v1/namespaces/default/services", service)
        .await;
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": meta, "subsets": [{
        "addresses": [{"ip": address.ip().to_string()}],
        "ports": [{"name": "https", "port": address.port()}],
    }]});
    api.create("/api/v1/namespaces/default/endpoints", endpoints)
        .await;
}

async fn mutate(Json(review): Json<Value>) -> Json<Value> {
    let request = &review["request"];
    let patch = json!([{"op": "add", "path": "/data/reviewed", "value": request["operation"]}]);
    Json(
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
            "uid": request["uid"], "allowed": true, "warnings": ["mind the gap"],
            "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string()),
        }}),
    )
}

async fn validate(Json(review): Json<Value>) -> Json<Value> {
    let request = &review["request"];
    let object = &request["object"];
    let allowed = object["data"]["bad"].is_null() && object["data"]["reviewed"] == "CREATE"
        || request["operation"] == "DELETE";
    Json(
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
            "uid": request["uid"], "allowed": allowed,
            "status": {"code": 422, "reason": "Invalid", "message": "no bad data",
                       "details": {"causes": [{"field": "data.bad"}]}},
        }}),
    )
}

pub(crate) fn webhooks(kind: &str, path: &str, ca: &str) -> Value {
    let operations = if path == "mutate" {
        json!(["CREATE"])
    } else {
        json!(["CREATE", "DELETE"])
    };
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
    "metadata": {"name": "hooks"}, "webhooks": [{
        "name": format!("{path}.example.com"), "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"caBundle": ca, "service":
            {"namespace": "default", "name": "backend", "path": format!("/{path}")}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                   "operations": operations}],
    }]})
}

#[tokio::test]
async fn webhooks_mutate_and_reject() {
    let api = start().await;
    let ca = authority();
    let hooks = Router::new()
        .route("/mutate", post(mutate))
        .route("/validate", post(validate));
    let address = serve(
        &api,
        &ca,
        "backend.default.svc",
        ClientCertificates::Ignored,
        hooks,
    )
    .await;
    service(&api, address).await;
    let group = "/apis/admissionregistration.k8s.io/v1";
    let mutating = webhooks("MutatingWebhookConfiguration", "mutate", &bundle(&ca));
    api.create(&format!("{group}/mutatingwebhookconfigurations"), mutating)
        .await;
    let validating = webhooks("ValidatingWebhookConfiguration", "validate", &bundle(&ca));
    api.create(
        &format!("{group}/validatingwebhookconfigurations"),
        validating,
    )
    .await;

    let body = config_map("a").to_string();
    let response = api.send(Method::POST, MAPS, "application/json", body).await;
    assert_eq!(response.status(), StatusCode::CREATED);
    assert_eq!(response.headers()["warning"], "299 - \"mind the gap\"");
    assert_eq!(
        api.get(&format!("{MAPS}/a")).await.1["data"]["reviewed"],
        "CREATE"
    );
    let mut bad = config_map("b");
    bad["data"]["bad"] = "1".into();
    let (code, refused) = api.call(Method::POST, MAPS, bad).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        refused["message"],
        "admission webhook \"validate.example.com\" denied the request: no bad data"
    );
    assert_eq!(refused["details"]["causes"][0]["field"], "data.bad");
    let (code, _) = api.delete(&format!("{MAPS}/a")).await;
    assert_eq!(code, StatusCode::OK);

    // No server: rejected by default.
    api.delete("/api/v1/namespaces/default/endpoints/backend")
        .await;
    let (code, failed) = api.call(Method::POST, MAPS, config_map("c")).await;
    assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(
        failed["message"]
            .as_str()
            .unwrap()
            .contains("failed calling webhook \"mutate")
    );
    api.stop.cancel();
}

/// Renames `spec.size` to `spec.magnitude` for `v1beta1`, and back.
async fn rename_size(Json(review): Json<Value>) -> Json<Value> {
    let request = &review["request"];
    let wanted = request["desiredAPIVersion"].as_str().unwrap();
    let (from, to) = match wanted {
        "example.com/v1" => ("magnitude", "size"),
        _ => ("size", "magnitude"),
    };
    let mut objects = request["objects"].clone();
    for object in objects.as_array_mut().unwrap() {
        object["apiVersion"] = wanted.into();
        let spec = object["spec"].as_object_mut().unwrap();
        if let Some(value) = spec.remove(from) {
            spec.insert(to.to_owned(), value);
        }
    }
    Json(
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": {
        "uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}}),
    )
}

#[tokio::test]
async fn versions_are_converted_by_the_webhook_of_their_definition() {
    let api = start().await;
    let ca = authority();
    let hooks = Router::new().route("/convert", post(rename_size));
    let clients = ClientCertificates::Ignored;
    let address = serve(&api, &ca, "backend.default.svc", clients, hooks).await;
    service(&api, address).await;
    let mut crd = definition();
    crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {"caBundle": bundle(&ca), "service":
            {"namespace": "default", "name": "backend", "path": "/convert"}}}});
    api.create(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        crd,
    )
    .await;
    let new = "/apis/example.com/v1/namespaces/default/widgets";
    let old = "/apis/example.com/v1beta1/namespaces/default/widgets";
    let widget = |version: &str, name: &str, spec: Value| {
        json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget",
               "metadata": {"name": name}, "spec": spec})
    };
    let made = api
        .create(old, widget("v1beta1", "a", json!({"magnitude": 5})))
        .await;
    assert_eq!(made["spec"], json!({"magnitude": 5}));
    assert_eq!(api.get(&format!("{new}/a")).await.1["spec"]["size"], 5);
    api.create(new, widget("v1", "b", json!({"size": 6}))).await;
    let (_, list) = api.get(old).await;
    let sizes: Vec<&Value> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["spec"]["magnitude"])
        .collect();
    assert_eq!(sizes, [5, 6]);
    let mut events = api.watch(&format!("{old}?watch=1")).await;
    assert_eq!(events.next().await["object"]["spec"]["magnitude"], 5);
    let merge = "application/merge-patch+json";
    let change = json!({"spec": {"magnitude": 7}});
    let (code, changed) = api.patch(&format!("{old}/b"), merge, change).await;
    assert_eq!(
        (code, &changed["spec"]["magnitude"]),
        (StatusCode::OK, &json!(7))
    );
    assert_eq!(api.get(&format!("{new}/b")).await.1["spec"]["size"], 7);

    // Without the server, other versions fail; the stored one is served.
    api.delete("/api/v1/namespaces/default/endpoints/backend")
        .await;
    let (code, failed) = api.get(&format!("{old}/a")).await;
    assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR);
    let message = failed["message"].as_str().unwrap();
    assert!(
        message.contains("conversion webhook for example.com/v1, Kind=Widget failed"),
        "{message}"
    );
    assert_eq!(api.get(&format!("{new}/a")).await.0, StatusCode::OK);
    api.stop.cancel();
}

/// Refuses streams with input.
async fn refuse_input(Json(review): Json<Value>) -> Json<Value> {
    let request = &review["request"];
    let object = &request["object"];
    let shown = format!(
        "{} {} {} {}",
        request["operation"],
        request["resource"]["resource"],
        request["subResource"],
        request["kind"]["kind"]
    );
    let allowed = object["stdin"] != true;
    Json(
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
        "uid": request["uid"], "allowed": allowed,
        "status": {"code": 403, "message": shown.replace('"', "")}}}),
    )
}

#[tokio::test]
async fn streams_are_put_to_webhooks() {
    let api = start().await;
    let ca = authority();
    let hooks = Router::new().route("/connect", post(refuse_input));
    let clients = ClientCertificates::Ignored;
    let address = serve(&api, &ca, "backend.default.svc", clients, hooks).await;
    service(&api, address).await;
    let mut hooks = webhooks("ValidatingWebhookConfiguration", "connect", &bundle(&ca));
    hooks["webhooks"][0]["rules"] = json!([{"apiGroups": [""], "apiVersions": ["v1"],
        "resources": ["pods/attach", "pods/exec"], "operations": ["CONNECT"]}]);
    let group = "/apis/admissionregistration.k8s.io/v1";
    api.create(&format!("{group}/validatingwebhookconfigurations"), hooks)
        .await;
    let pods = "/api/v1/namespaces/default/pods";
    let mut bound = pod("p");
    bound["spec"]["nodeName"] = "n".into();
    api.create(pods, bound).await;
    for (query, code, expected) in [
        (
            "attach?stdin=true",
            StatusCode::FORBIDDEN,
            "CONNECT pods attach PodAttachOptions",
        ),
        (
            "exec?command=sh&stdin=1",
            StatusCode::FORBIDDEN,
            "CONNECT pods exec PodExecOptions",
        ),
        (
            "exec?command=sh",
            StatusCode::BAD_REQUEST,
            "Upgrade request required",
        ),
    ] {
        let (found, status) = api.get(&format!("{pods}/p/{query}")).await;
        let message = status["message"].as_str().unwrap_or_default();
        assert_eq!(found, code, "{message}");
        assert!(message.contains(expected), "{message}");
    }
    api.stop.cancel();
}

#[tokio::test]
async fn a_slow_webhook_is_reported_as_a_deadline() {
    let api = start().await;
    let ca = authority();
    let hooks = Router::new().route(
        "/validate",
        post(async || std::future::pending::<()>().await),
    );
    let clients = ClientCertificates::Ignored;
    let address = serve(&api, &ca, "backend.default.svc", clients, hooks).await;
    service(&api, address).await;
    let mut hooks = webhooks("ValidatingWebhookConfiguration", "validate", &bundle(&ca));
    hooks["webhooks"][0]["timeoutSeconds"] = 1.into();
    let group = "/apis/admissionregistration.k8s.io/v1";
    api.create(&format!("{group}/validatingwebhookconfigurations"), hooks)
        .await;
    let (code, failed) = api.call(Method::POST, MAPS, config_map("a")).await;
    assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR);
    let message = failed["message"].as_str().unwrap();
    for expected in [
        "failed calling webhook \"validate.example.com\"",
        "https://backend.default.svc:443/validate?timeout=1s",
        "context deadline exceeded",
    ] {
        assert!(message.contains(expected), "{message}");
    }
    api.stop.cancel();
}

async fn remote_user(Extension(peer): Extension<Peer>, headers: HeaderMap) -> String {
    let groups: Vec<_> = headers
        .get_all("x-remote-group")
        .iter()
        .map(|g| g.to_str().unwrap())
        .collect();
    let by = peer
        .certificate
        .and_then(|c| c.common_name)
        .unwrap_or_default();
    format!(
        "{} {} by {by}",
        headers["x-remote-user"].to_str().unwrap(),
        groups.join("+")
    )
}

#[tokio::test]
async fn aggregated_group_is_discovered_and_proxied() {
    let ca = authority();
    let front_proxy = ca
        .issue(&Leaf::user("front-proxy", &[], validity()))
        .unwrap();
    let api = start_with(Settings {
        front_proxy: Some(front_proxy),
        ..settings()
    })
    .await;
    let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "x.io/v1",
        "resources": [{"name": "things", "singularName": "", "namespaced": true, "kind": "Thing",
                       "verbs": ["get"]}]});
    let operation = json!({"get": {"responses": {"200": {"description": "OK"}}}});
    let v2 = json!({"swagger": "2.0", "info": {"title": "x", "version": "1"}, "paths": {
        "/apis/x.io/v1/things/{name}": operation, "/apis/other.io/v1/things": operation},
        "definitions": {"io.x.Thing": {"type": "object"}}});
    let v3 = json!({"openapi": "3.0.0", "paths": {"/apis/x.io/v1/things/{name}": operation}});
    let sent = v3.clone();
    let backend = Router::new()
        .route("/apis/x.io/v1", get(async move || Json(list)))
        .route("/apis/x.io/v1/who", get(remote_user))
        .route("/openapi/v2", get(async move || Json(v2)))
        .route("/openapi/v3/apis/x.io/v1", get(async move || Json(sent)));
    let clients = ClientCertificates::Required(ca.trust());
    let address = serve(&api, &ca, "backend.default.svc", clients, backend).await;
    service(&api, address).await;
    let at = "/apis/apiregistration.k8s.io/v1/apiservices";
    let mut changes = api.watch(&format!("{at}?watch=1")).await;
    let registration = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.x.io"},
        "spec": {"group": "x.io", "version": "v1", "caBundle": bundle(&ca),
                 "groupPriorityMinimum": 1000, "versionPriority": 15,
                 "service": {"namespace": "default", "name": "backend"}}});
    api.create(at, registration).await;
    loop {
        let event = changes.next().await;
        let condition = event["object"]["status"]["conditions"][0].clone();
        if condition["status"] == "True" {
            break;
        }
        assert!(condition.is_null(), "{condition}");
    }
    let response = api
        .send(
            Method::GET,
            "/apis/x.io/v1/who",
            "application/json",
            String::new(),
        )
        .await;
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(
        body,
        "test system:masters+system:authenticated by front-proxy"
    );
    loop {
        let (_, groups) = api.get("/apis").await;
        let listed = groups["groups"]
            .as_array()
            .unwrap()
            .iter()
            .any(|g| g["name"] == "x.io");
        if listed {
            break;
        }
        tokio::task::yield_now().await;
    }
    // Its documents are part of ours, but for paths of other groups.
    let (_, document) = api.get("/openapi/v2").await;
    assert_eq!(document["paths"]["/apis/x.io/v1/things/{name}"], operation);
    assert!(document["paths"]["/apis/other.io/v1/things"].is_null());
    assert_eq!(document["definitions"]["io.x.Thing"]["type"], "object");
    assert!(document["definitions"]["io.k8s.api.core.v1.Pod"].is_object());
    let (_, index) = api.get("/openapi/v3").await;
    assert!(index["paths"]["api/v1"].is_object());
    let url = &index["paths"]["apis/x.io/v1"]["serverRelativeURL"];
    let url = url.as_str().unwrap();
    assert!(url.starts_with("/openapi/v3/apis/x.io/v1?hash="), "{url}");
    assert_eq!(api.get(url).await.1, v3);
    api.stop.cancel();
}

#[tokio::test]
async fn logs_come_from_the_kubelet() {
    let ca = authority();
    let identity = ca
        .issue(&Leaf::user("kubelet-client", &[], validity()))
        .unwrap();
    let kubelet = Some(KubeletClient {
        trust: ca.trust(),
        identity,
    });
    let api = start_with(Settings {
        kubelet,
        ..settings()
    })
    .await;
    let node = Router::new().route(
        "/containerLogs/default/p/c",
        get(async |uri: http::Uri| format!("log {uri}")),
    );
    let refusal = "previous terminated container \"c\" in pod \"q\" not found";
    let node = node.route(
        "/containerLogs/default/q/c",
        get(async move || (StatusCode::BAD_REQUEST, refusal)),
    );
    let clients = ClientCertificates::Required(ca.trust());
    let address = serve(&api, &ca, "n", clients, node).await;
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port()}}}});
    api.create("/api/v1/nodes", object).await;
    let pods = "/api/v1/namespaces/default/pods";
    let mut bound = pod("p");
    bound["spec"]["nodeName"] = "n".into();
    api.create(pods, bound).await;
    let mut other = pod("q");
    other["spec"]["nodeName"] = "n".into();
    api.create(pods, other).await;
    let uri = format!("{pods}/p/log?tailLines=5");
    let response = api
        .send(Method::GET, &uri, "application/json", String::new())
        .await;
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "log /containerLogs/default/p/c?tailLines=5");
    // A refusal in plain text becomes a status.
    let (code, status) = api.get(&format!("{pods}/q/log?previous=true")).await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{status}");
    assert_eq!(
        (&status["reason"], &status["message"]),
        (
            &json!("BadRequest"),
            &json!("previous terminated container \"c\" in pod \"q\" not found")
        )
    );
    let (code, status) = api.get(&format!("{pods}/p/exec?command=sh")).await;
    assert_eq!(
        (code, &status["reason"]),
        (StatusCode::BAD_REQUEST, &json!("BadRequest"))
    );
    api.stop.cancel();
}

/// The bytes that a server sends to a client of a websocket, until it closes the connection.
async fn websocket(address: SocketAddr, path: &str, protocol: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: {protocol}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut sent = Vec::new();
    // Up to the close frame, which has no payload.
    while !sent.ends_with(&[0x88, 0]) {
        assert_ne!(stream.read_buf(&mut sent).await.unwrap(), 0, "{sent:?}");
    }
    sent
}

#[tokio::test]
async fn logs_are_messages_of_a_websocket() {
    let ca = authority();
    let identity = ca
        .issue(&Leaf::user("kubelet-client", &[], validity()))
        .unwrap();
    let kubelet = Some(KubeletClient {
        trust: ca.trust(),
        identity,
    });
    let api = start_with(Settings {
        kubelet,
        ..settings()
    })
    .await;
    let log = get(async |uri: http::Uri| format!("log {}", uri.query().unwrap()));
    let node = Router::new().route("/containerLogs/default/p/c", log);
    let clients = ClientCertificates::Required(ca.trust());
    let address = serve(&api, &ca, "n", clients, node).await;
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port()}}}});
    api.create("/api/v1/nodes", object).await;
    let pods = "/api/v1/namespaces/default/pods";
    let mut bound = pod("p");
    bound["spec"]["nodeName"] = "n".into();
    api.create(pods, bound).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    api.tasks
        .spawn(axum::serve(listener, api.router_of_test()).into_future());

    let path = format!("{pods}/p/log?tailLines=5");
    let expected = "log tailLines=5";
    let encoded = STANDARD.encode(expected);
    for (protocol, kind, payload) in [
        ("binary.k8s.io", 0x82, expected),
        ("base64.binary.k8s.io", 0x81, &*encoded),
    ] {
        let sent = websocket(server, &path, protocol).await;
        let text = String::from_utf8_lossy(&sent);
        assert!(text.starts_with("HTTP/1.1 101 "), "{text}");
        let header = format!("sec-websocket-protocol: {protocol}\r\n");
        assert!(text.to_lowercase().contains(&header), "{text}");
        let length = u8::try_from(payload.len()).unwrap();
        let message = [&[kind, length], payload.as_bytes(), &[0x88, 0]].concat();
        assert!(sent.ends_with(&message), "{text}");
    }
    // A pod that does not exist is refused before the upgrade.
    let (code, _) = api.get(&format!("{pods}/none/log")).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
    api.stop.cancel();
}

/// `kubectl` against a server, with a user's certificate.
struct Kubectl {
    folder: tempfile::TempDir,
}

impl Kubectl {
    fn new(ca: &Authority, address: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let user = ca
            .issue(&Leaf::user("ann", &["system:masters"], validity()))
            .unwrap();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://{address}"),
                "certificate-authority-data": bundle(ca)}}],
            "users": [{"name": "u", "user": {
                "client-certificate-data": STANDARD.encode(user.certificate_pem()),
                "client-key-data": STANDARD.encode(user.key_pem())}}],
        });
        std::fs::write(folder.path().join("config"), config.to_string()).unwrap();
        Self { folder }
    }

    async fn run(&self, arguments: &str, input: &str) -> String {
        let output = self.output(arguments, input).await;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The errors of a command that must fail.
    async fn fail(&self, arguments: &str, input: &str) -> String {
        let output = self.output(arguments, input).await;
        assert!(!output.status.success(), "kubectl {arguments}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    async fn output(&self, arguments: &str, input: &str) -> std::process::Output {
        use tokio::io::AsyncWriteExt as _;
        let home: &Path = self.folder.path();
        let mut child = tokio::process::Command::new("/usr/bin/kubectl")
            .args(arguments.split(' '))
            .env("KUBECONFIG", home.join("config"))
            .env("HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .await
            .unwrap();
        let deadline = std::time::Duration::from_mins(1);
        let output = tokio::time::timeout(deadline, child.wait_with_output()).await;
        output
            .unwrap_or_else(|_| panic!("kubectl {arguments} hangs"))
            .unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_applies_reads_explains_waits_and_deletes() {
    let api = start().await;
    let ca = authority();
    let clients = ClientCertificates::Optional(ca.trust());
    let address = serve(&api, &ca, "localhost", clients, api.api.router()).await;
    let kubectl = Kubectl::new(&ca, address);
    let applied = kubectl.run("apply -f -", &definition().to_string()).await;
    assert_eq!(
        applied,
        "customresourcedefinition.apiextensions.k8s.io/widgets.example.com created\n"
    );
    kubectl
        .run(
            "wait --for=condition=Established crd/widgets.example.com",
            "",
        )
        .await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget",
                        "metadata": {"name": "w"}, "spec": {"size": 7}});
    kubectl.run("apply -f -", &widget.to_string()).await;
    let again = kubectl.run("apply -f -", &widget.to_string()).await;
    assert_eq!(again, "widget.example.com/w unchanged\n");
    assert_eq!(kubectl.run("get wd", "").await, "NAME   SIZE\nw      7\n");
    kubectl.run("apply -f -", &pod("p").to_string()).await;
    kubectl
        .run("apply --server-side -f -", &config_map("a").to_string())
        .await;
    let wide = kubectl.run("get pods -o wide", "").await;
    let fields: Vec<&str> = wide.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        fields.first().zip(fields.get(2)),
        Some((&"p", &"Pending")),
        "{wide}"
    );
    let description = kubectl.run("describe pod p", "").await;
    assert!(description.contains("BestEffort"), "{description}");
    let description = kubectl.run("describe wd w", "").await;
    assert!(description.contains("Size:"), "{description}");
    let explained = kubectl.run("explain pod.spec.containers.image", "").await;
    assert!(explained.contains("Container image name"), "{explained}");
    let explained = kubectl.run("explain widgets.spec.size", "").await;
    assert!(explained.contains("FIELD: size <integer>"), "{explained}");
    let resources = kubectl
        .run("api-resources --api-group=example.com", "")
        .await;
    assert!(resources.contains("widgets   wd"), "{resources}");
    assert!(
        kubectl
            .run("auth can-i create pods", "")
            .await
            .starts_with("yes")
    );
    kubectl.run("scale wd/w --replicas=2", "").await;
    kubectl.run("label pod p tier=x", "").await;
    assert_eq!(
        kubectl.run("get pods -l tier=x -o name", "").await,
        "pod/p\n"
    );
    kubectl.run("delete pod/p configmap/a wd/w", "").await;
    kubectl.run("delete crd widgets.example.com", "").await;
    kubectl.run("create namespace n", "").await;
    kubectl
        .run("create configmap m --from-literal=k=v -n n", "")
        .await;
    assert_eq!(
        kubectl.run("get cm m -n n -o jsonpath={.data.k}", "").await,
        "v"
    );
    kubectl
        .run("create secret generic s --from-literal=k=v -n n", "")
        .await;
    assert_eq!(
        kubectl
            .run("get secret s -n n -o jsonpath={.data.k}", "")
            .await,
        "dg=="
    );
    kubectl.run("delete namespace n", "").await;
    api.stop.cancel();
}

/// kubectl looks for an unknown kind in the document of version 2, which it reads as protobuf.
#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_version_two_of_the_schemas() {
    let api = start().await;
    let ca = authority();
    let clients = ClientCertificates::Optional(ca.trust());
    let address = serve(&api, &ca, "localhost", clients, api.api.router()).await;
    let kubectl = Kubectl::new(&ca, address);
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
                            "spec": {}});
    let failure = kubectl.fail("create -f -", &deployment.to_string()).await;
    let expected = "no matches for kind \"Deployment\" in version \"apps/v1\"";
    assert!(failure.contains(expected), "{failure}");
    let mut wrong = config_map("a");
    wrong["dat"] = json!({});
    let failure = kubectl.fail("create -f -", &wrong.to_string()).await;
    assert!(failure.contains("unknown field \"dat\""), "{failure}");
    let explain = "explain --output=plaintext-openapiv2 pod.spec.containers";
    let explained = kubectl.run(explain, "").await;
    assert!(
        explained.contains("RESOURCE: containers <[]Object>"),
        "{explained}"
    );
    assert!(explained.contains("Container image name"), "{explained}");
    api.stop.cancel();
}
