//! The web console for all users, on a port of its own: what pods and services show behind the API server's proxy
//! has another origin.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use jiff::Timestamp;
use kube::{Client, Config};
use serving::{ClientCertificates, Server, Trust};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use web_console::{Access, Console, Hosts, router};

use super::certificates::Certificates;
use crate::kubeconfig;

/// Opens the port, if there is to be a console, before anything is changed.
pub(super) async fn listen(address: Option<SocketAddr>) -> Result<Option<TcpListener>> {
    let Some(address) = address else {
        return Ok(None);
    };
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!(
            "--console {address}: give an address of this host and a port that no other program has"
        )
    });
    listener.map(Some)
}

/// Serves the console; the address for users.
pub(super) fn serve(
    listener: Option<TcpListener>,
    (api_server, certificates): (SocketAddr, &Certificates),
    (tasks, stop): (&TaskTracker, &CancellationToken),
) -> Result<Option<String>> {
    let Some(listener) = listener else {
        return Ok(None);
    };
    let address = listener.local_addr().context("read the console's port")?;
    let console = Console {
        access: Access::Tokens {
            client: client(api_server, &certificates.first().users)?,
        },
        now: Timestamp::now,
        tickets: None,
        tasks: tasks.clone(),
        stop: stop.clone(),
    };
    let tls = certificates.server(|own| &own.api_server, |_| ClientCertificates::Ignored)?;
    let server = Server::new(listener, tls, router(console, Hosts::any()));
    tasks.spawn(server.run(stop.clone()));
    Ok(Some(format!("{}/console/", kubeconfig::url(address))))
}

/// A client without credentials: each request has the token of its user.
fn client(api_server: SocketAddr, users: &Trust) -> Result<Client> {
    let url = kubeconfig::url(api_server);
    let mut config = Config::new(url.parse().with_context(|| format!("parse {url}"))?);
    let certificates = users.certificates().context("read the host's authority")?;
    let certificates = certificates.iter().map(|one| one.as_ref().to_vec());
    config.root_cert = Some(certificates.collect());
    Client::try_from(config).context("make the console's client")
}
