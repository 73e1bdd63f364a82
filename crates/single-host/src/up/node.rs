//! The host as a Kubernetes node.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use anyhow::{Context, Result};
use embedded_node::{EmbeddedNode, Endpoint, Resolver, Settings};
use error_chain::error_chain;
use image_store::ImageStore;
use pod_network::PodNetwork;
use reconcile::Clock;
use serving::{ClientCertificates, TlsSource};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use virt_handler::{Capabilities, DevicePlugins, HostDevice};

use super::{components::Host, probe};
use crate::printer::Printer;

/// Guests that may use a device at once: more than fit on a host.
const MAX_DEVICES: u32 = 1000;

/// What pods are made of and with.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    pub(super) images: ImageStore,
    pub(super) network: PodNetwork,
    pub(super) address: IpAddr,
}

/// Runs the node; finds out what its guests can have, unless that is known already.
pub(super) async fn bring_up(
    host: &Host<'_>,
    parts: &Parts,
    printer: Printer,
    (tasks, stop): (&TaskTracker, &CancellationToken),
) -> Result<Capabilities> {
    let known = probe::known(host, parts).await?;
    // While nothing is known of KVM, the device is there for the probe alone.
    let kvm = watch::Sender::new(known.as_ref().is_none_or(|known| known.facts().kvm));
    let plugins = DevicePlugins {
        dir: host.state.node().join("device-plugins"),
        max_devices: MAX_DEVICES,
        devices: HostDevice::USUAL.to_vec(),
        kvm: kvm.subscribe(),
    };
    run(host, parts, (tasks, stop)).await?;
    tasks.spawn(plugins.run(stop.clone()));
    let capabilities = if let Some(known) = known {
        known
    } else {
        printer.line("Looking at what guests can have on this host (once) ...");
        Box::pin(probe::probe(host, parts)).await?
    };
    kvm.send_replace(capabilities.facts().kvm);
    Ok(capabilities)
}

async fn run(
    host: &Host<'_>,
    parts: &Parts,
    (tasks, stop): (&TaskTracker, &CancellationToken),
) -> Result<()> {
    let listener = TcpListener::bind(SocketAddr::new(parts.address, 0))
        .await
        .context("listen for the API server's questions about pods")?;
    let clients = ClientCertificates::Required(host.identities.servers.clone());
    let tls = TlsSource::fixed(&host.identities.kubelet, &clients)?;
    let program = std::env::current_exe().context("find this program")?;
    let node = EmbeddedNode::new(Settings {
        node_name: host.flags.node_name.clone(),
        root: host.state.node(),
        supervisor: program.with_file_name("pod-supervisor"),
        client: host.node(),
        images: Arc::new(parts.images.clone()),
        network: Arc::new(parts.network.clone()),
        clock: Clock::system(),
        address: parts.address,
        endpoint: Endpoint { listener, tls },
        labels: std::collections::BTreeMap::new(),
        cgroup_parent: host.state.cgroup(),
        resolver: resolver(),
    })?;
    let (stop, all) = (stop.clone(), stop.clone());
    tasks.spawn(async move {
        if let Err(err) = node.run(stop).await {
            tracing::error!(error = error_chain(&err), "the node ended");
            all.cancel();
        }
    });
    Ok(())
}

/// What the host itself asks, as far as pods can reach it.
fn resolver() -> Resolver {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let words = |name: &str| -> Vec<String> {
        text.lines()
            .filter_map(|line| line.trim().strip_prefix(name))
            .flat_map(str::split_whitespace)
            .map(ToOwned::to_owned)
            .collect()
    };
    let nameservers = words("nameserver ")
        .iter()
        .filter_map(|word| word.parse::<IpAddr>().ok())
        .filter(|address| !address.is_loopback())
        .collect();
    Resolver {
        nameservers,
        searches: words("search "),
    }
}
