//! The route of port forwarding.

use std::net::IpAddr;

use axum::{
    extract::{Path, State, WebSocketUpgrade},
    http::StatusCode,
    response::Response,
};
use error_chain::error_chain;
use host_net::NetworkNamespace;
use k8s_openapi::api::core::v1::Pod;
use kubevirt_api::VirtualMachineInstance;
use model::Supported;
use net_plan::Reach;
use reconcile::Key;
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        copy::{self, Datagrams, Stream},
        open::accept,
        response::{error_response, guest_not_found},
        router::StreamsState,
    },
    dial::{Connection, Protocol, Target},
};
use crate::{launcher::Peer, metrics};

const DEVICE: &str = "portforward";

pub(in super::super) async fn forward(
    State(state): State<StreamsState>,
    Path((namespace, name, port, protocol)): Path<(String, String, u16, String)>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let Some(protocol) = Protocol::parse(&protocol) else {
        let message = format!("protocol {protocol:?} is not supported: give tcp or udp");
        return error_response(StatusCode::BAD_REQUEST, "BadRequest", &message);
    };
    let key = Key::new(namespace, name);
    let found = state.guest(&key).zip(state.guests.session(&key));
    let Some(((pod, vmi), (_, session))) = found else {
        return guest_not_found(&key);
    };
    let slot = match state.forwards.acquire(&key) {
        Ok(slot) => slot,
        Err(full) => {
            let code = StatusCode::TOO_MANY_REQUESTS;
            return error_response(code, "TooManyRequests", &full.to_string());
        }
    };
    let pod = state.guests.pod(&pod);
    let peer = session.link().peer;
    let target = target(&vmi, pod.as_deref(), peer.as_deref());
    let target = match target {
        Ok((addresses, namespace)) => Target {
            protocol,
            addresses,
            port,
            namespace,
        },
        Err(message) => {
            return error_response(StatusCode::BAD_REQUEST, "BadRequest", &message);
        }
    };
    let connection = match target.dial().await {
        Ok(connection) => connection,
        Err(error) => {
            let message = format!("dialing VM: {}", error_chain(&error));
            let code = StatusCode::INTERNAL_SERVER_ERROR;
            return error_response(code, "InternalError", &message);
        }
    };
    accept(upgrade).on_upgrade(async move |socket| {
        let _slot = slot;
        let _counted = metrics::STREAMS.hold([DEVICE]);
        let open = CancellationToken::new();
        match connection {
            Connection::Tcp(stream) => copy::join(socket, Stream::split(stream), &open).await,
            Connection::Udp(socket_of_guest) => {
                copy::join(socket, Datagrams::split(socket_of_guest), &open).await;
            }
        }
    })
}

type Place = (Vec<IpAddr>, Option<NetworkNamespace>);

/// The addresses of the guest, and the namespace they are reached from.
fn target(
    vmi: &VirtualMachineInstance,
    pod: Option<&Pod>,
    peer: Option<&Peer>,
) -> Result<Place, String> {
    let guest = Supported::of(vmi).map_err(|error| error_chain(&error))?;
    let reach = net_plan::reach(&guest).map_err(|error| error_chain(&error))?;
    let pod = pod_addresses(pod);
    match reach {
        None => Err("no network interfaces are present".to_owned()),
        Some(Reach::PodAddresses) => Ok((pod, None)),
        Some(Reach::InPod(addresses)) => {
            let peer = peer.ok_or("the pod's launcher is not connected")?;
            let namespace = peer.network_namespace();
            let namespace =
                namespace.map_err(|error| format!("open the pod's network: {error}"))?;
            let namespace = NetworkNamespace::of(namespace, guest.name());
            Ok((same_families(addresses, &pod), Some(namespace)))
        }
    }
}

/// The guest has an address of each family that the pod has.
fn same_families(addresses: Vec<IpAddr>, pod: &[IpAddr]) -> Vec<IpAddr> {
    let has = |address: &IpAddr| pod.iter().any(|own| own.is_ipv4() == address.is_ipv4());
    addresses.into_iter().filter(has).collect()
}

/// From the pod, whose status a guest cannot write, unlike the addresses that a guest agent reports.
fn pod_addresses(pod: Option<&Pod>) -> Vec<IpAddr> {
    let Some(status) = pod.and_then(|pod| pod.status.as_ref()) else {
        return vec![];
    };
    let all = status.pod_ips.iter().flatten().map(|one| &one.ip);
    let mut addresses: Vec<IpAddr> = all.filter_map(|text| text.parse().ok()).collect();
    if addresses.is_empty() {
        addresses.extend(
            status
                .pod_ip
                .as_ref()
                .and_then(|text| text.parse::<IpAddr>().ok()),
        );
    }
    addresses
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn families_follow_the_pod() {
        let pod = |status| {
            let pod: Pod = serde_json::from_value(json!({"status": status})).unwrap();
            pod_addresses(Some(&pod))
        };
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let both = vec![ip("10.0.2.2"), ip("fd10:0:2::2")];
        let single = pod(json!({"podIP": "10.244.1.5", "podIPs": [{"ip": "10.244.1.5"}]}));
        assert_eq!(single, [ip("10.244.1.5")]);
        assert_eq!(same_families(both.clone(), &single), [ip("10.0.2.2")]);
        let dual = pod(json!({"podIPs": [{"ip": "10.244.1.5"}, {"ip": "fd00::5"}]}));
        assert_eq!(same_families(both.clone(), &dual), both);
        assert_eq!(pod(json!({"podIP": "fd00::5"})), [ip("fd00::5")]);
        assert!(pod(json!({})).is_empty());
    }

    #[test]
    fn guest_that_cannot_be_reached_is_refused_with_the_reason() {
        let vmi = |spec| {
            let vmi = json!({"metadata": {"name": "a"}, "spec": spec});
            serde_json::from_value::<VirtualMachineInstance>(vmi).unwrap()
        };
        let refused = |spec| target(&vmi(spec), None, None).err().unwrap();
        let none = json!({"domain": {"devices": {}}});
        assert_eq!(refused(none), "no network interfaces are present");
        let masquerade = json!({
            "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}},
            "networks": [{"name": "default", "pod": {}}],
        });
        assert_eq!(refused(masquerade), "the pod's launcher is not connected");
    }
}
