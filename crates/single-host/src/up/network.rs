//! The network of the pods, and how the node asks for it.

use std::path::Path;

use anyhow::{Context, Result};
use embedded_node::{Addresses, Failure, Network};
use futures::future::BoxFuture;
use pod_network::{PodNetwork, Settings};
use reconcile::error_chain;

use crate::{cli, state_dir::StateDir};

/// What pods call their interface.
const INTERFACE: &str = "eth0";

pub(crate) fn settings(pod_cidr: &str, state: &StateDir) -> Result<Settings> {
    let pod_cidr = pod_cidr
        .parse()
        .with_context(|| format!("--pod-cidr {pod_cidr:?}: give a range such as 10.244.0.0/24"))?;
    Ok(Settings {
        bridge: state.bridge(),
        pod_cidr,
        table: state.table(),
        ..Settings::usual(state.network())
    })
}

pub(super) async fn open(flags: &cli::Up, state: &StateDir) -> Result<PodNetwork> {
    let network = PodNetwork::open(settings(&flags.pod_cidr, state)?)
        .await
        .context("open the pod network")?;
    network.ensure().await.context("make the pod network")?;
    Ok(network)
}

/// The pod network as the node sees it.
#[derive(Debug)]
pub(crate) struct PodsOnBridge(pub(crate) PodNetwork);

impl Network for PodsOnBridge {
    fn add<'a>(
        &'a self,
        pod_uid: &'a str,
        namespace: &'a Path,
    ) -> BoxFuture<'a, Result<Addresses, Failure>> {
        Box::pin(async move {
            let result = self
                .0
                .add(pod_uid, namespace, INTERFACE)
                .await
                .map_err(|err| Failure::new("FailedCreatePodSandBox", error_chain(&err)))?;
            let ips = result
                .ips
                .iter()
                .filter_map(|ip| ip.address.split('/').next()?.parse().ok())
                .collect();
            Ok(Addresses { ips })
        })
    }

    fn delete<'a>(&'a self, pod_uid: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let deleted = self.0.delete(pod_uid).await;
            deleted.map_err(|err| Failure::new("FailedKillPod", error_chain(&err)))
        })
    }
}
