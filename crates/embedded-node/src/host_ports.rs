//! Ports of the host that pods occupy. Pure.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod};

/// A port of the host that belongs to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostPort {
    /// The address of the host; `None` for all of them.
    pub(crate) address: Option<Ipv4Addr>,
    pub(crate) protocol: String,
    pub(crate) number: u16,
    pub(crate) container_port: u16,
}

impl HostPort {
    fn conflicts_with(&self, other: &Self) -> bool {
        let same_port = self.number == other.number && self.protocol == other.protocol;
        let either_all = self.address.is_none() || other.address.is_none();
        same_port && (either_all || self.address == other.address)
    }
}

/// The host ports of a pod's containers that run beside each other.
pub(crate) fn of(pod: &Pod) -> Vec<HostPort> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let is_sidecar = |one: &&Container| one.restart_policy.as_deref() == Some("Always");
    let sidecars = spec.init_containers.iter().flatten().filter(is_sidecar);
    let containers = spec.containers.iter().chain(sidecars);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| host_port(port, spec.host_network == Some(true)))
        .collect()
}

/// Containers on the host's network occupy all their ports.
fn host_port(port: &ContainerPort, on_host_network: bool) -> Option<HostPort> {
    let number = port.host_port.filter(|number| *number > 0);
    let number = number.or(on_host_network.then_some(port.container_port))?;
    let address = port.host_ip.as_deref().unwrap_or_default();
    Some(HostPort {
        address: address
            .parse()
            .ok()
            .filter(|address: &Ipv4Addr| !address.is_unspecified()),
        protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
        number: u16::try_from(number).ok()?,
        container_port: u16::try_from(port.container_port).ok()?,
    })
}

/// Whether a wanted port is taken.
pub(crate) fn conflict(wanted: &[HostPort], taken: &[HostPort]) -> bool {
    wanted
        .iter()
        .any(|one| taken.iter().any(|other| one.conflicts_with(other)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ports(spec: &Value) -> Vec<HostPort> {
        of(&serde_json::from_value(json!({"spec": spec})).unwrap())
    }

    fn one(ip: &str, port: i32, protocol: &str) -> Vec<HostPort> {
        let port =
            json!({"containerPort": 1, "hostPort": port, "hostIP": ip, "protocol": protocol});
        ports(&json!({"containers": [{"name": "c", "ports": [port]}]}))
    }

    #[test]
    fn ports_conflict_by_number_protocol_and_address() {
        let taken = [one("192.0.2.1", 80, "TCP"), one("", 81, "UDP")].concat();
        for (wanted, expected) in [
            (one("192.0.2.1", 80, "TCP"), true),
            (one("", 80, "TCP"), true),
            (one("0.0.0.0", 80, "TCP"), true),
            (one("192.0.2.2", 80, "TCP"), false),
            (one("192.0.2.1", 80, "UDP"), false),
            (one("192.0.2.1", 82, "TCP"), false),
            (one("192.0.2.1", 81, "UDP"), true),
            (vec![], false),
        ] {
            assert_eq!(conflict(&wanted, &taken), expected, "{wanted:?}");
        }
    }

    #[test]
    fn containers_on_the_host_network_occupy_their_ports() {
        let container = json!({"name": "c", "ports": [{"containerPort": 80}]});
        let numbers = |spec: Value| -> Vec<u16> {
            ports(&spec).into_iter().map(|port| port.number).collect()
        };
        assert_eq!(
            numbers(json!({"containers": [container], "hostNetwork": true})),
            [80]
        );
        assert!(numbers(json!({"containers": [container]})).is_empty());
        let mut side = json!({"name": "s", "ports": [{"containerPort": 1, "hostPort": 2}]});
        let init = |side: &Value| numbers(json!({"containers": [], "initContainers": [side]}));
        assert!(init(&side).is_empty());
        side["restartPolicy"] = json!("Always");
        assert_eq!(init(&side), [2]);
    }
}
