//! The server of one user, on a local port.

use std::{fmt, io, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::to_bytes,
    extract::{Request, State},
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use error_chain::error_chain;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, StatusCode, header};
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    assets,
    forward::{self, Upstream},
    headers,
    origin::Hosts,
    paths, respond,
    sessions::Sessions,
};

/// The exchange of a link has only a link in its body.
const LINK_LIMIT: usize = 1 << 10;
const WHY: &str = "/console/why/";

/// A VM or VMI by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub namespace: String,
    pub name: String,
}

/// Finds why a VM does not run, with the user's own rights.
pub trait Explain: Send + Sync + 'static {
    /// `None` if there is neither a VM nor a VMI of that name.
    fn explain(&self, subject: Subject) -> BoxFuture<'_, Result<Option<Value>, kube::Error>>;
}

/// The parts of the server.
#[derive(Clone)]
pub struct Console {
    /// With the user's credentials.
    pub client: Client,
    /// The namespace that the page shows first.
    pub namespace: String,
    pub sessions: Arc<Sessions>,
    pub explain: Arc<dyn Explain>,
    /// Owns the streams that are open.
    pub tasks: TaskTracker,
    pub stop: CancellationToken,
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Shared {
    console: Console,
    hosts: Hosts,
}

/// Serves until stopped.
pub async fn serve(listener: TcpListener, console: Console) -> io::Result<()> {
    let router = router(console.clone(), listener.local_addr()?);
    let stop = console.stop.clone();
    axum::serve(listener, router)
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .await
}

/// The routes of a server that listens at this address.
pub fn router(console: Console, address: SocketAddr) -> Router {
    let hosts = Hosts::of(address);
    Router::new()
        .fallback(answer)
        .with_state(Shared { console, hosts })
}

async fn answer(State(shared): State<Shared>, request: Request) -> Response {
    if let Some(why) = shared.hosts.reject(request.headers()) {
        return respond::error(StatusCode::FORBIDDEN, why);
    }
    let path = request.uri().path();
    match path {
        "/" | "/console" => return respond::to_page(),
        "/console/session" => return redeem(&shared.console, request).await,
        _ => {}
    }
    if let Some(asset) = assets::find(path) {
        return file(request.method(), asset);
    }
    if !is_signed_in(&shared.console.sessions, request.headers()) {
        let message = "not signed in: open the link that virtctl printed last";
        return respond::unauthorized(message);
    }
    if let Some(subject) = path.strip_prefix(WHY) {
        return explain(&shared.console, request.method(), subject).await;
    }
    let Some(pass) = paths::pass(request.method(), path) else {
        return respond::error(StatusCode::NOT_FOUND, "the console does not use this path");
    };
    let upstream = Upstream {
        client: shared.console.client,
        tasks: shared.console.tasks,
        stop: shared.console.stop,
    };
    Box::pin(forward::forward(&upstream, pass, request)).await
}

fn file(method: &Method, asset: assets::Asset) -> Response {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return respond::error(StatusCode::METHOD_NOT_ALLOWED, "files can only be read");
    }
    let mut response = Response::new(axum::body::Body::from(asset.content));
    let kind = http::HeaderValue::from_static(asset.media_type);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    headers::for_page(response.headers_mut());
    response
}

/// The key of the tab, in the header or, for a websocket, in a subprotocol.
fn is_signed_in(sessions: &Sessions, headers: &HeaderMap) -> bool {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let key = value
            .to_str()
            .ok()
            .and_then(|text| text.strip_prefix("Bearer "));
        return key.is_some_and(|key| sessions.knows(key));
    }
    let encoded = forward::key_in_protocols(headers);
    let decoded = encoded.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
    let key = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    key.is_some_and(|key| sessions.knows(&key))
}

#[derive(Deserialize)]
struct Exchange {
    link: String,
}

async fn redeem(console: &Console, request: Request) -> Response {
    if *request.method() != Method::POST {
        return respond::error(
            StatusCode::METHOD_NOT_ALLOWED,
            "a link is exchanged by POST",
        );
    }
    let body = to_bytes(request.into_body(), LINK_LIMIT).await.ok();
    let exchange: Option<Exchange> = body.and_then(|body| serde_json::from_slice(&body).ok());
    let Some(exchange) = exchange else {
        return respond::error(
            StatusCode::BAD_REQUEST,
            "the body must be {\"link\": \"…\"}",
        );
    };
    match console.sessions.redeem(&exchange.link) {
        Ok(Some(key)) => {
            let answer = json!({"key": key, "namespace": console.namespace});
            respond::json(StatusCode::OK, &answer)
        }
        Ok(None) => respond::unauthorized(
            "the link was used already, or is an old one: open the link that virtctl printed last",
        ),
        Err(error) => respond::error(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

async fn explain(console: &Console, method: &Method, subject: &str) -> Response {
    let Some((namespace, name)) = subject.split_once('/').filter(|_| *method == Method::GET) else {
        let message = "ask by GET for /console/why/NAMESPACE/NAME";
        return respond::error(StatusCode::BAD_REQUEST, message);
    };
    if !paths::is_name(namespace) || !paths::is_name(name) {
        return respond::error(
            StatusCode::BAD_REQUEST,
            "a name has characters that no name has",
        );
    }
    let subject = Subject {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    match console.explain.explain(subject).await {
        Ok(Some(diagnosis)) => respond::json(StatusCode::OK, &diagnosis),
        Ok(None) => {
            let message = format!("there is no VM and no VMI {name:?} in namespace {namespace:?}");
            respond::error(StatusCode::NOT_FOUND, &message)
        }
        Err(kube::Error::Api(status)) => {
            let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::BAD_GATEWAY);
            respond::error(code, &status.message)
        }
        Err(error) => respond::error(StatusCode::BAD_GATEWAY, &error_chain(&error)),
    }
}
