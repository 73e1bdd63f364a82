//! Pure planning of packet forwarding: from service addresses, node ports and host ports to pods.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddrV4},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Endpoints, Pod, Service, ServicePort, ServiceSpec};
use pod_network::{Choice, Forward, Front, Protocol, ServiceRange};

use crate::host_ports::{self, HostPort};

/// The forwarding rules of all services.
pub(crate) fn of_services<'a>(
    range: ServiceRange,
    services: impl Iterator<Item = &'a Service>,
    endpoints: impl Fn(&Service) -> Option<Arc<Endpoints>>,
) -> Vec<Forward> {
    services
        .flat_map(|service| {
            let endpoints = endpoints(service);
            of_service(range, service, endpoints.as_deref())
        })
        .collect()
}

/// The forwarding rules of all host ports of these pods.
pub(crate) fn of_pods<'a>(pods: impl Iterator<Item = &'a Pod>) -> Vec<Forward> {
    pods.filter(|pod| !on_host_network(pod) && !crate::slots::has_ended(pod))
        .flat_map(|pod| {
            let ip = pod
                .status
                .as_ref()
                .and_then(|status| status.pod_ip.as_ref());
            let ip: Option<Ipv4Addr> = ip.and_then(|ip| ip.parse().ok());
            let ports = host_ports::of(pod);
            ip.into_iter().flat_map(move |ip| {
                ports
                    .clone()
                    .into_iter()
                    .filter_map(move |port| of_port(&port, ip))
            })
        })
        .collect()
}

fn on_host_network(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    spec.is_some_and(|spec| spec.host_network == Some(true))
}

fn of_port(port: &HostPort, pod: Ipv4Addr) -> Option<Forward> {
    let front = match port.address {
        None => Front::Host,
        Some(address) => Front::HostAddress(address),
    };
    Some(Forward {
        front,
        port: port.number,
        protocol: protocol(&port.protocol)?,
        targets: vec![SocketAddrV4::new(pod, port.container_port)],
        choice: Choice::Random,
    })
}

/// `None` for SCTP, which is not forwarded.
fn protocol(name: &str) -> Option<Protocol> {
    match name {
        "TCP" => Some(Protocol::Tcp),
        "UDP" => Some(Protocol::Udp),
        _ => None,
    }
}

fn of_service(
    range: ServiceRange,
    service: &Service,
    endpoints: Option<&Endpoints>,
) -> Vec<Forward> {
    let Some(spec) = &service.spec else {
        return Vec::new();
    };
    let choice = match spec.session_affinity.as_deref() {
        Some("ClientIP") => Choice::ByClient,
        _ => Choice::Random,
    };
    let ports = spec.ports.iter().flatten();
    ports
        .flat_map(|port| {
            let targets = targets(port, endpoints);
            fronts(range, spec, port).filter_map(move |(front, number)| {
                Some(Forward {
                    front,
                    port: number,
                    protocol: protocol(port.protocol.as_deref().unwrap_or("TCP"))?,
                    targets: targets.clone(),
                    choice,
                })
            })
        })
        .collect()
}

/// Where connections to a port of a service arrive: its own address, and its node port.
fn fronts(
    range: ServiceRange,
    spec: &ServiceSpec,
    port: &ServicePort,
) -> impl Iterator<Item = (Front, u16)> + use<> {
    let address = spec.cluster_ip.as_ref().and_then(|ip| ip.parse().ok());
    // Addresses outside the range are not translated here.
    let address = address.filter(|address| range.holds(*address));
    let own = address
        .map(Front::Service)
        .zip(u16::try_from(port.port).ok());
    let has_node_port = matches!(spec.type_.as_deref(), Some("NodePort" | "LoadBalancer"));
    let number = port.node_port.filter(|_| has_node_port);
    let number = number.and_then(|number| u16::try_from(number).ok());
    let node = number
        .filter(|number| *number > 0)
        .map(|number| (Front::Host, number));
    own.into_iter().chain(node)
}

