//! Requests to servers other than the API server: the upload proxy and export servers.

use std::{fmt, io, time::Duration};

use axum::body::{Body, Bytes};
use error_chain::error_chain;
use futures::{Stream, StreamExt as _, stream};
use http::Uri;
use hyper_util::{
    client::legacy::{Client as Http, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{Config, client::ConfigExt as _};
use serving::Trust;

const CONNECT: Duration = Duration::from_secs(10);
/// Silence after which the connection is checked.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How long a sender may send nothing: places are few.
const SILENCE: Duration = Duration::from_mins(2);

/// What was tried, shown as a verb before the name of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tried {
    Trust,
    Reach,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trust => "trust",
            Self::Reach => "reach",
        })
    }
}

/// What was tried, and why it failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) tried: Tried,
    pub(crate) why: String,
}

/// Sends a request to a server whose certificate is checked by this authority (PEM), or by those of the system.
pub(crate) async fn exchange(
    authority: Option<&str>,
    request: http::Request<Body>,
) -> Result<http::Response<Body>, Failure> {
    let failure = |tried: Tried, why: String| Failure { tried, why };
    let mut config = Config::new(Uri::from_static("https://server"));
    if let Some(pem) = authority {
        let certificates = Trust::from_pem(pem).certificates();
        let certificates =
            certificates.map_err(|error| failure(Tried::Trust, error_chain(&error)))?;
        let certificates = certificates.iter().map(|one| one.as_ref().to_vec());
        config.root_cert = Some(certificates.collect());
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(CONNECT));
    // The upload proxy says nothing for long while it converts a disk.
    connector.set_keepalive(Some(KEEPALIVE));
    let connector = config
        .rustls_https_connector_with_connector(connector)
        .map_err(|error| failure(Tried::Trust, error_chain(&error)))?;
    let server = Http::builder(TokioExecutor::new()).build(connector);
    let response = server.request(request).await;
    let response = response.map_err(|error| failure(Tried::Reach, error_chain(&error)))?;
    Ok(response.map(Body::new))
}

/// The chunks of a body, which ends with an error when the sender falls silent.
pub(crate) fn chunks(body: Body) -> impl Stream<Item = io::Result<Bytes>> + Send {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silent_sender_ends_the_body() {
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
