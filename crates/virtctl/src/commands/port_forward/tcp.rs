//! A local TCP port.

use anyhow::{Context, Result};
use futures::{StreamExt, stream::FuturesUnordered};
use tokio::net::{TcpListener, TcpStream};

use super::{copy, run::Guest};
use crate::{ports::ForwardedPort, printer::Printer};

/// Serves connections until the listener fails. The failure of one connection is reported and closes it.
pub(super) async fn serve(
    guest: Guest<'_>,
    printer: Printer,
    port: ForwardedPort,
    listener: TcpListener,
) -> Result<()> {
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (local, _) = accepted.context("accept a connection")?;
                connections.push(connection(guest, port, local));
            }
            Some(ended) = connections.next() => {
                if let Err(error) = ended {
                    printer.note(&format!("port {}: {error:#}", port.target));
                }
            }
        }
    }
}

async fn connection(guest: Guest<'_>, port: ForwardedPort, local: TcpStream) -> Result<()> {
    local.set_nodelay(true).context("set up the connection")?;
    let stream = guest.open(port).await?;
    copy::with_connection(stream, local).await
}
