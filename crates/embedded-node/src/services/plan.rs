//! Pure planning for services: addresses, endpoints and packet forwarding.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddrV4},
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::{
        ContainerPort, EndpointAddress, EndpointPort, EndpointSubset, Endpoints, ObjectReference,
        Pod, Service, ServicePort,
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use pod_network::{Forward, Protocol, ServiceRange};

/// Whether the service needs a cluster IP and has none.
pub(crate) fn needs_address(service: &Service) -> bool {
    let Some(spec) = &service.spec else {
        return false;
    };
    let address = spec.cluster_ip.as_deref().unwrap_or_default();
    address.is_empty()
        && spec.type_.as_deref() != Some("ExternalName")
        && service.metadata.deletion_timestamp.is_none()
}

/// A free address. The search starts at a hash of the service's UID, so that a released address is
/// seldom reused at once.
pub(crate) fn free_address<'a>(
    range: ServiceRange,
    all: impl Iterator<Item = &'a Service>,
    uid: &str,
) -> Option<Ipv4Addr> {
    let taken: BTreeSet<Ipv4Addr> = all
        .filter_map(|one| one.spec.as_ref()?.cluster_ip.as_ref()?.parse().ok())
        .collect();
    let hash = uid.bytes().fold(0_u32, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(byte.into())
    });
    let start = usize::try_from(hash % range.count.max(1)).unwrap_or_default();
    range
        .addresses()
        .skip(start)
        .chain(range.addresses().take(start))
        .find(|address| !taken.contains(address))
}

/// The endpoints of a service with a selector; `None` for services without one.
pub(crate) fn endpoints<'a>(
    service: &Service,
    pods: impl Iterator<Item = &'a Pod>,
) -> Option<Vec<EndpointSubset>> {
    let spec = service.spec.as_ref()?;
    let selector = spec.selector.as_ref().filter(|all| !all.is_empty())?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    let publish_all = spec.publish_not_ready_addresses == Some(true);
    let mut groups: BTreeMap<Vec<Port>, (Addresses, Addresses)> = BTreeMap::new();
    for pod in pods {
        if pod.metadata.namespace != service.metadata.namespace || !is_selected(pod, selector) {
            continue;
        }
        let Some(address) = address(service, pod) else {
            continue;
        };
        let ports = spec.ports.iter().flatten();
        let ports: Vec<_> = ports.filter_map(|port| target(port, pod)).collect();
        if ports.is_empty() && spec.ports.as_ref().is_some_and(|all| !all.is_empty()) {
            continue;
        }
        let (ready, not_ready) = groups.entry(ports).or_default();
        if publish_all || is_ready(pod) {
            ready.push(address);
        } else {
            not_ready.push(address);
        }
    }
    Some(
        groups
            .into_iter()
            .map(|(ports, (ready, not_ready))| EndpointSubset {
                addresses: in_order(ready),
                not_ready_addresses: in_order(not_ready),
                ports: (!ports.is_empty()).then(|| ports.into_iter().map(port).collect()),
            })
            .collect(),
    )
}

type Addresses = Vec<EndpointAddress>;
/// Name, number and protocol.
type Port = (String, i32, String);

fn in_order(mut all: Addresses) -> Option<Addresses> {
    all.sort_by(|one, other| one.ip.cmp(&other.ip));
    (!all.is_empty()).then_some(all)
}

fn port((name, port, protocol): Port) -> EndpointPort {
    EndpointPort {
        name: (!name.is_empty()).then_some(name),
        port,
        protocol: Some(protocol),
        app_protocol: None,
    }
}

fn is_selected(pod: &Pod, selector: &BTreeMap<String, String>) -> bool {
    let labels = pod.metadata.labels.as_ref();
    selector
        .iter()
        .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
}

