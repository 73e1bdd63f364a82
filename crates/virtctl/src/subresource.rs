//! Requests to the aggregated API.

use std::fmt;

use anyhow::{Context, Result, bail};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use serde::Serialize;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::protocol::{CloseFrame, Role},
};

use crate::connect::Cluster;

/// The sub-protocol of all streams.
const PROTOCOL: &str = "plain.kubevirt.io";
/// A server of ours names the device here whose other session it closed.
const REPLACED: &str = "x-ferrovirt-replaced-session";
/// Any sixteen bytes: the key only proves that the server speaks the protocol.
const KEY: &str = "ZmVycm92aXJ0dmlydGN0bA==";
/// The message of API servers about a kind that they do not serve, in a group that they do.
const UNKNOWN_KIND: &str = "the server could not find the requested resource";
/// The whole answer of API servers for a path that they do not know.
const UNKNOWN_PATH: &str = "404 page not found";

pub(crate) type Stream = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// Why a stream was not opened.
#[derive(Debug)]
pub(crate) enum NotOpened {
    /// The guest does not exist, or not yet.
    Missing(String),
    /// The guest does not run, or does not have the device.
    NotRunning(String),
    Failed(anyhow::Error),
}

/// The path of a subresource.
pub(crate) fn path(cluster: &Cluster, plural: &str, name: &str, subresource: &str) -> String {
    let namespace = &cluster.namespace;
    format!(
        "/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/{plural}/{name}/{subresource}"
    )
}

/// Sends `PUT` with options.
pub(crate) async fn put(cluster: &Cluster, path: &str, options: &impl Serialize) -> Result<()> {
    let body = serde_json::to_vec(options).context("write the request")?;
    let request = Request::builder()
        .method(Method::PUT)
        .uri(path)
        .header(header::CONTENT_TYPE, "application/json")
        .body(body)
        .context("make the request")?;
    let answer = cluster.client.request_text(request).await;
    answer.map_err(|err| failed(path, err))?;
    Ok(())
}

/// Sends `GET` and returns the body.
pub(crate) async fn get(cluster: &Cluster, path: &str) -> Result<serde_json::Value> {
    let request = Request::get(path)
        .body(vec![])
        .context("make the request")?;
    let response = cluster.client.request::<serde_json::Value>(request).await;
    response.map_err(|err| failed(path, err))
}

/// Sends `GET` and returns a body of any type, of at most this many bytes.
pub(crate) async fn get_bytes(cluster: &Cluster, path: &str, limit: usize) -> Result<Vec<u8>> {
    let request = Request::get(path)
        .body(Body::empty())
        .context("make the request")?;
    let response = cluster.client.send(request).await.map_err(plain)?;
    if !response.status().is_success() {
        bail!(error_message(response).await);
    }
    let body = Limited::new(response.into_body(), limit).collect().await;
    let body = body.map_err(|err| anyhow::anyhow!(err).context("read the response"))?;
    Ok(body.to_bytes().to_vec())
}

/// A stream, and whether another session was closed for it.
pub(crate) struct Opened {
    pub(crate) stream: Stream,
    pub(crate) has_replaced: bool,
}

/// Opens a websocket to a port, which several sessions may use.
pub(crate) async fn open(client: &Client, path: &str) -> Result<Stream, NotOpened> {
    Ok(open_device(client, path).await?.stream)
}

/// Opens a websocket to a device, which has one session at a time.
pub(crate) async fn open_device(client: &Client, path: &str) -> Result<Opened, NotOpened> {
    let request = Request::builder()
        .uri(path)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::SEC_WEBSOCKET_KEY, KEY)
        .header(header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL)
        .body(Body::empty())
        .map_err(|err| NotOpened::Failed(err.into()))?;
    let mut response = client
        .send(request)
        .await
        .map_err(|err| NotOpened::Failed(plain(err)))?;
    let code = response.status();
    if code != StatusCode::SWITCHING_PROTOCOLS {
        let message = error_message(response).await;
        return Err(match code {
            StatusCode::NOT_FOUND => NotOpened::Missing(message),
            StatusCode::BAD_REQUEST => NotOpened::NotRunning(message),
            _ => NotOpened::Failed(anyhow::anyhow!(message)),
        });
    }
    let has_replaced = response.headers().contains_key(REPLACED);
    let upgraded = hyper::upgrade::on(&mut response).await.map_err(|err| {
        NotOpened::Failed(anyhow::Error::new(err).context("upgrade to a websocket"))
    })?;
    let upgraded = TokioIo::new(upgraded);
    Ok(Opened {
        stream: WebSocketStream::from_raw_socket(upgraded, Role::Client, None).await,
        has_replaced,
    })
}

/// The reason in a close frame, if the session did not end as usual.
pub(crate) fn close_reason(frame: Option<&CloseFrame>) -> Option<String> {
    let reason = frame?.reason.as_str();
    // A mark for clients that look for it in the message.
    let reason = reason.strip_prefix("EOF: ").unwrap_or(reason);
    (!reason.is_empty()).then(|| reason.to_owned())
}

/// The message of a `Status`, or the whole body.
async fn error_message(response: http::Response<Body>) -> String {
    let code = response.status();
    let bytes = match response.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(err) => return format!("{code}, and the response was cut off: {err}"),
    };
    let message = serde_json::from_slice(&bytes)
        .ok()
        .and_then(|status| message_of(&status));
    let message =
        message.unwrap_or_else(|| format!("{code}: {}", String::from_utf8_lossy(&bytes).trim()));
    if code == StatusCode::UNAUTHORIZED {
        unauthorized(&message)
    } else {
        message
    }
}

