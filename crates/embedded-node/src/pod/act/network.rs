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
    if let Some(owner) = owner(&pod) {
        shared.settings.network.keep_address(&uid, &owner).await?;
    }
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

/// What replaces the pod when it ends, and stays the same across reboots: its controller's kind and name.
fn owner(pod: &Pod) -> Option<String> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    Some(format!("{namespace}/{}/{}", owner.kind, owner.name))
}

pub(crate) fn network_record(dir: &Path) -> Option<NetworkRecord> {
    serde_json::from_slice(&fs::read(dir.join(NETWORK_FILE)).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn owner_is_the_controller() {
        let pod = |owners| {
            let pod = json!({"metadata": {"namespace": "ns", "ownerReferences": owners}});
            serde_json::from_value(pod).unwrap()
        };
        let reference = |kind: &str, controller| json!({"apiVersion": "v1", "kind": kind, "name": "a", "uid": "u", "controller": controller});
        for (owners, expected) in [
            (json!([]), None),
            (json!([reference("Other", false)]), None),
            (
                json!([reference("Other", false), reference("Thing", true)]),
                Some("ns/Thing/a"),
            ),
        ] {
            assert_eq!(owner(&pod(owners)).as_deref(), expected);
        }
    }
}