fn address(service: &Service, pod: &Pod) -> Option<EndpointAddress> {
    let status = pod.status.as_ref()?;
    let over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    if over || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let spec = pod.spec.as_ref()?;
    let named = spec.subdomain == service.metadata.name;
    Some(EndpointAddress {
        hostname: spec.hostname.clone().filter(|_| named),
        ip: status.pod_ip.clone().filter(|ip| !ip.is_empty())?,
        node_name: spec.node_name.clone(),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
    })
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|one| one.type_ == "Ready" && one.status == "True")
}

/// The pod's port behind a port of the service.
fn target(port: &ServicePort, pod: &Pod) -> Option<Port> {
    let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    let number = match &port.target_port {
        None | Some(IntOrString::Int(0)) => port.port,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => {
            let spec = pod.spec.as_ref()?;
            let ports = spec
                .containers
                .iter()
                .flat_map(|container| container.ports.iter().flatten());
            let fits = |one: &&ContainerPort| {
                one.name.as_ref() == Some(name)
                    && one.protocol.as_deref().unwrap_or("TCP") == protocol
            };
            ports.into_iter().find(fits)?.container_port
        }
    };
    Some((port.name.clone().unwrap_or_default(), number, protocol))
}

/// The forwarding rules of all services.
pub(crate) fn forwards<'a>(
    range: ServiceRange,
    services: impl Iterator<Item = &'a Service>,
    endpoints: impl Fn(&Service) -> Option<Arc<Endpoints>>,
) -> Vec<Forward> {
    let mut all: Vec<Forward> = services
        .flat_map(|service| {
            let endpoints = endpoints(service);
            ports_of(service, endpoints.as_deref())
        })
        // Addresses outside the range are not translated here.
        .filter(|forward| range.holds(forward.address))
        .collect();
    all.sort();
    all
}

