//! The server for the kubelet's probes, for Prometheus, and for tools that wait for a configuration.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use ::metrics::{CONTENT_TYPE, Table, render};
use anyhow::{Context, Result};
use axum::{Json, Router, routing::get};
use cluster_view::Configuration;
use http::{StatusCode, header};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serving::{Authority, ClientCertificates, Leaf, Server, TlsSource, Validity};
use tokio::net::TcpListener;

use crate::run::Process;

/// Neither the kubelet nor Prometheus, as `KubeVirt` sets it up, verifies the certificate, so it is
/// self-signed and outlives the pod.
const LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 365 * 10);

/// Serves `/livez`, `/healthz` and `/metrics` to every caller until the process stops.
pub(crate) async fn serve(process: &Process, port: u16, tables: Vec<&'static Table>) -> Result<()> {
    let listener = listen(port).await?;
    let validity = Validity::starting(Timestamp::now(), LIFETIME);
    let identity =
        Authority::create("health", validity)?.issue(&Leaf::server("health", validity))?;
    let tls = TlsSource::fixed(&identity, &ClientCertificates::Ignored)?;
    let router = router(process.client.clone(), process.cluster.clone(), tables);
    process
        .tasks
        .spawn(Server::new(listener, tls, router).run(process.stop.clone()));
    Ok(())
}

fn router(client: Client, configuration: Configuration, tables: Vec<&'static Table>) -> Router {
    let health = move || {
        let (client, configuration) = (client.clone(), configuration.clone());
        async move {
            let health = cluster_view::health(&client, &[configuration]).await;
            let code = if health.is_healthy {
                StatusCode::OK
            } else {
                StatusCode::INTERNAL_SERVER_ERROR
            };
            (code, Json(health.body))
        }
    };
    let metrics = move || async move { ([(header::CONTENT_TYPE, CONTENT_TYPE)], render(&tables)) };
    Router::new()
        // A restart of the pod does not help against an unreachable API server, so the kubelet does not ask for it.
        .route("/livez", get(|| async { "ok" }))
        .route("/healthz", get(health.clone()))
        // Tools that follow a change of the configuration join host and path with a slash too many.
        .route("//healthz", get(health))
        .route("/metrics", get(metrics))
}

/// Listens on all addresses of the pod, of both families where the node has both: a network for migrations may have
/// another one than that of the pods.
pub(crate) async fn listen(port: u16) -> Result<TcpListener> {
    let bound = match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await,
    };
    bound.with_context(|| format!("listen on port {port}"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Body;
    use http::Request;
    use http_body_util::BodyExt as _;
    use serde_json::{Value, json};
    use tower::ServiceExt as _;

    use super::*;
    use crate::metrics;

    #[tokio::test]
    async fn both_families_are_served() {
        let listener = listen(0).await.unwrap();
        let address = listener.local_addr().unwrap();
        let port = address.port();
        let v4 = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
        assert!(v4.is_ok(), "{v4:?}");
        // The computer of the test may have no IPv6 at all.
        if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
            let v6 = tokio::net::TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await;
            assert!(v6.is_ok(), "{v6:?}");
        }
    }

    /// An API server that answers requests for its version with that code.
    fn server(code: u16) -> Client {
        let version = r#"{"major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "",
            "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}"#;
        let service = tower::service_fn(move |request: Request<kube::client::Body>| async move {
            assert_eq!(request.uri().path(), "/version");
            let response = http::Response::builder().status(code);
            Ok::<_, Infallible>(response.body(Body::from(version)).unwrap())
        });
        Client::new(service, "kubevirt")
    }

    #[tokio::test]
    async fn health_reports_the_configuration_and_the_api_server() {
        for (code, status, expected) in [
            (200, 200, json!({"connectivity": "ok", "config": "0"})),
            (503, 500, json!({"connectivity": "failed", "config": null})),
        ] {
            let router = router(server(code), Configuration::new("kubevirt"), Vec::new());
            let get = |path: &str| {
                let request = Request::get(path).body(Body::empty()).unwrap();
                router.clone().oneshot(request)
            };
            assert_eq!(get("/livez").await.unwrap().status(), 200);
            assert_eq!(get("//healthz").await.unwrap().status(), status);
            let response = get("/healthz").await.unwrap();
            assert_eq!(response.status(), status);
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            let found: Value = serde_json::from_slice(&bytes).unwrap();
            let found = json!({
                "connectivity": found["apiserver"]["connectivity"],
                "config": found["config-resource-version"],
            });
            assert_eq!(found, expected);
        }
    }

    #[tokio::test]
    async fn each_component_serves_its_metrics() {
        for (tables, name) in [
            (metrics::api(), "ferrovirt_virt_api_webhook_reviews_total"),
            (metrics::controller(), "ferrovirt_reconcile_queue_depth"),
            (metrics::handler(), "ferrovirt_virt_handler_guests"),
        ] {
            assert_eq!(::metrics::problems(&tables), Vec::<String>::new());
            let request = Request::get("/metrics").body(Body::empty()).unwrap();
            let router = router(server(200), Configuration::new("kubevirt"), tables);
            let response = router.oneshot(request).await.unwrap();
            let media_type = response.headers()[header::CONTENT_TYPE].to_str().unwrap();
            assert_eq!(media_type, CONTENT_TYPE);
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            for line in [format!("# TYPE {name} "), "process_open_fds ".to_owned()] {
                assert!(text.contains(&line), "{line}\n{text}");
            }
        }
    }
}
