//! The embedded API server, in this process and in memory.
//!
//! Its background tasks do not run: a kube-apiserver alone has no controllers that collect garbage or empty
//! namespaces either.

use anyhow::{Context as _, Result};
use embedded_api::{Clock, Database, EmbeddedApi, Identity, ServiceSettings, Settings};
use kube::Client;

/// A client of a new, empty server.
pub(super) async fn start() -> Result<Client> {
    let api = EmbeddedApi::open(Settings {
        database: Database::Memory,
        clock: Clock::Wall,
        front_proxy: None,
        kubelet: None,
        services: ServiceSettings::usual(),
    })
    .await
    .context("open the embedded API server")?;
    Ok(api.client(Identity::component("differential"), "default"))
}
