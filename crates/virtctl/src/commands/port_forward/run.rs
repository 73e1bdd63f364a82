//! The command: opens the local ports and serves them until it is interrupted.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use futures::future::try_join_all;
use tokio::net::{TcpListener, UdpSocket};

use super::{copy, tcp, udp};
use crate::{
    cli::PortForward,
    connect::Cluster,
    ports::{self, ForwardTarget, ForwardedPort, Protocol},
    printer::Printer,
    subresource::{self, NotOpened, Stream},
};

/// The guest of the command.
#[derive(Clone, Copy)]
pub(super) struct Guest<'a> {
    cluster: &'a Cluster,
    target: &'a ForwardTarget,
}

impl Guest<'_> {
    /// Opens a stream to a port of the guest.
    pub(super) async fn open(&self, port: ForwardedPort) -> Result<Stream> {
        let ForwardTarget { plural, name, .. } = self.target;
        let verb = format!("portforward/{}/{}", port.target, port.protocol);
        let path = subresource::path(self.cluster, plural, name, &verb);
        let opened = subresource::open(&self.cluster.client, &path).await;
        opened.map_err(|error| match error {
            NotOpened::Missing(message) | NotOpened::NotRunning(message) => {
                anyhow::anyhow!(message)
            }
            NotOpened::Failed(error) => error,
        })
    }
}

pub(crate) async fn port_forward(
    cluster: &Cluster,
    printer: Printer,
    options: &PortForward,
) -> Result<()> {
    let PortForward {
        target,
        ports,
        address,
        stdio,
    } = options;
    let mut cluster = cluster.clone();
    if let Some(namespace) = &target.namespace {
        cluster.namespace.clone_from(namespace);
    }
    let guest = Guest {
        cluster: &cluster,
        target,
    };
    if *stdio {
        let [port] = ports.as_slice() else {
            bail!("--stdio forwards one port: give one");
        };
        let stream = guest.open(*port).await?;
        return copy::with_standard_streams(stream).await;
    }
    let served = ports.iter().map(async |port| {
        let at = (*address, port.local);
        let failed = |error| {
            let at = SocketAddr::new(*address, port.local);
            ports::not_offered(&format!("{at} ({})", port.protocol), error)
        };
        match port.protocol {
            Protocol::Tcp => {
                let listener = TcpListener::bind(at).await.map_err(failed)?;
                let local = listener.local_addr().context("read the local port")?;
                printer.line(&format!("Forwarding from {local} -> {}", port.target));
                tcp::serve(guest, printer, *port, listener).await
            }
            Protocol::Udp => {
                let socket = UdpSocket::bind(at).await.map_err(failed)?;
                let local = socket.local_addr().context("read the local port")?;
                printer.line(&format!("Forwarding from {local} -> {} (udp)", port.target));
                udp::serve(guest, printer, *port, socket).await
            }
        }
    });
    try_join_all(served).await.map(drop)
}
