//! The API server as the console reaches it, with verbs served by virt-api and devices by the test.

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::Response,
};
use embedded_api::Identity;
use http::{HeaderMap, StatusCode, header};
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

/// Who sends the requests: one user, or the users of tokens.
#[derive(Clone, Default)]
pub(crate) struct Users {
    one: Option<Identity>,
    by_token: Arc<Mutex<HashMap<String, Identity>>>,
}

impl Users {
    pub(super) fn one(user: Identity) -> Self {
        Self {
            one: Some(user),
            ..Self::default()
        }
    }

    pub(super) fn are_many(&self) -> bool {
        self.one.is_none()
    }

    /// Accepts a token of a user.
    pub(crate) fn add(&self, token: &str, user: Identity) {
        self.by_token.lock().insert(token.to_owned(), user);
    }

    /// Accepts a token no longer.
    pub(crate) fn revoke(&self, token: &str) {
        self.by_token.lock().remove(token);
    }

    fn of(&self, headers: &HeaderMap) -> Option<Identity> {
        if self.one.is_some() {
            return self.one.clone();
        }
        let header = headers.get(header::AUTHORIZATION)?.to_str().unwrap();
        let token = header.strip_prefix("Bearer ").unwrap();
        self.by_token.lock().get(token).cloned()
    }
}

#[derive(Clone)]
struct Server {
    objects: Router,
    devices: Router,
    verbs: Webhooks,
    users: Users,
    log: Log,
}

/// Serves on a local port. Credentials are rejected in namespace
/// `expired`.
pub(super) async fn serve(api: &TestApi, verbs: Webhooks, users: Users, log: Log) -> SocketAddr {
    let server = Server {
        objects: api.router(),
        devices: devices::router(),
        verbs,
        users,
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
    let user = server.users.of(request.headers());
    let user = user.filter(|_| !path.contains("/namespaces/expired/"));
    let Some(user) = user else {
        let mut rejected =
            Response::new(Body::from(r#"{"kind":"Status","message":"Unauthorized"}"#));
        *rejected.status_mut() = StatusCode::UNAUTHORIZED;
        return rejected;
    };
    if ["/console", "/vnc", "/usage", "/uploadtokenrequests"]
        .iter()
        .any(|device| path.ends_with(device))
    {
        return server.devices.oneshot(request).await.unwrap();
    }
    if path.starts_with("/apis/subresources.kubevirt.io/") {
        let headers = request.headers_mut();
        headers.insert("x-remote-user", user.user.parse().unwrap());
        for group in &user.groups {
            headers.append("x-remote-group", group.parse().unwrap());
        }
        let sent = server.verbs.front_proxy.send(&server.verbs.target, request);
        return sent.await.unwrap().map(Body::new);
    }
    request.extensions_mut().insert(user);
    server.objects.oneshot(request).await.unwrap()
}
