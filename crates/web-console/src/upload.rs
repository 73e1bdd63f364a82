//! Passes a file to the upload proxy: the page cannot reach it, as it has another address and a certificate that
//! browsers do not know.
//!
//! Invariants: the address comes from CDI's configuration alone; the token of the upload goes there and nothing
//! else of the browser's headers; the file is passed on as it arrives and never held.

use std::{io, time::Duration};

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::Request,
    response::Response,
};
use error_chain::error_chain;
use futures::{Stream, StreamExt as _, stream};
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use hyper_util::{
    client::legacy::{Client as Http, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    api::{Api, ApiResource, DynamicObject, GroupVersionKind},
    client::ConfigExt as _,
};
use serving::Trust;

use crate::respond;

/// The token of the upload; `Authorization` has the key of the tab.
const TOKEN: HeaderName = HeaderName::from_static("x-upload-token");
/// The path that answers when the disk is complete.
const PATH: &str = "/v1beta1/upload";
/// The longest answer of the proxy, in bytes.
const ANSWER: usize = 64 << 10;
const CONNECT: Duration = Duration::from_secs(10);
/// Silence after which the connection is checked.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How long a browser may send nothing: places for uploads are few.
const SILENCE: Duration = Duration::from_mins(2);

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

/// The chunks of a body, which ends with an error when the sender falls silent.
fn chunks(body: Body) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::try_unfold(
        body.into_data_stream(),
        async |mut data| match tokio::time::timeout(SILENCE, data.next()).await {
            Ok(Some(Ok(chunk))) => Ok(Some((chunk, data))),
            Ok(None) => Ok(None),
            Ok(Some(Err(error))) => Err(io::Error::other(error)),
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
        },
    )
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
    let refusal = |what: &str, why: String| {
        let message = format!("{what} the upload proxy {}: {why}", proxy.url);
        Refusal(StatusCode::BAD_GATEWAY, message)
    };
    let mut config = Config::new(Uri::from_static("https://proxy"));
    if let Some(pem) = &proxy.authority {
        let certificates = Trust::from_pem(pem.as_str()).certificates();
        let certificates = certificates.map_err(|error| refusal("trust", error_chain(&error)))?;
        let certificates = certificates.iter().map(|one| one.as_ref().to_vec());
        config.root_cert = Some(certificates.collect());
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(CONNECT));
    // It says nothing for long while it converts a disk.
    connector.set_keepalive(Some(KEEPALIVE));
    let connector = config
        .rustls_https_connector_with_connector(connector)
        .map_err(|error| refusal("trust", error_chain(&error)))?;
    let server = Http::builder(TokioExecutor::new()).build(connector);
    let response = server.request(request).await;
    let response = response.map_err(|error| refusal("reach", error_chain(&error)))?;
    Ok(response.map(Body::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silent_sender_ends_the_upload() {
        let sent = || {
            let chunks = [Bytes::from_static(b"a"), Bytes::from_static(b"b")];
            stream::iter(chunks.map(Ok::<_, io::Error>))
        };
        let all: Vec<_> = chunks(Body::from_stream(sent())).collect().await;
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(Result::is_ok));
        let silent = Body::from_stream(sent().chain(stream::pending()));
        let all: Vec<_> = chunks(silent).collect().await;
        assert_eq!(all.len(), 3);
        let error = all[2].as_ref().expect_err("silence");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
