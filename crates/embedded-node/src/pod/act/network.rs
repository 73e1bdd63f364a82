//! The pod's addresses and the record of them.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Pod;
use pod_supervisor::{model::NetworkMode, status::PodStatus};

use super::{SANDBOX_FAILED, blocking, replace, sandbox::network_mode};
use crate::{Addresses, Failure, hosts, node::Shared};

/// The addresses of the pod and the network namespace they are in.
const NETWORK_FILE: &str = "network.json";

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkRecord {
    pub(crate) namespace: u64,
    pub(crate) addresses: Addresses,
}

/// A pod whose network namespace gets its interface.
#[derive(Debug)]
pub(crate) struct JoinNetwork {
    pub(crate) pod: Arc<Pod>,
    pub(crate) uid: String,
    pub(crate) dir: PathBuf,
    pub(crate) supervisor: PodStatus,
}

pub(crate) async fn join_network(
    shared: Arc<Shared>,
    request: JoinNetwork,
) -> Result<Addresses, Failure> {
    let JoinNetwork {
        pod,
        uid,
        dir,
        supervisor,
    } = request;
    if network_mode(&pod) == NetworkMode::Host {
        return Ok(Addresses {
            ips: vec![shared.settings.address],
        });
    }
    if let Some(record) = network_record(&dir)
        && record.namespace == supervisor.network_namespace
    {
        return Ok(record.addresses);
    }
    let namespace = PathBuf::from(format!("/proc/{}/ns/net", supervisor.supervisor.pid));
    let addresses = shared.settings.network.add(&uid, &namespace).await?;
    failpoints::after("embedded-node/pod/add-network");
    let record = NetworkRecord {
        namespace: supervisor.network_namespace,
        addresses,
    };
    blocking(SANDBOX_FAILED, "record the pod's addresses", move || {
        fs::write(
            dir.join("etc/hosts"),
            hosts::render(&pod, &record.addresses.ips),
        )?;
        replace(&dir.join(NETWORK_FILE), &serde_json::to_vec(&record)?)?;
        Ok(record.addresses)
    })
    .await
}

pub(crate) fn network_record(dir: &Path) -> Option<NetworkRecord> {
    serde_json::from_slice(&fs::read(dir.join(NETWORK_FILE)).ok()?).ok()
}