fn ports_of(service: &Service, endpoints: Option<&Endpoints>) -> Vec<Forward> {
    let Some(spec) = &service.spec else {
        return Vec::new();
    };
    let Some(address) = spec.cluster_ip.as_ref().and_then(|ip| ip.parse().ok()) else {
        return Vec::new();
    };
    let subsets = || {
        endpoints
            .into_iter()
            .flat_map(|all| all.subsets.iter().flatten())
    };
    let forward = |port: &ServicePort| {
        let protocol = match port.protocol.as_deref() {
            None | Some("TCP") => Protocol::Tcp,
            Some("UDP") => Protocol::Udp,
            Some(_) => return None,
        };
        let name = port.name.as_deref().unwrap_or_default();
        let targets: BTreeSet<SocketAddrV4> = subsets()
            .flat_map(|subset| {
                let ports = subset.ports.iter().flatten();
                let number = ports
                    .filter(|one| one.name.as_deref().unwrap_or_default() == name)
                    .find_map(|one| u16::try_from(one.port).ok());
                let addresses = subset.addresses.iter().flatten();
                addresses
                    .filter_map(move |one| Some(SocketAddrV4::new(one.ip.parse().ok()?, number?)))
            })
            .collect();
        Some(Forward {
            address,
            port: u16::try_from(port.port).ok()?,
            protocol,
            targets: targets.into_iter().collect(),
        })
    };
    spec.ports.iter().flatten().filter_map(forward).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: &Value) -> Service {
        serde_json::from_value(json!({
            "metadata": {"name": "s", "namespace": "n"}, "spec": spec,
        }))
        .unwrap()
    }

    fn pod(name: &str, ip: &str, ready: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "n", "uid": name, "labels": {"app": "a"}},
            "spec": {
                "nodeName": "here", "hostname": name, "subdomain": "s",
                "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}],
            },
            "status": {
                "phase": "Running", "podIP": ip,
                "conditions": [{"type": "Ready", "status": ready}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn services_without_address_get_a_free_one() {
        for (spec, needed) in [
            (json!({}), true),
            (json!({"clusterIP": ""}), true),
            (json!({"clusterIP": "None"}), false),
            (json!({"clusterIP": "10.96.0.2"}), false),
            (json!({"type": "ExternalName"}), false),
        ] {
            assert_eq!(needs_address(&service(&spec)), needed, "{spec}");
        }
        let range = ServiceRange {
            first: [10, 96, 0, 1].into(),
            count: 3,
        };
        let mut all: Vec<Service> = Vec::new();
        let mut assigned = BTreeSet::new();
        while let Some(address) = free_address(range, all.iter(), "uid") {
            assert!(range.holds(address) && assigned.insert(address));
            all.push(service(&json!({"clusterIP": address.to_string()})));
        }
        assert_eq!(assigned.len(), 3);
    }

    #[test]
    fn endpoints_follow_selector_and_readiness() {
        let wanted = service(&json!({
            "selector": {"app": "a"},
            "ports": [{"name": "http", "port": 80, "targetPort": "web"}],
        }));
        let mut over = pod("over", "10.0.0.4", "True");
        over.status.as_mut().unwrap().phase = Some("Failed".into());
        let mut other = pod("other", "10.0.0.5", "True");
        other.metadata.labels = None;
        let mut waiting = pod("waiting", "10.0.0.6", "False");
        waiting.status.as_mut().unwrap().pod_ip = None;
        let pods = [
            pod("b", "10.0.0.3", "True"),
            pod("a", "10.0.0.2", "True"),
            pod("late", "10.0.0.9", "False"),
            over,
            other,
            waiting,
        ];
        let found = serde_json::to_value(endpoints(&wanted, pods.iter()).unwrap()).unwrap();
        let ips = |list: &str| -> Vec<String> {
            let all = found[0][list].as_array().unwrap().iter();
            all.map(|one| one["ip"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(ips("addresses"), ["10.0.0.2", "10.0.0.3"]);
        assert_eq!(ips("notReadyAddresses"), ["10.0.0.9"]);
        assert_eq!(found[0]["addresses"][0]["hostname"], "a");
        assert_eq!(
            found[0]["ports"],
            json!([{"name": "http", "port": 8080, "protocol": "TCP"}])
        );
        assert_eq!(endpoints(&service(&json!({})), pods.iter()), None);
        let none = service(&json!({"selector": {"app": "x"}}));
        assert_eq!(endpoints(&none, pods.iter()), Some(vec![]));
    }

    #[test]
    fn packets_are_forwarded_to_ready_endpoints() {
        let range = ServiceRange {
            first: [10, 96, 0, 1].into(),
            count: 10,
        };
        let spec = json!({"clusterIP": "10.96.0.2", "ports": [
            {"name": "a", "port": 80}, {"name": "b", "port": 53, "protocol": "UDP"},
            {"name": "c", "port": 1, "protocol": "SCTP"}]});
        let ours = service(&spec);
        let foreign = service(&json!({"clusterIP": "10.1.0.2", "ports": [{"port": 80}]}));
        let headless = service(&json!({"clusterIP": "None", "ports": [{"port": 80}]}));
        let known: Endpoints = serde_json::from_value(json!({"subsets": [{
            "addresses": [{"ip": "10.0.0.3"}, {"ip": "10.0.0.2"}],
            "notReadyAddresses": [{"ip": "10.0.0.9"}],
            "ports": [{"name": "a", "port": 8080}],
        }]}))
        .unwrap();
        let known = Arc::new(known);
        let found = forwards(range, [&ours, &foreign, &headless].into_iter(), |_| {
            Some(Arc::clone(&known))
        });
        let forward = |port, protocol, targets: &[&str]| Forward {
            address: [10, 96, 0, 2].into(),
            port,
            protocol,
            targets: targets.iter().map(|one| one.parse().unwrap()).collect(),
        };
        assert_eq!(
            found,
            [
                forward(53, Protocol::Udp, &[]),
                forward(80, Protocol::Tcp, &["10.0.0.2:8080", "10.0.0.3:8080"]),
            ]
        );
    }
}
