//! `ferrovirt handler`.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use reconcile::Clock;
use tokio::sync::watch;
use virt_handler::{
    Capabilities, DeviceFiles, DevicePlugins, HostDevice, MediatedDevices, PermittedDevices,
    Settings,
};

use crate::{certificate, cli, guest_certificate, health, metrics, run::Process};

/// Guests that may use a device at the same time: more than a node can run.
const MAX_DEVICES: u32 = 1000;

pub(crate) async fn run(process: &Process, flags: &cli::Handler) -> Result<()> {
    let capabilities = capabilities(flags)?;
    let facts = capabilities.facts();
    tracing::info!(
        node = flags.node,
        kvm = facts.kvm,
        reason = facts.kvm_reason,
        "capabilities of this node"
    );
    let plugins = DevicePlugins {
        dir: flags.kubelet.join("device-plugins"),
        max_devices: MAX_DEVICES,
        devices: HostDevice::USUAL.to_vec(),
        kvm: watch::Sender::new(facts.kvm).subscribe(),
    };
    process.tasks.spawn(plugins.run(process.stop.clone()));
    let permitted = PermittedDevices {
        dir: flags.kubelet.join("device-plugins"),
        files: DeviceFiles::of_host_of_pod(),
        configuration: process.cluster.clone(),
    };
    process.tasks.spawn(permitted.run(process.stop.clone()));
    let mediated = MediatedDevices {
        client: process.client.clone(),
        node: flags.node.clone(),
        files: DeviceFiles::of_host_of_pod(),
        configuration: process.cluster.clone(),
    };
    process.tasks.spawn(mediated.run(process.stop.clone()));
    health::serve(process, flags.metrics_port, metrics::handler()).await?;
    let listener = health::listen(flags.port).await?;
    let ends = certificate::serve(process, &flags.node).await?;
    let settings = Settings {
        client: process.client.clone(),
        node: flags.node.clone(),
        pods_dir: flags.kubelet.join("pods"),
        capabilities,
        listener,
        address: SocketAddr::new(flags.address, flags.port),
        tls: ends.server,
        peers: Some(ends.client),
        guests: guest_certificate::keep(process, &flags.node),
        cluster: process.cluster.clone(),
        clock: Clock::system(),
    };
    virt_handler::run(settings, process.stop.clone())
        .await
        .context("virt-handler ended")
}

/// The first capabilities with a cache: a probe with a broken `/dev/kvm` leaves none, the next one, without the
/// device, does.
fn capabilities(flags: &cli::Handler) -> Result<Capabilities> {
    let mut last = None;
    for dir in &flags.capabilities {
        let found = Capabilities::load(dir)?;
        if found.facts().capabilities_cache_file.is_some() {
            return Ok(found);
        }
        last = Some(found);
    }
    last.context("--capabilities names no directory")
}
