//! The host as a Kubernetes node.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use anyhow::{Context, Result};
use embedded_node::{EmbeddedNode, Endpoint, Resolver, Settings, VOLUME_REFRESH};
use error_chain::error_chain;
use image_store::ImageStore;
use pod_network::PodNetwork;
use reconcile::Clock;
use serving::ClientCertificates;
use tokio::{net::TcpListener, sync::watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use virt_handler::{Capabilities, DevicePlugins, HostDevice};

use super::{components::Host, probe};
use crate::printer::Printer;

/// Guests that may use a device at the same time: more than a host can run.
const MAX_DEVICES: u32 = 1000;

/// The parts of the node that pods need.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    pub(super) images: ImageStore,
    pub(super) network: PodNetwork,
    pub(super) address: IpAddr,
}

/// Starts the node; probes its capabilities, unless they are known.
pub(super) async fn start(
    host: &Host<'_>,
    parts: &Parts,
    printer: Printer,
    (tasks, stop): (&TaskTracker, &CancellationToken),
) -> Result<Capabilities> {
    let known = probe::known(host, parts).await?;
    // Until KVM was probed, only the probe uses the device.
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
        printer.line("Probing the capabilities of this host (once) ...");
        Box::pin(probe::probe(host, parts, printer)).await?
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
        .context("listen for the API server's requests to the kubelet")?;
    let tls = host.certificates.server(
        |own| &own.kubelet,
        |own| ClientCertificates::Required(own.servers.clone()),
    )?;
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
        reserved_cpus: host.flags.reserved_cpus.clone().map(|cpus| cpus.0),
        volume_refresh: VOLUME_REFRESH,
    })?;
    let (stop, all) = (stop.clone(), stop.clone());
    tasks.spawn(async move {
        if let Err(error) = node.run(stop).await {
            tracing::error!(error = error_chain(&error), "the node ended");
            all.cancel();
        }
    });
    Ok(())
}

/// The host's DNS servers that pods can reach.
fn resolver() -> Resolver {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let values = |name: &str| -> Vec<String> {
        text.lines()
            .filter_map(|line| line.trim().strip_prefix(name))
            .flat_map(str::split_whitespace)
            .map(ToOwned::to_owned)
            .collect()
    };
    let nameservers = values("nameserver ")
        .iter()
        .filter_map(|value| value.parse::<IpAddr>().ok())
        .filter(|address| !address.is_loopback())
        .collect();
    Resolver {
        nameservers,
        searches: values("search "),
    }
}
