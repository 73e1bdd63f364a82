//! The web console for all users, on a port of its own: virt-api's own paths are those that the page asks the API
//! server for.

use anyhow::Result;
use jiff::Timestamp;
use serving::{ClientCertificates, Identity, Server, TlsSource, TlsSwap};
use web_console::{Access, Console, Hosts, TicketKey, router};

use crate::{client, health, run::Process};

/// What is replaced while the console runs.
pub(crate) struct Replaceable {
    pub(crate) certificate: TlsSwap,
    pub(crate) tickets: TicketKey,
}

/// Serves the console until the process stops. All replicas have the secret.
pub(crate) async fn serve(
    process: &Process,
    port: u16,
    (identity, secret): (&Identity, &str),
) -> Result<Replaceable> {
    let tickets = TicketKey::of(secret);
    let console = Console {
        access: Access::Tokens {
            client: client::without_credentials().await?,
        },
        now: Timestamp::now,
        tickets: Some(tickets.clone()),
        tasks: process.tasks.clone(),
        stop: process.stop.clone(),
    };
    let listener = health::listen(port).await?;
    let (certificate, tls) = TlsSource::swappable(identity, &ClientCertificates::Ignored)?;
    let server = Server::new(listener, tls, router(console, Hosts::any()));
    process.tasks.spawn(server.run(process.stop.clone()));
    Ok(Replaceable {
        certificate,
        tickets,
    })
}
