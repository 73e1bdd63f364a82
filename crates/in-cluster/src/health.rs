//! Answers the kubelet whether this process serves.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use axum::{Router, routing::get};
use jiff::{SignedDuration, Timestamp};
use serving::{Authority, ClientCertificates, Leaf, Server, TlsSource, Validity};
use tokio::net::TcpListener;

use crate::run::Process;

/// The kubelet does not look at the certificate, so nobody signs it but ourselves.
const LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 365 * 10);

/// Serves `/healthz` until the process stops.
pub(crate) async fn serve(process: &Process, port: u16) -> Result<()> {
    let listener = listen(port).await?;
    let validity = Validity::starting(Timestamp::now(), LIFETIME);
    let identity =
        Authority::create("health", validity)?.issue(&Leaf::server("health", validity))?;
    let tls = TlsSource::fixed(&identity, &ClientCertificates::Ignored)?;
    let router = Router::new().route("/healthz", get(|| async { "ok" }));
    process
        .tasks
        .spawn(Server::new(listener, tls, router).run(process.stop.clone()));
    Ok(())
}

/// Any address of the pod.
pub(crate) async fn listen(port: u16) -> Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
        .await
        .with_context(|| format!("listen on port {port}"))
}
