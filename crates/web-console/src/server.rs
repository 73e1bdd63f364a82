//! The server: its files, the sign-in, and the requests that it passes on.

use std::{fmt, io, sync::Arc};

use axum::{
    Router,
    body::to_bytes,
    extract::{Request, State},
    response::Response,
};
use http::{Method, StatusCode, header};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use serde::Deserialize;
use serde_json::json;
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    access::Access,
    assets,
    download::{self, Download},
    explain::explain,
    forward::{self, Upstream},
    headers,
    origin::Hosts,
    paths, respond,
    seal::TicketKey,
    tickets::Tickets,
    upload,
};

/// The exchange of a link has only a link in its body.
const LINK_LIMIT: usize = 1 << 10;
const WHY: &str = "/console/why/";
/// Consoles and screens that are open at once, of all users together.
const STREAMS: usize = 256;
/// Files that are received at once, of all users together.
const UPLOADS: usize = 16;

/// The parts of the server.
#[derive(Clone)]
pub struct Console {
    pub access: Access,
    /// The time, for diagnoses and tickets.
    pub now: fn() -> Timestamp,
    /// Shared with the replicas of this server, if it has any.
    pub tickets: Option<TicketKey>,
    /// Owns the streams that are open.
    pub tasks: TaskTracker,
    pub stop: CancellationToken,
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console")
            .field("access", &self.access.name())
            .finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Shared {
    console: Console,
    hosts: Hosts,
    streams: Arc<Semaphore>,
    uploads: Arc<Semaphore>,
    tickets: Arc<Tickets<Download>>,
}

/// Serves one user on a local port, until stopped.
pub async fn serve(listener: TcpListener, console: Console) -> io::Result<()> {
    let router = router(console.clone(), Hosts::of(listener.local_addr()?));
    let stop = console.stop.clone();
    axum::serve(listener, router)
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .await
}

/// The routes of a server that is known by these names.
pub fn router(console: Console, hosts: Hosts) -> Router {
    Router::new().fallback(answer).with_state(Shared {
        console,
        hosts,
        streams: Arc::new(Semaphore::new(STREAMS)),
        uploads: Arc::new(Semaphore::new(UPLOADS)),
        tickets: Arc::default(),
    })
}

async fn answer(State(shared): State<Shared>, request: Request) -> Response {
    if let Some(why) = shared.hosts.reject(request.uri(), request.headers()) {
        return respond::error(StatusCode::FORBIDDEN, why);
    }
    let access = &shared.console.access;
    let path = request.uri().path();
    match path {
        "/" | "/console" => return respond::to_page(),
        "/console/sign-in" => {
            return respond::json(StatusCode::OK, &json!({"method": access.name()}));
        }
        "/console/session" => return redeem(access, request).await,
        _ => {}
    }
    if let Some(asset) = assets::find(path) {
        return file(request.method(), asset);
    }
    if let Some(ticket) = path.strip_prefix(download::DOWNLOAD) {
        let served = download::serve(&shared.tickets, &shared.console, request.method(), ticket);
        return Box::pin(served).await;
    }
    let Some(client) = access.client(request.headers()) else {
        return respond::unauthorized(access.invitation());
    };
    if let Some(subject) = path.strip_prefix(WHY) {
        let now = Time((shared.console.now)());
        return Box::pin(explain(&client, now, request.method(), subject)).await;
    }
    if path == download::TICKET {
        return Box::pin(download::issue(
            &client,
            (&shared.tickets, &shared.console),
            request,
        ))
        .await;
    }
    if path == "/console/upload" {
        let Ok(_place) = shared.uploads.try_acquire() else {
            return respond::error(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many uploads at once; try again later",
            );
        };
        return Box::pin(upload::upload(&client, request)).await;
    }
    let Some(pass) = paths::pass(request.method(), path) else {
        return respond::error(StatusCode::NOT_FOUND, "the console does not use this path");
    };
    let upstream = Upstream {
        client,
        streams: shared.streams,
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

#[derive(Deserialize)]
struct Exchange {
    link: String,
}

async fn redeem(access: &Access, request: Request) -> Response {
    let Access::Links {
        sessions,
        namespace,
        ..
    } = access
    else {
        let message = "this server has no links: sign in with a token";
        return respond::error(StatusCode::NOT_FOUND, message);
    };
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
    match sessions.redeem(&exchange.link) {
        Ok(Some(key)) => {
            let answer = json!({"key": key, "namespace": namespace});
            respond::json(StatusCode::OK, &answer)
        }
        Ok(None) => respond::unauthorized(
            "the link was used already, or is an old one: open the link that virtctl printed last",
        ),
        Err(error) => respond::error(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}
