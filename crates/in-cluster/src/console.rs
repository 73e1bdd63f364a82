//! The web console for all users, on a port of its own: virt-api's own paths are those that the page asks the API
//! server for.

use anyhow::Result;
use jiff::Timestamp;
use serving::{ClientCertificates, Identity, Server, TlsSource, TlsSwap};
use web_console::{Access, Console, Hosts, router};

use crate::{client, health, run::Process};

/// Serves the console until the process stops. Returns how to replace its certificate.
pub(crate) async fn serve(process: &Process, port: u16, identity: &Identity) -> Result<TlsSwap> {
    let console = Console {
        access: Access::Tokens {
            client: client::without_credentials().await?,
        },
        now: Timestamp::now,
        tasks: process.tasks.clone(),
        stop: process.stop.clone(),
    };
    let listener = health::listen(port).await?;
    let (swap, tls) = TlsSource::swappable(identity, &ClientCertificates::Ignored)?;
    let server = Server::new(listener, tls, router(console, Hosts::any()));
    process.tasks.spawn(server.run(process.stop.clone()));
    Ok(swap)
}
