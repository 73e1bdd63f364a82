//! Requests to an export server.

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use tower::BoxError;

use super::tunnel::Tunnel;
use crate::{
    connect::Cluster,
    https::{self, Trust, Unanswered},
    proxy::Proxies,
};

const TOKEN: &str = "x-kubevirt-export-token";
/// The longest message or manifest.
const TEXT: usize = 64 << 20;

/// A server and the right to ask it.
pub(super) struct Server {
    pub(super) trust: Trust,
    pub(super) token: String,
    /// How to reach it, if not by its address.
    pub(super) tunnel: Option<(Cluster, Tunnel)>,
    /// Those between this computer and its address.
    pub(super) proxies: Proxies,
}

/// Why there is no download.
#[derive(Debug)]
pub(super) enum Failed {
    /// The connection broke or the server is not ready; another attempt may succeed.
    Transient(anyhow::Error),
    Final(anyhow::Error),
}

impl Failed {
    pub(super) fn into_error(self) -> anyhow::Error {
        match self {
            Self::Transient(error) | Self::Final(error) => error,
        }
    }
}

impl Server {
    /// A text, such as a manifest.
    pub(super) async fn text(&self, url: &str, accept: &'static str) -> Result<String, Failed> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, http::HeaderValue::from_static(accept));
        let body = self.get(url, headers).await?.into_body();
        let body = Limited::new(body, TEXT).collect().await;
        let body = body.map_err(|err| Failed::Transient(anyhow::anyhow!(err)))?;
        Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
    }

    /// The answer to a request for data, if it is one of success.
    pub(super) async fn get(
        &self,
        url: &str,
        headers: HeaderMap,
    ) -> Result<Response<Incoming>, Failed> {
        self.checked(Method::GET, url, headers).await
    }

    /// What the server says about its data.
    pub(super) async fn head(&self, url: &str) -> Result<HeaderMap, Failed> {
        let response = self.checked(Method::HEAD, url, HeaderMap::new()).await?;
        Ok(response.into_parts().0.headers)
    }

    async fn checked(
        &self,
        method: Method,
        url: &str,
        headers: HeaderMap,
    ) -> Result<Response<Incoming>, Failed> {
        let response = self.send(method, url, headers).await?;
        let code = response.status();
        if code.is_success() {
            return Ok(response);
        }
        let body = Limited::new(response.into_body(), TEXT).collect().await;
        // The code alone decides; a cut message is no further failure.
        let message = body
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        let message = String::from_utf8_lossy(&message);
        let error = anyhow::anyhow!("the export server answered {code}: {}", message.trim());
        Err(if code.is_server_error() {
            Failed::Transient(error)
        } else {
            Failed::Final(error)
        })
    }

    async fn send(
        &self,
        method: Method,
        url: &str,
        headers: HeaderMap,
    ) -> Result<Response<Incoming>, Failed> {
        let mut request = Request::builder()
            .method(method)
            .uri(url)
            .body(Empty::<Bytes>::new())
            .with_context(|| format!("ask {url}"))
            .map_err(Failed::Final)?;
        *request.headers_mut() = headers;
        let token = http::HeaderValue::from_str(&self.token)
            .context("send the token of the export")
            .map_err(Failed::Final)?;
        request.headers_mut().insert(TOKEN, token);
        let response = match &self.tunnel {
            None => https::send(&self.trust, &self.proxies, request).await,
            Some((cluster, tunnel)) => {
                let (cluster, tunnel) = (cluster.clone(), tunnel.clone());
                let connector = tower::service_fn(move |_server: Uri| {
                    let opened = tunnel.clone().open(cluster.clone());
                    async { opened.await.map_err(BoxError::from) }
                });
                https::send_over(&self.trust, connector, request).await
            }
        };
        response.map_err(|unanswered| match unanswered {
            Unanswered::Unprepared(error) => Failed::Final(error),
            Unanswered::Broken(error) => {
                Failed::Transient(error.context(format!("reach the export server {url}")))
            }
        })
    }
}
