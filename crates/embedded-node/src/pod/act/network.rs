//! The pod's networks, its addresses and the record of them.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use kubevirt_api::annotations;
use pod_network::{Attachment, Definition, MacAddress};
use pod_supervisor::{model::NetworkMode, status::PodStatus};
use reasons::Reason;

use super::{
    super::networks::{self, Joined, Networks, Selection},
    SANDBOX_FAILED, api, blocking, replace,
    sandbox::network_mode,
};
use crate::{Addresses, Failure, SecondaryInterface, hosts, node::Shared, policies};

/// The addresses of the pod and the network namespace they are in.
const NETWORK_FILE: &str = "network.json";

/// The kind of owners that have a guest.
const GUEST: &str = "VirtualMachineInstance";

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkRecord {
    pub(crate) namespace: u64,
    pub(crate) addresses: Addresses,
    /// The interfaces on secondary networks; `None` in a record of an earlier version, whose networks stay.
    #[serde(default)]
    pub(crate) joined: Option<Vec<Joined>>,
    /// Interfaces that the running pod was about to get: one that is not in `joined` may exist in part.
    #[serde(default)]
    pub(crate) begun: Vec<String>,
}

/// A pod whose network namespace gets its interfaces.
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
    if network_mode(&request.pod) == NetworkMode::Host {
        return Ok(Addresses {
            ips: vec![shared.settings.address],
        });
    }
    if let Some(record) = network_record(&request.dir)
        && record.namespace == request.supervisor.network_namespace
    {
        policies::protect(&shared, &request.pod, &record.addresses.ips).await?;
        return Ok(record.addresses);
    }
    let (addresses, joined) = join_all(&shared, &request).await?;
    let JoinNetwork {
        pod,
        dir,
        supervisor,
        ..
    } = request;
    let record = NetworkRecord {
        namespace: supervisor.network_namespace,
        addresses,
        joined: Some(joined),
        begun: Vec::new(),
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

/// Joins the pod network, or the network in its place, and the secondary networks, and reports them.
async fn join_all(
    shared: &Arc<Shared>,
    request: &JoinNetwork,
) -> Result<(Addresses, Vec<Joined>), Failure> {
    let JoinNetwork {
        pod,
        uid,
        supervisor,
        ..
    } = request;
    let network = &shared.settings.network;
    let namespace = PathBuf::from(format!("/proc/{}/ns/net", supervisor.supervisor.pid));
    // Before the first change: most errors of users are found here.
    let networks = Networks::of(pod)?;
    let mut attachments = Vec::new();
    for selection in networks.default.iter().chain(&networks.secondary) {
        attachments.push((selection, attachment(shared, request, selection).await?));
    }
    let mut ips: Vec<IpAddr> = Vec::new();
    if networks.default.is_none() {
        if let Some(owner) = owner(pod) {
            network.keep_address(uid, &owner).await?;
        }
        if let Some(mac) = guest_mac(pod)? {
            network.choose_mac(uid, mac, guest(pod).as_deref()).await?;
        }
        ips = network.add(uid, &namespace).await?.ips;
        policies::protect(shared, pod, &ips).await?;
        failpoints::after("embedded-node/pod/add-network");
    }
    let mut joined = Vec::new();
    for (selection, attachment) in attachments {
        let attached = network.attach(&namespace, attachment).await;
        let attached = attached.map_err(|failure| of_network(selection, &failure))?;
        failpoints::after("embedded-node/pod/attach-network");
        if selection.interface == networks::DEFAULT_INTERFACE {
            ips.clone_from(&attached.ips);
        }
        joined.push(joined_as(selection, attached));
    }
    if let Some(report) = networks::report(&ips, &joined) {
        let name = annotations::CNI_NETWORK_STATUS;
        api::annotate(Arc::clone(shared), Arc::clone(pod), name, &report).await?;
    }
    Ok((Addresses { ips }, joined))
}

fn joined_as(selection: &Selection, attached: SecondaryInterface) -> Joined {
    Joined {
        network: selection.full_name(),
        interface: selection.interface.clone(),
        mac: attached.mac,
        ips: attached.ips,
    }
}

/// Has a running pod leave and join networks until it has those that it names now, and reports them. Each change is
/// recorded before it is reported: virt-handler waits for the report before it uses an interface.
pub(crate) async fn update_networks(
    shared: Arc<Shared>,
    request: JoinNetwork,
) -> Result<(), Failure> {
    let JoinNetwork {
        pod,
        uid,
        dir,
        supervisor,
    } = &request;
    let record = network_record(dir);
    let record = record.filter(|record| record.namespace == supervisor.network_namespace);
    let Some((mut record, mut joined)) = record.and_then(|mut record| {
        let joined = record.joined.take()?;
        Some((record, joined))
    }) else {
        return Ok(());
    };
    let networks = Networks::of(pod)?;
    let namespace = PathBuf::from(format!("/proc/{}/ns/net", supervisor.supervisor.pid));
    let network = &shared.settings.network;
    let before = joined.clone();
    // An earlier run did not complete them, and the pod may not name them any more. No guest uses them: they were
    // not reported.
    let begun = std::mem::take(&mut record.begun);
    for interface in &begun {
        if before.iter().all(|one| one.interface != *interface) {
            network.detach(uid, &namespace, interface).await?;
        }
    }
    if !begun.is_empty() {
        record = keep(dir, record, &joined).await?;
    }
    let changes = networks::changes(&before, &networks);
    for one in changes.leave {
        network.detach(uid, &namespace, &one.interface).await?;
        failpoints::after("embedded-node/pod/detach-network");
        joined.retain(|other| other != one);
        record = keep(dir, record, &joined).await?;
    }
    let mut outcome = Ok(());
    for selection in changes.join {
        record.begun.push(selection.interface.clone());
        record = keep(dir, record, &joined).await?;
        // One that cannot be joined does not hold up the others.
        match join_one(&shared, &request, selection, &namespace).await {
            Ok(one) => {
                record.begun.retain(|begun| *begun != one.interface);
                joined.push(one);
                record = keep(dir, record, &joined).await?;
            }
            Err(failure) => outcome = outcome.and(Err(failure)),
        }
    }
    let name = annotations::CNI_NETWORK_STATUS;
    let reported = pod.metadata.annotations.as_ref();
    let has_report = reported.is_some_and(|all| all.contains_key(name));
    if has_report || !joined.is_empty() {
        let report = networks::list(&record.addresses.ips, &joined);
        api::annotate(Arc::clone(&shared), Arc::clone(pod), name, &report).await?;
    }
    outcome
}

async fn join_one(
    shared: &Arc<Shared>,
    request: &JoinNetwork,
    selection: &Selection,
    namespace: &Path,
) -> Result<Joined, Failure> {
    let attachment = attachment(shared, request, selection).await?;
    let attached = shared.settings.network.attach(namespace, attachment).await;
    let attached = attached.map_err(|failure| of_network(selection, &failure))?;
    failpoints::after("embedded-node/pod/attach-further-network");
    Ok(joined_as(selection, attached))
}

async fn keep(
    dir: &Path,
    record: NetworkRecord,
    joined: &[Joined],
) -> Result<NetworkRecord, Failure> {
    let file = dir.join(NETWORK_FILE);
    let record = NetworkRecord {
        joined: Some(joined.to_vec()),
        ..record
    };
    blocking(SANDBOX_FAILED, "record the pod's networks", move || {
        replace(&file, &serde_json::to_vec(&record)?)?;
        failpoints::after("embedded-node/pod/record-networks");
        Ok(record)
    })
    .await
}

/// The interface that a network's definition asks for.
async fn attachment(
    shared: &Shared,
    request: &JoinNetwork,
    selection: &Selection,
) -> Result<Attachment, Failure> {
    let config = config(shared, selection).await?;
    let definition = Definition::parse(&selection.full_name(), &config)
        .map_err(|error| Failure::new(error.reason(), error.to_string()));
    let definition = definition.map_err(|failure| of_network(selection, &failure))?;
    let mac = selection.mac.as_deref().map(str::parse::<MacAddress>);
    let mac = mac.transpose().map_err(|error| {
        let failure = Failure::of(
            Reason::NetworkDefinitionInvalid,
            "read its MAC address",
            &error,
        );
        of_network(selection, &failure)
    })?;
    Ok(Attachment {
        pod_uid: request.uid.clone(),
        owner: guest(&request.pod).unwrap_or_else(|| request.uid.clone()),
        interface: selection.interface.clone(),
        mac,
        definition,
    })
}

fn of_network(selection: &Selection, failure: &Failure) -> Failure {
    let message = format!("network {}: {}", selection.full_name(), failure.message);
    Failure::new(failure.reason, message)
}

/// The configuration in a network attachment definition.
async fn config(shared: &Shared, selection: &Selection) -> Result<String, Failure> {
    let kind = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
    let resource = ApiResource::from_gvk_with_plural(&kind, "network-attachment-definitions");
    let client = shared.settings.client.clone();
    let api: Api<DynamicObject> = Api::namespaced_with(client, &selection.namespace, &resource);
    let found = api.get_opt(&selection.name).await.map_err(|error| {
        let tried = format!("read the definition of network {}", selection.full_name());
        Failure::of(Reason::NetworkNotJoined, &tried, &error)
    })?;
    let Some(found) = found else {
        let message = "there is no such NetworkAttachmentDefinition".to_owned();
        let failure = Failure::new(Reason::NetworkDefinitionMissing, message);
        return Err(of_network(selection, &failure));
    };
    let config = found.data["spec"]["config"].as_str();
    Ok(config.unwrap_or_default().to_owned())
}

/// What replaces the pod when it ends, and stays the same across reboots: its controller's kind and name.
fn owner(pod: &Pod) -> Option<String> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    Some(format!("{namespace}/{}/{}", owner.kind, owner.name))
}