/// The ready endpoints behind a port of a service.
fn targets(port: &ServicePort, endpoints: Option<&Endpoints>) -> Vec<SocketAddrV4> {
    let name = port.name.as_deref().unwrap_or_default();
    let subsets = endpoints
        .into_iter()
        .flat_map(|all| all.subsets.iter().flatten());
    let all: BTreeSet<SocketAddrV4> = subsets
        .flat_map(|subset| {
            let ports = subset.ports.iter().flatten();
            let number = ports
                .filter(|one| one.name.as_deref().unwrap_or_default() == name)
                .find_map(|one| u16::try_from(one.port).ok());
            let addresses = subset.addresses.iter().flatten();
            addresses.filter_map(move |one| Some(SocketAddrV4::new(one.ip.parse().ok()?, number?)))
        })
        .collect();
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: &Value) -> Service {
        let meta = json!({"name": "s", "namespace": "n"});
        serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
    }

    fn found(services: &[Service]) -> Vec<Forward> {
        let range = ServiceRange {
            first: [10, 96, 0, 1].into(),
            count: 10,
        };
        let known: Endpoints = serde_json::from_value(json!({"subsets": [{
            "addresses": [{"ip": "10.0.0.3"}, {"ip": "10.0.0.2"}],
            "notReadyAddresses": [{"ip": "10.0.0.9"}],
            "ports": [{"name": "a", "port": 8080}],
        }]}))
        .unwrap();
        let known = Arc::new(known);
        let mut all = of_services(range, services.iter(), |_| Some(Arc::clone(&known)));
        all.sort();
        all
    }

    fn forward(front: Front, (protocol, port): (Protocol, u16), targets: &[&str]) -> Forward {
        Forward {
            front,
            port,
            protocol,
            targets: targets.iter().map(|one| one.parse().unwrap()).collect(),
            choice: Choice::Random,
        }
    }

    const TARGETS: &[&str] = &["10.0.0.2:8080", "10.0.0.3:8080"];
    const OWN: Front = Front::Service(Ipv4Addr::new(10, 96, 0, 2));

    #[test]
    fn packets_are_forwarded_to_ready_endpoints() {
        let ours = service(&json!({"clusterIP": "10.96.0.2", "ports": [
            {"name": "a", "port": 80}, {"name": "b", "port": 53, "protocol": "UDP"},
            {"name": "c", "port": 1, "protocol": "SCTP"}]}));
        let foreign = service(&json!({"clusterIP": "10.1.0.2", "ports": [{"port": 80}]}));
        let headless = service(&json!({"clusterIP": "None", "ports": [{"port": 80}]}));
        assert_eq!(
            found(&[ours, foreign, headless]),
            [
                forward(OWN, (Protocol::Udp, 53), &[]),
                forward(OWN, (Protocol::Tcp, 80), TARGETS),
            ]
            .into_iter()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
        );
    }

    #[test]
    fn node_ports_are_forwarded_on_every_address_of_the_host() {
        let port = json!([{"name": "a", "port": 80, "nodePort": 30_080}]);
        let of = |kind: &str| {
            let spec = json!({"type": kind, "clusterIP": "10.96.0.2", "ports": port});
            found(&[service(&spec)])
        };
        let own = forward(OWN, (Protocol::Tcp, 80), TARGETS);
        let node = forward(Front::Host, (Protocol::Tcp, 30_080), TARGETS);
        assert_eq!(of("NodePort"), [own.clone(), node.clone()]);
        assert_eq!(of("LoadBalancer"), [own.clone(), node]);
        assert_eq!(of("ClusterIP"), [own]);
    }

    #[test]
    fn client_affinity_is_kept_on_every_front() {
        let spec = json!({"type": "NodePort", "clusterIP": "10.96.0.2",
            "sessionAffinity": "ClientIP",
            "ports": [{"name": "a", "port": 80, "nodePort": 30_080}]});
        let all = found(&[service(&spec)]);
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|one| one.choice == Choice::ByClient));
    }

    #[test]
    fn host_ports_of_running_pods_are_forwarded() {
        let pod = |phase: &str, host: bool| -> Pod {
            let ports = json!([
                {"containerPort": 8080, "hostPort": 80},
                {"containerPort": 53, "hostPort": 5353, "protocol": "UDP", "hostIP": "127.0.0.1"},
                {"containerPort": 9},
            ]);
            serde_json::from_value(json!({
                "spec": {"hostNetwork": host, "containers": [{"name": "c", "ports": ports}]},
                "status": {"phase": phase, "podIP": "10.0.0.2"},
            }))
            .unwrap()
        };
        let local = Front::HostAddress(Ipv4Addr::LOCALHOST);
        assert_eq!(
            of_pods([pod("Running", false)].iter()),
            [
                forward(Front::Host, (Protocol::Tcp, 80), &["10.0.0.2:8080"]),
                forward(local, (Protocol::Udp, 5353), &["10.0.0.2:53"]),
            ]
        );
        for ignored in [pod("Failed", false), pod("Running", true)] {
            assert_eq!(of_pods([ignored].iter()), []);
        }
    }
}
