//! The client of the API server, which notices that nobody is at the other end any more.
//!
//! A network that is cut tells neither end. A watch, which only listens, would listen for minutes after
//! the network is back; and what was sent into the cut is sent again ever more rarely.

use std::time::Duration;

use anyhow::{Context, Result};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Client as Http, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt, retry::RetryPolicy},
};
use tower::{BoxError, ServiceBuilder, retry::RetryLayer};

use crate::rights::{self, Refused};

/// A connection that was silent for so long is asked for a sign of life, and again after as long.
const PROBE: Duration = Duration::from_secs(5);
/// So many questions without an answer, and the connection is dead.
const PROBES: u32 = 3;
/// Whatever was sent must be confirmed within this time.
const SILENCE: Duration = Duration::from_secs(15);
/// To answer the first packet.
const CONNECT: Duration = Duration::from_secs(5);

/// The one of the pod's service account, which tells of what it was refused.
pub(crate) async fn own(refused: Refused) -> Result<Client> {
    let config = Config::infer()
        .await
        .context("find the API server: this command is for a pod with a service account")?;
    of(&config, refused)
}

fn of(config: &Config, refused: Refused) -> Result<Client> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_keepalive(Some(PROBE));
    connector.set_keepalive_interval(Some(PROBE));
    connector.set_keepalive_retries(Some(PROBES));
    connector.set_tcp_user_timeout(Some(SILENCE));
    let connector = config
        .rustls_https_connector_with_connector(connector)
        .context("set up TLS to the API server")?;
    // An API server that lives and says nothing.
    let mut connector = TimeoutConnector::new(connector);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let http: Http<_, Body> = Http::builder(TokioExecutor::new()).build(connector);
    let account = config
        .auth_layer()
        .context("read who we are to the API server")?;
    let service = ServiceBuilder::new()
        .and_then(move |answer| rights::noted(answer, refused.clone()))
        .layer(config.base_uri_layer())
        .layer(RetryLayer::new(RetryPolicy::server_retry()))
        .option_layer(account)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
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
    async fn what_is_refused_is_noted_and_whoever_asked_hears_all_of_it() {
        let refusal = "pods is forbidden: User \"me\" cannot list resource \"pods\" in API group \"\" in \
                       the namespace \"a\"";
        let quota = "pods \"x\" is forbidden: exceeded quota: none";
        let answers = Router::new()
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
        let serving = axum::serve(listener, answers);
        let (refused, mut noted) = rights::refusals();
        let config = Config::new(format!("http://{address}").parse().unwrap());
        let client = of(&config, refused).unwrap();
        let asking = async {
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
            let right = noted.try_recv().unwrap();
            assert_eq!(right.to_string(), "list pods in namespace a");
            assert!(noted.try_recv().is_err(), "a quota is no right");
        };
        tokio::select! {
            ended = serving => panic!("{ended:?}"),
            () = asking => {}
        }
    }
}