/// Servers do not say what is wrong with credentials.
fn unauthorized(message: &str) -> String {
    format!(
        "the server does not accept your credentials ({message}): if they have expired, get new ones, or name \
         others with --token or --context"
    )
}

/// The message of a `Status` and the fields that are the cause.
fn message_of(status: &serde_json::Value) -> Option<String> {
    let message = status.get("message")?.as_str()?;
    let causes = status["details"]["causes"].as_array();
    let causes = causes.into_iter().flatten().map(|cause| {
        let text = |field: &str| cause[field].as_str().unwrap_or_default();
        format!(" ({}: {})", text("field"), text("message"))
    });
    Some([message.to_owned()].into_iter().chain(causes).collect())
}

/// The message of a server, or of what stands before it, that cannot answer now.
#[derive(Debug)]
pub(crate) struct Unavailable(String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// An API error as one message.
pub(crate) fn plain(err: kube::Error) -> anyhow::Error {
    match err {
        kube::Error::Api(status) if status.code == StatusCode::UNAUTHORIZED.as_u16() => {
            anyhow::anyhow!(unauthorized(&status.message))
        }
        kube::Error::Api(status)
            if !status.message.is_empty() && matches!(status.code, 429 | 502..=504) =>
        {
            Unavailable(status.message).into()
        }
        kube::Error::Api(status) if !status.message.is_empty() => {
            anyhow::anyhow!(status.message)
        }
        err => anyhow::Error::new(err).context("call the API server"),
    }
}

/// Whether the server lacks the kind, and not an object of it.
pub(crate) fn is_unserved(status: &kube::core::Status) -> bool {
    [UNKNOWN_PATH, UNKNOWN_KIND].contains(&status.message.trim_end())
}

/// An error of a request to this path as one message, also if the server knows no such path.
pub(crate) fn failed(path: &str, err: kube::Error) -> anyhow::Error {
    match err {
        kube::Error::Api(status) if is_unserved(&status) => anyhow::anyhow!(unserved(path)),
        err => plain(err),
    }
}

/// What a server lacks that does not know this path, and what to do about it.
fn unserved(path: &str) -> String {
    let path = path.split_once('?').map_or(path, |(path, _query)| path);
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (group, version, plural) = match parts.as_slice() {
        ["apis", group, version, "namespaces", _, plural, ..]
        | ["apis", group, version, plural, ..] => (*group, *version, *plural),
        _ => return format!("the server does not serve {path}"),
    };
    let remedy = match group {
        "template.openshift.io" => "only OpenShift has them; name a file with --file instead",
        "cdi.kubevirt.io" | "upload.cdi.kubevirt.io" => "install CDI there",
        _ => "install or update Ferrovirt there, or name another cluster with --context",
    };
    format!("the server does not serve {plural} ({group}/{version}): {remedy}")
}

/// The parts of the name of the image for `guestfs`.
pub(crate) async fn guestfs(cluster: &Cluster) -> Result<serde_json::Value> {
    get(cluster, "/apis/subresources.kubevirt.io/v1/guestfs").await
}

/// The server's own version.
pub(crate) async fn version(cluster: &Cluster) -> Result<serde_json::Value> {
    let value = get(cluster, "/apis/subresources.kubevirt.io/v1/version").await?;
    if !value.is_object() {
        bail!("the server's version is malformed");
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn message_names_the_field_that_is_the_cause() {
        let cause = json!({"field": "spec.a", "message": "false: leave it out"});
        let status = json!({"message": "No screen.", "details": {"causes": [cause]}});
        assert_eq!(
            message_of(&status).unwrap(),
            "No screen. (spec.a: false: leave it out)"
        );
        assert_eq!(message_of(&json!({"message": "no"})).unwrap(), "no");
        assert_eq!(message_of(&json!({"code": 500})), None);
    }

    #[test]
    fn kind_that_the_server_lacks_is_named() {
        let backups = "/apis/backup.kubevirt.io/v1alpha1";
        let ferrovirt = "install or update Ferrovirt there, or name another cluster with --context";
        for (path, expected) in [
            (
                "/apis/template.openshift.io/v1/namespaces/a/templates/b".to_owned(),
                "templates (template.openshift.io/v1): only OpenShift has them; name a file with --file instead"
                    .to_owned(),
            ),
            (
                "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/config".to_owned(),
                "cdiconfigs (cdi.kubevirt.io/v1beta1): install CDI there".to_owned(),
            ),
            (
                format!("{backups}/virtualmachinebackups?limit=1"),
                format!("virtualmachinebackups (backup.kubevirt.io/v1alpha1): {ferrovirt}"),
            ),
            ("/api".to_owned(), "/api".to_owned()),
        ] {
            for message in [UNKNOWN_PATH, UNKNOWN_KIND] {
                let status = kube::core::Status::failure(message, "").with_code(404);
                let error = failed(&path, kube::Error::Api(status.boxed()));
                let expected = format!("the server does not serve {expected}");
                assert_eq!(error.to_string(), expected);
            }
        }
        let status = kube::core::Status::failure("a \"b\" not found", "NotFound").with_code(404);
        let error = failed("/apis/a/v1/b", kube::Error::Api(status.boxed()));
        assert_eq!(error.to_string(), "a \"b\" not found");
    }
}
