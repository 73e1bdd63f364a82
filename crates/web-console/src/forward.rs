//! Passes a request to the API server, and its response back.
//!
//! Invariant: the user's credentials come from the client alone. Of the browser's headers only those pass
//! that describe the content; none can name a user, a group or a credential.

use std::sync::Arc;

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::Request,
    response::Response,
};
use error_chain::error_chain;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts};
use kube::{Client, client::Body as ClientBody};
use serving::upgrade;
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{headers, paths::Pass, respond};

/// The API server's own limit for objects.
const BODY_LIMIT: usize = 3 << 20;
/// The subprotocol in which a page can send a key, as it cannot set headers of a websocket. The same as
/// the API server's.
const KEY_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

const CONTENT: [HeaderName; 2] = [header::ACCEPT, header::CONTENT_TYPE];
const HANDSHAKE: [HeaderName; 4] = [
    header::CONNECTION,
    header::UPGRADE,
    header::SEC_WEBSOCKET_KEY,
    header::SEC_WEBSOCKET_VERSION,
];
const RETURNED: [HeaderName; 3] = [header::CONTENT_TYPE, header::WARNING, header::RETRY_AFTER];
const RETURNED_HANDSHAKE: [HeaderName; 4] = [
    header::CONNECTION,
    header::UPGRADE,
    header::SEC_WEBSOCKET_ACCEPT,
    header::SEC_WEBSOCKET_PROTOCOL,
];

/// What forwarding needs besides the request.
#[derive(Clone)]
pub(crate) struct Upstream {
    /// With the rights of the user.
    pub(crate) client: Client,
    /// Bounds the streams that are open.
    pub(crate) streams: Arc<Semaphore>,
    /// Own the copying of streams.
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

/// The key in the subprotocols of a websocket, still encoded.
pub(crate) fn key_in_protocols(headers: &HeaderMap) -> Option<&str> {
    protocols(headers).find_map(|protocol| protocol.strip_prefix(KEY_PROTOCOL))
}

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL);
    let texts = values.into_iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',').map(str::trim))
}

pub(crate) async fn forward(upstream: &Upstream, pass: Pass, mut request: Request) -> Response {
    let is_stream = upgrade::is_upgrade(request.headers());
    if is_stream != (pass == Pass::Stream) {
        let message = "this path is a websocket, or is none; the page asks otherwise";
        return respond::error(StatusCode::BAD_REQUEST, message);
    }
    let place = Arc::clone(&upstream.streams).try_acquire_owned();
    let place = match (is_stream, place) {
        (true, Err(_)) => {
            let message = "too many consoles and screens are open at once; close one";
            return respond::error(StatusCode::SERVICE_UNAVAILABLE, message);
        }
        (true, Ok(place)) => Some(place),
        (false, _) => None,
    };
    let caller = is_stream.then(|| upgrade::take(&mut request));
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_LIMIT).await else {
        let message = "the request was cut off, or has more than 3 MiB";
        return respond::error(StatusCode::PAYLOAD_TOO_LARGE, message);
    };
    let Some(outgoing) = outgoing(parts, body, pass) else {
        return respond::error(
            StatusCode::BAD_REQUEST,
            "the request has a malformed header",
        );
    };
    let mut response = match upstream.client.send(outgoing).await {
        Ok(response) => response,
        Err(error) => {
            let message = format!("call the API server: {}", error_chain(&error));
            return respond::error(StatusCode::BAD_GATEWAY, &message);
        }
    };
    let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let kept = kept(response.headers(), &RETURNED);
    let handshake = switches.then(|| self::kept(response.headers(), &RETURNED_HANDSHAKE));
    response.headers_mut().clear();
    let mut response = match caller {
        Some(caller) if switches => upgrade::join_holding(
            caller,
            response,
            &upstream.tasks,
            upstream.stop.clone(),
            place,
        ),
        _ => response.map(Body::new),
    };
    response.headers_mut().extend(kept);
    response.headers_mut().extend(handshake.unwrap_or_default());
    headers::for_data(response.headers_mut());
    response
}

/// The request as the API server gets it, before the client adds the user's credentials.
fn outgoing(parts: Parts, body: Bytes, pass: Pass) -> Option<http::Request<ClientBody>> {
    let mut headers = kept(&parts.headers, &CONTENT);
    if pass == Pass::Stream {
        headers.extend(kept(&parts.headers, &HANDSHAKE));
        let protocols: Vec<&str> = protocols(&parts.headers)
            .filter(|protocol| !protocol.starts_with(KEY_PROTOCOL))
            .collect();
        let value = HeaderValue::from_str(&protocols.join(", ")).ok()?;
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, value);
    }
    let path = parts.uri.path_and_query()?.as_str();
    let mut outgoing = http::Request::builder()
        .method(parts.method)
        .uri(path)
        .body(ClientBody::from(body))
        .ok()?;
    *outgoing.headers_mut() = headers;
    Some(outgoing)
}

fn kept(headers: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for name in names {
        for value in headers.get_all(name) {
            kept.append(name, value.clone());
        }
    }
    kept
}