/// The owner of a pod with a guest: it keeps its addresses, also while it moves to another pod. Other owners
/// have several pods at once, which must not share addresses.
fn guest(pod: &Pod) -> Option<String> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let is_guest = owners.any(|owner| owner.controller == Some(true) && owner.kind == GUEST);
    owner(pod).filter(|_| is_guest)
}

/// The hardware address that the pod's guest chose for the pod network.
fn guest_mac(pod: &Pod) -> Result<Option<MacAddress>, Failure> {
    let key = annotations::GUEST_MAC;
    let annotated = pod.metadata.annotations.as_ref();
    let Some(text) = annotated.and_then(|all| all.get(key)) else {
        return Ok(None);
    };
    let mac = text.parse::<MacAddress>();
    mac.map(Some)
        .map_err(|error| Failure::of(Reason::NetworkNotJoined, &format!("read {key}"), &error))
}

pub(crate) fn network_record(dir: &Path) -> Option<NetworkRecord> {
    serde_json::from_slice(&fs::read(dir.join(NETWORK_FILE)).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hardware_address_of_the_guest_is_an_annotation() {
        for (annotations, expected) in [
            (json!({}), Some(None)),
            (
                json!({"ferrovirt.io/guest-mac": "02:00:00:00:00:09"}),
                Some(Some(MacAddress([2, 0, 0, 0, 0, 9]))),
            ),
            (json!({"ferrovirt.io/guest-mac": "02:00"}), None),
        ] {
            let pod = json!({"metadata": {"annotations": annotations}});
            let found = guest_mac(&serde_json::from_value(pod).unwrap());
            assert_eq!(found.ok(), expected, "{annotations}");
        }
    }

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
        for (kind, expected) in [
            (
                "VirtualMachineInstance",
                Some("ns/VirtualMachineInstance/a"),
            ),
            ("ReplicaSet", None),
        ] {
            let found = guest(&pod(json!([reference(kind, true)])));
            assert_eq!(found.as_deref(), expected);
        }
    }
}
