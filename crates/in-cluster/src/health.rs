//! The server for the kubelet's probes and for Prometheus.

use std::net::{Ipv4Addr, SocketAddr};

use ::metrics::{CONTENT_TYPE, Table, render};
use anyhow::{Context, Result};
use axum::{Router, routing::get};
use http::header;
use jiff::{SignedDuration, Timestamp};
use serving::{Authority, ClientCertificates, Leaf, Server, TlsSource, Validity};
use tokio::net::TcpListener;

use crate::run::Process;

/// Neither the kubelet nor Prometheus, as `KubeVirt` sets it up, verifies the certificate, so it is
/// self-signed and outlives the pod.
const LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 365 * 10);

/// Serves `/healthz` and `/metrics` to every caller until the process stops.
pub(crate) async fn serve(process: &Process, port: u16, tables: Vec<&'static Table>) -> Result<()> {
    let listener = listen(port).await?;
    let validity = Validity::starting(Timestamp::now(), LIFETIME);
    let identity =
        Authority::create("health", validity)?.issue(&Leaf::server("health", validity))?;
    let tls = TlsSource::fixed(&identity, &ClientCertificates::Ignored)?;
    process
        .tasks
        .spawn(Server::new(listener, tls, router(tables)).run(process.stop.clone()));
    Ok(())
}

fn router(tables: Vec<&'static Table>) -> Router {
    let metrics = move || async move { ([(header::CONTENT_TYPE, CONTENT_TYPE)], render(&tables)) };
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/metrics", get(metrics))
}

/// Listens on all addresses of the pod.
pub(crate) async fn listen(port: u16) -> Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
        .await
        .with_context(|| format!("listen on port {port}"))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Request;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::metrics;

    #[tokio::test]
    async fn each_component_serves_its_metrics() {
        for (tables, name) in [
            (metrics::api(), "ferrovirt_virt_api_webhook_reviews_total"),
            (metrics::controller(), "ferrovirt_reconcile_queue_depth"),
            (metrics::handler(), "ferrovirt_virt_handler_guests"),
        ] {
            assert_eq!(::metrics::problems(&tables), Vec::<String>::new());
            let request = Request::get("/metrics").body(Body::empty()).unwrap();
            let response = router(tables).oneshot(request).await.unwrap();
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
