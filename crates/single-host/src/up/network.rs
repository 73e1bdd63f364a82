//! The network of the pods.

use anyhow::{Context, Result};
use pod_network::{PodNetwork, Settings};

use crate::{cli, state_dir::StateDir};

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
    network.ensure().await.context("create the pod network")?;
    Ok(network)
}
