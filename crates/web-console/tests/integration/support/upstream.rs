//! The API server as the console reaches it, with verbs served by virt-api and devices by the test.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::Response,
};
use embedded_api::Identity;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use test_cluster::TestApi;
use tokio::net::TcpListener;
use tower::ServiceExt as _;

use super::{devices, webhooks::Webhooks};

/// The requests that arrived: method and path, headers.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<(String, HeaderMap)>>>);

impl Log {
    /// The headers of the last request with this method and path.
    pub(crate) fn last(&self, request: &str) -> Option<HeaderMap> {
        let all = self.0.lock();
        let found = all.iter().rev().find(|(line, _)| line == request);
        found.map(|(_, headers)| headers.clone())
    }
}

#[derive(Clone)]
struct Server {
    objects: Router,
    devices: Router,
    verbs: Webhooks,
    user: Identity,
    log: Log,
}

/// Serves on a local port, with every request made by this user. Credentials are rejected in namespace
/// `expired`.
pub(super) async fn serve(api: &TestApi, verbs: Webhooks, user: Identity, log: Log) -> SocketAddr {
    let server = Server {
        objects: api.router(),
        devices: devices::router(),
        verbs,
        user,
        log,
    };
    let router = Router::new().fallback(answer).with_state(server);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = api.stop.clone();
    api.tasks.spawn(async move {
        let served = axum::serve(listener, router);
        let served = served.with_graceful_shutdown(async move { stop.cancelled().await });
        served.await.unwrap();
    });
    address
}

async fn answer(State(server): State<Server>, mut request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let line = format!("{} {path}", request.method());
    server.log.0.lock().push((line, request.headers().clone()));
    if path.contains("/namespaces/expired/") {
        let mut rejected =
            Response::new(Body::from(r#"{"kind":"Status","message":"Unauthorized"}"#));
        *rejected.status_mut() = StatusCode::UNAUTHORIZED;
        return rejected;
    }
    if ["/console", "/vnc", "/usage"]
        .iter()
        .any(|device| path.ends_with(device))
    {
        return server.devices.oneshot(request).await.unwrap();
    }
    if path.starts_with("/apis/subresources.kubevirt.io/") {
        let headers = request.headers_mut();
        headers.insert("x-remote-user", server.user.user.parse().unwrap());
        for group in &server.user.groups {
            headers.append("x-remote-group", group.parse().unwrap());
        }
        let sent = server.verbs.front_proxy.send(&server.verbs.target, request);
        return sent.await.unwrap().map(Body::new);
    }
    request.extensions_mut().insert(server.user);
    server.objects.oneshot(request).await.unwrap()
}
