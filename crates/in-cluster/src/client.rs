//! The client of the API server, with keep-alive probes and time-outs that detect a dead connection.
//!
//! An interrupted network notifies neither end. Without probes, a watch, which only receives, would wait for
//! minutes after the network has recovered, and unacknowledged data would be sent again ever more rarely.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use anyhow::{Context as _, Result};
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Client as Http, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt, retry::RetryPolicy},
    config::AuthInfo,
};
use tower::{BoxError, Service, ServiceBuilder, retry::RetryLayer};

use crate::rights::{self, Refused, Right};

/// Idle time until the first keep-alive probe, and the interval of further probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Unanswered probes after which the connection is closed.
const KEEPALIVE_PROBES: u32 = 3;
/// Time limit for the acknowledgement of sent data.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The client with the pod's service account; reports the rights of refused requests.
pub(crate) async fn in_pod(refused: &Refused) -> Result<Client> {
    let config = Config::infer()
        .await
        .context("find the API server: this command is for a pod with a service account")?;
    of(&config, refused)
}

/// A client without credentials, for requests that have their own.
pub(crate) async fn without_credentials() -> Result<Client> {
    let mut config = Config::infer().await.context("find the API server")?;
    config.auth_info = AuthInfo::default();
    Client::try_from(config).context("make a client without credentials")
}

fn of(config: &Config, refused: &Refused) -> Result<Client> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    connector.set_tcp_user_timeout(Some(ACKNOWLEDGE_TIMEOUT));
    let connector = config
        .rustls_https_connector_with_connector(connector)
        .context("set up TLS to the API server")?;
    // Detects an API server that keeps the connection and does not respond.
    let mut connector = TimeoutConnector::new(connector);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let http: Http<_, Body> = Http::builder(TokioExecutor::new()).build(connector);
    let account = config
        .auth_layer()
        .context("read the credentials of the service account")?;
    let service = ServiceBuilder::new()
        .layer_fn(|inner| ReportRefusals {
            inner,
            refused: refused.clone(),
        })
        .layer(config.base_uri_layer())
        .layer(RetryLayer::new(RetryPolicy::server_retry()))
        .option_layer(account)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// Reports the rights of refused requests; requests and responses pass unchanged.
#[derive(Clone)]
struct ReportRefusals<S> {
    inner: S,
    refused: Refused,
}

impl<S, B> Service<Request<B>> for ReportRefusals<S>
where
    S: Service<Request<B>, Response = Response<Incoming>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<Either<Incoming, Full<Bytes>>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let right = Right::of(&request);
        let (response, refused) = (self.inner.call(request), self.refused.clone());
        Box::pin(async move { rights::report_refusal(response.await?, right, refused).await })
    }
}

#[cfg(test)]
mod tests {
    use axum::{Json, Router, http::StatusCode, routing::get};
    use k8s_openapi::api::core::v1::Pod;
    use kube::{Api, api::ListParams};
    use serde_json::{Value, json};
    use tokio::net::TcpListener;

    use super::*;

    fn status(code: StatusCode, message: &str) -> (StatusCode, Json<Value>) {
        let text = json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure",
            "code": code.as_u16(), "reason": "Forbidden", "message": message,
        });
        (code, Json(text))
    }

    #[tokio::test]
    async fn refused_right_is_reported_and_the_caller_gets_the_response() {
        let refusal = "pods is forbidden: User \"me\" cannot list resource \"pods\" in API group \"\" in \
                       the namespace \"a\"";
        let quota = "pods \"x\" is forbidden: exceeded quota: none";
        let responses = Router::new()
            .route(
                "/api/v1/namespaces/a/pods",
                get(move || async move { status(StatusCode::FORBIDDEN, refusal) }),
            )
            .route(
                "/api/v1/namespaces/b/pods",
                get(move || async move { status(StatusCode::FORBIDDEN, quota) }),
            )
            .route(
                "/api/v1/namespaces/c/pods",
                get(|| async { Json(json!({"metadata": {}, "items": []})) }),
            );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = axum::serve(listener, responses);
        let (refused, mut reported) = rights::refusals();
        let config = Config::new(format!("http://{address}").parse().unwrap());
        let client = of(&config, &refused).unwrap();
        let requests = async {
            let list = |namespace| {
                let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
                async move { api.list(&ListParams::default()).await }
            };
            for (namespace, expected) in [("a", refusal), ("b", quota)] {
                match list(namespace).await {
                    Err(kube::Error::Api(status)) => assert_eq!(status.message, expected),
                    other => panic!("{other:?}"),
                }
            }
            assert!(list("c").await.unwrap().items.is_empty());
            let right = reported.try_recv().unwrap();
            assert_eq!(right.to_string(), "list pods in namespace a");
            assert!(
                reported.try_recv().is_err(),
                "an exceeded quota is not a missing right"
            );
        };
        tokio::select! {
            ended = serving => panic!("{ended:?}"),
            () = requests => {}
        }
    }
}
