//! The host as a Kubernetes node.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use anyhow::{Context, Result};
use embedded_node::{DeviceResource, EmbeddedNode, Endpoint, Resolver, Settings};
use image_store::ImageStore;
use pod_network::PodNetwork;
use reconcile::Clock;
use serving::{ClientCertificates, TlsSource};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use virt_handler::Capabilities;

use super::{components::Host, probe};
use crate::printer::Printer;

/// The device of guests that do not run by software.
const KVM: &str = "devices.kubevirt.io/kvm";

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
    let capabilities = if let Some(known) = known {
        known
    } else {
        // While nothing is known of KVM, the device is there for the probe alone.
        printer.line("Looking at what guests can have on this host (once) ...");
        let probing = stop.child_token();
        let node = run(host, parts, devices(|_| true), (tasks, &probing)).await?;
        let found = Box::pin(probe::probe(host, parts)).await;
        probing.cancel();
        node.await.context("stop the node after the probe")?;
        found?
    };
    let usable = capabilities.facts().kvm;
    run(
        host,
        parts,
        devices(|name| usable || name != KVM),
        (tasks, stop),
    )
    .await?;
    Ok(capabilities)
}

fn devices(wanted: impl Fn(&str) -> bool) -> Vec<DeviceResource> {
    let all = DeviceResource::of_this_host();
    all.into_iter()
        .filter(|device| wanted(&device.resource))
        .collect()
}

async fn run(
    host: &Host<'_>,
    parts: &Parts,
    devices: Vec<DeviceResource>,
    (tasks, stop): (&TaskTracker, &CancellationToken),
) -> Result<tokio::task::JoinHandle<()>> {
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
        client: host.client("system:node"),
        images: Arc::new(parts.images.clone()),
        network: Arc::new(parts.network.clone()),
        clock: Clock::system(),
        address: parts.address,
        endpoint: Endpoint { listener, tls },
        devices,
        labels: std::collections::BTreeMap::new(),
        cgroup_parent: host.state.cgroup(),
        resolver: resolver(),
    })?;
    let (stop, all) = (stop.clone(), stop.clone());
    Ok(tasks.spawn(async move {
        if let Err(err) = node.run(stop).await {
            tracing::error!(error = reconcile::error_chain(&err), "the node ended");
            all.cancel();
        }
    }))
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
