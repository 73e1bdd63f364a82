//! Passes a file to the upload proxy: the page cannot reach it, as it has another address and a certificate that
//! browsers do not know.
//!
//! Invariants: the address comes from CDI's configuration alone; the token of the upload goes there and nothing
//! else of the browser's headers; the file is passed on as it arrives and never held.

use axum::{
    body::{Body, to_bytes},
    extract::Request,
    response::Response,
};
use error_chain::error_chain;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use kube::{
    Client,
    api::{Api, ApiResource, DynamicObject, GroupVersionKind},
};

use crate::{
    remote::{self, Failure, chunks},
    respond,
};

/// The token of the upload; `Authorization` has the key of the tab.
const TOKEN: HeaderName = HeaderName::from_static("x-upload-token");
/// The path that answers when the disk is complete.
const PATH: &str = "/v1beta1/upload";
/// The longest answer of the proxy, in bytes.
const ANSWER: usize = 64 << 10;

/// Where files are sent, and whom to trust there.
struct Proxy {
    url: String,
    /// PEM; the authorities of the system if there is none.
    authority: Option<String>,
}

/// Why a file cannot be sent.
struct Refusal(StatusCode, String);

/// Sends the body of a request to the proxy and returns its answer.
pub(crate) async fn upload(client: &Client, request: Request) -> Response {
    match send(client, request).await {
        Ok(response) => response,
        Err(Refusal(code, message)) => respond::error(code, &message),
    }
}

async fn send(client: &Client, request: Request) -> Result<Response, Refusal> {
    if *request.method() != Method::POST {
        let message = "a file is sent by POST".to_owned();
        return Err(Refusal(StatusCode::METHOD_NOT_ALLOWED, message));
    }
    let token = request.headers().get(TOKEN).cloned();
    let Some(token) = token.and_then(|token| bearer(&token)) else {
        let message = "the request has no token of an upload".to_owned();
        return Err(Refusal(StatusCode::BAD_REQUEST, message));
    };
    let proxy = proxy(client).await?;
    let mut outgoing = http::Request::builder()
        .method(Method::POST)
        .uri(format!("{}{PATH}", proxy.url.trim_end_matches('/')))
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .header(header::AUTHORIZATION, token);
    if let Some(length) = request.headers().get(header::CONTENT_LENGTH) {
        outgoing = outgoing.header(header::CONTENT_LENGTH, length);
    }
    let outgoing = outgoing
        .body(Body::from_stream(chunks(request.into_body())))
        .map_err(|error| {
            let message = format!(
                "CDI's configuration names the upload proxy {}: {error}",
                proxy.url
            );
            Refusal(StatusCode::BAD_GATEWAY, message)
        })?;
    let response = exchange(&proxy, outgoing).await?;
    let code = response.status();
    let body = to_bytes(response.into_body(), ANSWER).await;
    // The code alone decides; a cut message is no further failure.
    let message = body
        .map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
        .unwrap_or_default();
    if code.is_success() {
        return Ok(respond::json(StatusCode::OK, &serde_json::json!({})));
    }
    // The proxy rejects the token of the upload, not that of the tab.
    let code = match code {
        StatusCode::UNAUTHORIZED => StatusCode::FORBIDDEN,
        code => code,
    };
    Err(Refusal(code, message))
}

fn bearer(token: &HeaderValue) -> Option<HeaderValue> {
    let text = token.to_str().ok().filter(|text| !text.is_empty())?;
    let mut value = HeaderValue::try_from(format!("Bearer {text}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The proxy that CDI's configuration names, read with the rights of the user.
async fn proxy(client: &Client) -> Result<Proxy, Refusal> {
    let kind = GroupVersionKind::gvk("cdi.kubevirt.io", "v1beta1", "CDIConfig");
    let configurations: Api<DynamicObject> =
        Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let found = match configurations.get_opt("config").await {
        Ok(found) => found,
        // The server does not have the kind.
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        Err(kube::Error::Api(status)) => {
            let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::BAD_GATEWAY);
            let message = format!("read CDI's configuration: {}", status.message);
            return Err(Refusal(code, message));
        }
        Err(error) => return Err(Refusal(StatusCode::BAD_GATEWAY, error_chain(&error))),
    };
    let text = |field: &str| {
        let value = found.as_ref()?.data["status"][field].as_str()?;
        (!value.is_empty()).then(|| value.to_owned())
    };
    let Some(url) = text("uploadProxyURL") else {
        let message = "this server receives no uploads: CDI's configuration (CDIConfig config) names no upload \
                       proxy";
        return Err(Refusal(StatusCode::NOT_IMPLEMENTED, message.to_owned()));
    };
    let url = if url.contains("://") {
        url
    } else {
        format!("https://{url}")
    };
    let authority = text("uploadProxyCA");
    Ok(Proxy { url, authority })
}

/// Sends a request to the proxy, whose certificate is checked.
async fn exchange(
    proxy: &Proxy,
    request: http::Request<Body>,
) -> Result<http::Response<Body>, Refusal> {
    let response = remote::exchange(proxy.authority.as_deref(), request).await;
    response.map_err(|Failure { tried, why }| {
        let message = format!("{tried} the upload proxy {}: {why}", proxy.url);
        Refusal(StatusCode::BAD_GATEWAY, message)
    })
}
