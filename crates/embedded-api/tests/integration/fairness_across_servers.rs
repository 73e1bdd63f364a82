//! Fairness where other servers take part: streams of kubelets, and webhooks that ask back.
#![expect(clippy::unwrap_used, reason = "a test fails so")]

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Extension, Json, Router,
    body::Body,
    extract::Request,
    response::Response,
    routing::{get, post},
};
use embedded_api::{Identity, KubeletClient, Settings};
use futures::future::join_all;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use serving::{ClientCertificates, Leaf, upgrade};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Barrier,
};
use tower::ServiceExt as _;

use crate::{
    fairness::permit,
    other_servers::{authority, bundle, serve, service, validity, webhooks},
    support::*,
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// Of each try to open a stream when another was closed.
const DEADLINE: Duration = Duration::from_mins(1);

/// Accepts a stream, and ends it with its client.
async fn accept(mut request: Request) -> Response {
    let stream = upgrade::take(&mut request);
    tokio_util::task::TaskTracker::new().spawn(upgrade::carry(stream, tokio::io::empty()));
    upgrade::accept("websocket")
}

/// A log without an end.
async fn follow() -> Body {
    Body::from_stream(futures::stream::pending::<Result<bytes::Bytes, axum::Error>>())
}

/// A server with the pod `p` on a node. Its clients on the socket are this user.
async fn start_with_node(user: &str) -> (Running, SocketAddr) {
    let ca = authority();
    let leaf = Leaf::user("kubelet-client", &[], validity());
    let kubelet = Some(KubeletClient {
        trust: ca.trust(),
        identity: ca.issue(&leaf).unwrap(),
    });
    let api = start_with(Settings {
        kubelet,
        ..settings()
    })
    .await;
    let node = Router::new()
        .route("/exec/default/p/c", get(accept))
        .route("/portForward/default/p", get(accept))
        .route("/containerLogs/default/p/c", get(follow));
    let clients = ClientCertificates::Required(ca.trust());
    let address = serve(&api, &ca, "n", clients, node).await;
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port()}}}});
    api.create("/api/v1/nodes", object).await;
    let mut bound = pod("p");
    bound["spec"]["nodeName"] = "n".into();
    api.create(PODS, bound).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let router = api.api.router().layer(Extension(Identity::new(user, &[])));
    api.tasks.spawn(axum::serve(listener, router).into_future());
    (api, server)
}

/// The stream and the answer to the request for it.
async fn open(server: SocketAddr, path: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(server).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") && !answer.ends_with(b"}") {
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
    }
    (stream, String::from_utf8(answer).unwrap())
}

#[tokio::test]
async fn open_streams_of_a_user_are_limited() {
    let (api, server) = start_with_node("ann").await;
    permit(&api, &["ann"]).await;
    for (path, limit, message) in [
        ("exec?command=sh", 128, "too many open streams"),
        ("log?follow=true", 256, "too many open watches"),
    ] {
        let path = format!("{PODS}/p/{path}");
        let mut held = Vec::new();
        for number in 0..limit {
            let (stream, answer) = open(server, &path).await;
            assert!(answer.starts_with("HTTP/1.1 101"), "{number}: {answer}");
            held.push(stream);
        }
        let (_, answer) = open(server, &path).await;
        assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
        assert!(answer.contains("retry-after: 1"), "{answer}");
        assert!(
            answer.contains("\"reason\":\"TooManyRequests\""),
            "{answer}"
        );
        assert!(answer.contains(message), "{answer}");
        // The place of a stream that was closed is free again.
        drop(held.pop());
        let opened = async { while !open(server, &path).await.1.starts_with("HTTP/1.1 101") {} };
        tokio::time::timeout(DEADLINE, opened).await.unwrap();
    }
    api.stop.cancel();
}

#[tokio::test]
async fn kinds_of_streams_share_their_limit() {
    let (api, server) = start_with_node("ann").await;
    permit(&api, &["ann"]).await;
    let mut held = Vec::new();
    for _ in 0..128 {
        let (stream, answer) = open(server, &format!("{PODS}/p/portforward?ports=80")).await;
        assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
        held.push(stream);
    }
    let (_, answer) = open(server, &format!("{PODS}/p/exec?command=sh")).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    // Requests and watches have their own limits.
    let ann = Identity::new("ann", &[]);
    let (code, _) = api.as_user(&ann, Method::GET, PODS, Value::Null).await;
    assert_eq!(code, StatusCode::OK);
    api.stop.cancel();
}

#[tokio::test]
async fn webhook_may_send_requests_of_the_user_whose_requests_it_reviews() {
    const AT_ONCE: usize = 20;
    let api = start().await;
    permit(&api, &["ann"]).await;
    let (router, all) = (api.api.router(), Arc::new(Barrier::new(AT_ONCE)));
    let review = async move |Json(review): Json<Value>| {
        all.wait().await;
        let mut own = http::Request::get(PODS).body(Body::empty()).unwrap();
        own.extensions_mut().insert(Identity::new("ann", &[]));
        let answer = router.clone().oneshot(own).await.unwrap();
        Json(
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": review["request"]["uid"], "allowed": answer.status().is_success()}}),
        )
    };
    let ca = authority();
    let hooks = Router::new().route("/validate", post(review));
    let clients = ClientCertificates::Ignored;
    let address = serve(&api, &ca, "backend.default.svc", clients, hooks).await;
    service(&api, address).await;
    let hooks = webhooks("ValidatingWebhookConfiguration", "validate", &bundle(&ca));
    let group = "/apis/admissionregistration.k8s.io/v1";
    api.create(&format!("{group}/validatingwebhookconfigurations"), hooks)
        .await;
    let ann = Identity::new("ann", &[]);
    let created = (0..AT_ONCE).map(|number| {
        let map = config_map(&format!("m{number}"));
        api.as_user(&ann, Method::POST, MAPS, map)
    });
    for (code, answer) in join_all(created).await {
        assert_eq!(code, StatusCode::CREATED, "{answer}");
    }
    api.stop.cancel();
}
