//! The DNS names below the cluster's domain and their records. Pure.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
};

use k8s_openapi::api::core::v1::{Endpoints, Service};
use reconcile::Key;

use super::message::{Answer, Kind, Record};

/// Not configurable.
pub(crate) const DOMAIN: &str = "cluster.local";
/// The version of Kubernetes' DNS specification.
const VERSION: (&str, &str) = ("dns-version", "1.1.0");
/// The domain of reverse lookups for IPv4.
const REVERSE: &str = "in-addr.arpa";

/// The DNS entries of all services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Names {
    services: BTreeMap<Key, Named>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    target: Target,
    ports: Vec<Port>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    Address(Ipv4Addr),
    /// The pods of a headless service.
    Pods(Vec<Pod>),
    /// The alias of an `ExternalName` service.
    Name(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pod {
    hostname: String,
    address: Ipv4Addr,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Port {
    name: String,
    protocol: String,
    number: u16,
}

impl Names {
    pub(crate) fn of<'a>(
        services: impl Iterator<Item = &'a Service>,
        endpoints: impl Fn(&Key) -> Option<std::sync::Arc<Endpoints>>,
    ) -> Self {
        let named = services.filter_map(|service| {
            let key = Key::of(service);
            let endpoints = endpoints(&key);
            Some((key, named(service, endpoints.as_deref())?))
        });
        Self {
            services: named.collect(),
        }
    }

    /// The answer for a name of the cluster; `None` for all other names.
    pub(crate) fn answer(&self, name: &str, kind: Kind) -> Option<Answer> {
        if let Some(reversed) = name.strip_suffix(REVERSE) {
            let address = address_of(reversed.trim_end_matches('.'))?;
            return self.reverse(address, kind);
        }
        let inside = match name.strip_suffix(DOMAIN)? {
            "" => return Some(Answer::Empty),
            inside => inside.strip_suffix('.')?,
        };
        let labels: Vec<&str> = inside.split('.').collect();
        Some(match labels.as_slice() {
            ["svc" | "pod"] => Answer::Empty,
            [name] if *name == VERSION.0 => match kind {
                Kind::Text => Answer::Records(vec![Record::Text(VERSION.1)]),
                _ => Answer::Empty,
            },
            [namespace, "svc"] => self.namespace(namespace),
            [.., service, namespace, "svc"] => {
                let before = labels.get(..labels.len() - 3).unwrap_or_default();
                match self.services.get(&Key::new(*namespace, *service)) {
                    Some(named) => named.answer(name, before, kind),
                    None => Answer::Unknown,
                }
            }
            [address, _namespace, "pod"] => match address.replace('-', ".").parse() {
                Ok(address) => addresses(kind, [address]),
                Err(_) => Answer::Unknown,
            },
            _ => Answer::Unknown,
        })
    }

    fn namespace(&self, namespace: &str) -> Answer {
        let known = self.services.keys().any(|key| key.namespace == namespace);
        if known {
            Answer::Empty
        } else {
            Answer::Unknown
        }
    }

    /// Reverse lookup; `None` for addresses that are not of a service or its pods.
    fn reverse(&self, address: Ipv4Addr, kind: Kind) -> Option<Answer> {
        let named = self.services.iter().find_map(|(key, named)| {
            let service = format!("{}.{}.svc.{DOMAIN}", key.name, key.namespace);
            match &named.target {
                Target::Address(own) if *own == address => Some(service),
                Target::Pods(pods) => {
                    let pod = pods.iter().find(|pod| pod.address == address)?;
                    Some(format!("{}.{service}", pod.hostname))
                }
                _ => None,
            }
        })?;
        Some(match kind {
            Kind::Pointer => Answer::Records(vec![Record::Name(Kind::Pointer, named)]),
            _ => Answer::Empty,
        })
    }
}

impl Named {
    fn answer(&self, name: &str, before: &[&str], kind: Kind) -> Answer {
        match (before, &self.target) {
            ([], Target::Address(_) | Target::Pods(_)) if kind == Kind::Service => {
                let all = self.ports.iter();
                services(all.flat_map(|port| self.records(port, name)).collect())
            }
            ([], Target::Address(address)) => addresses(kind, [*address]),
            ([], Target::Pods(pods)) => addresses(kind, pods.iter().map(|pod| pod.address)),
            ([], Target::Name(to)) => Answer::Records(vec![Record::Name(Kind::Alias, to.clone())]),
            ([hostname], Target::Pods(pods)) => {
                let found: Vec<Ipv4Addr> = pods
                    .iter()
                    .filter(|pod| pod.hostname == *hostname)
                    .map(|pod| pod.address)
                    .collect();
                if found.is_empty() {
                    return Answer::Unknown;
                }
                addresses(kind, found)
            }
            ([port, protocol], _) => self.port(name, port, protocol, kind),
            _ => Answer::Unknown,
        }
    }

    fn port(&self, name: &str, port: &str, protocol: &str, kind: Kind) -> Answer {
        let (Some(port), Some(protocol)) = (port.strip_prefix('_'), protocol.strip_prefix('_'))
        else {
            return Answer::Unknown;
        };
        let found = self
            .ports
            .iter()
            .find(|one| one.name == port && one.protocol.eq_ignore_ascii_case(protocol));
        let (Some(found), Some((_, service))) = (found, name.split_once("._")) else {
            return Answer::Unknown;
        };
        let Some((_, service)) = service.split_once('.') else {
            return Answer::Unknown;
        };
        if kind != Kind::Service {
            return Answer::Empty;
        }
        services(self.records(found, service))
    }

    /// The records of one port of the service with this full name.
    fn records(&self, port: &Port, service: &str) -> Vec<Record> {
        let record = |name: String| Record::Service {
            name,
            port: port.number,
        };
        match &self.target {
            Target::Pods(pods) => pods
                .iter()
                .map(|pod| record(format!("{}.{service}", pod.hostname)))
                .collect(),
            _ => vec![record(service.to_owned())],
        }
    }
}

fn services(records: Vec<Record>) -> Answer {
    if records.is_empty() {
        Answer::Empty
    } else {
        Answer::Records(records)
    }
}

fn addresses(kind: Kind, all: impl IntoIterator<Item = Ipv4Addr>) -> Answer {
    match kind {
        Kind::Address => {
            let records: Vec<Record> = all.into_iter().map(Record::Address).collect();
            if records.is_empty() {
                Answer::Unknown
            } else {
                Answer::Records(records)
            }
        }
        _ => Answer::Empty,
    }
}

fn named(service: &Service, endpoints: Option<&Endpoints>) -> Option<Named> {
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return Some(Named {
            target: Target::Name(spec.external_name.clone()?),
            ports: Vec::new(),
        });
    }
    let port = |name: Option<&String>, protocol: Option<&String>, number: i32| {
        Some(Port {
            name: name.cloned().unwrap_or_default(),
            protocol: protocol.cloned().unwrap_or_else(|| "TCP".to_owned()),
            number: u16::try_from(number).ok()?,
        })
    };
    if spec.cluster_ip.as_deref() != Some("None") {
        let address = spec.cluster_ip.as_ref()?.parse().ok()?;
        let ports = spec.ports.iter().flatten();
        return Some(Named {
            target: Target::Address(address),
            ports: ports
                .filter_map(|one| port(one.name.as_ref(), one.protocol.as_ref(), one.port))
                .collect(),
        });
    }
    let subsets = || {
        endpoints
            .into_iter()
            .flat_map(|all| all.subsets.iter().flatten())
    };
    let pods = subsets().flat_map(|subset| subset.addresses.iter().flatten());
    let ports = subsets().flat_map(|subset| subset.ports.iter().flatten());
    Some(Named {
        target: Target::Pods(
            pods.filter_map(|one| {
                let address: Ipv4Addr = one.ip.parse().ok()?;
                let hostname = one.hostname.clone();
                Some(Pod {
                    hostname: hostname.unwrap_or_else(|| address.to_string().replace('.', "-")),
                    address,
                })
            })
            .collect(),
        ),
        ports: ports
            .filter_map(|one| port(one.name.as_ref(), one.protocol.as_ref(), one.port))
            .collect(),
    })
}

/// Parses the reversed notation: `4.3.2.1` is 1.2.3.4.
fn address_of(reversed: &str) -> Option<Ipv4Addr> {
    match reversed.parse::<IpAddr>().ok()? {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            Some(Ipv4Addr::new(d, c, b, a))
        }
        IpAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn names() -> Names {
        let service = |name: &str, spec: serde_json::Value| -> Service {
            serde_json::from_value(json!({
                "metadata": {"name": name, "namespace": "n"}, "spec": spec,
            }))
            .unwrap()
        };
        let all = [
            service(
                "web",
                json!({"clusterIP": "10.96.0.5", "ports": [{"name": "http", "port": 80}]}),
            ),
            service("db", json!({"clusterIP": "None"})),
            service(
                "out",
                json!({"type": "ExternalName", "externalName": "example.com"}),
            ),
            service("new", json!({})),
        ];
        let endpoints: Endpoints = serde_json::from_value(json!({"subsets": [{
            "addresses": [{"ip": "10.244.0.2", "hostname": "first"}, {"ip": "10.244.0.3"}],
            "ports": [{"name": "sql", "port": 5432}],
        }]}))
        .unwrap();
        let endpoints = Arc::new(endpoints);
        Names::of(all.iter(), |key| {
            (key.name == "db").then(|| Arc::clone(&endpoints))
        })
    }

    #[test]
    fn names_resolve_to_services_and_pods() {
        let a = |text: &str| Record::Address(text.parse().unwrap());
        let (one, two) = (a("10.244.0.2"), a("10.244.0.3"));
        for (name, expected) in [
            (
                "web.n.svc.cluster.local",
                Answer::Records(vec![a("10.96.0.5")]),
            ),
            (
                "db.n.svc.cluster.local",
                Answer::Records(vec![one.clone(), two.clone()]),
            ),
            ("first.db.n.svc.cluster.local", Answer::Records(vec![one])),
            (
                "10-244-0-3.db.n.svc.cluster.local",
                Answer::Records(vec![two]),
            ),
            ("other.db.n.svc.cluster.local", Answer::Unknown),
            (
                "out.n.svc.cluster.local",
                Answer::Records(vec![Record::Name(Kind::Alias, "example.com".into())]),
            ),
            ("new.n.svc.cluster.local", Answer::Unknown),
            ("web.other.svc.cluster.local", Answer::Unknown),
            ("n.svc.cluster.local", Answer::Empty),
            ("svc.cluster.local", Answer::Empty),
            ("cluster.local", Answer::Empty),
            (
                "10-244-0-9.n.pod.cluster.local",
                Answer::Records(vec![a("10.244.0.9")]),
            ),
            ("web.n.elsewhere.cluster.local", Answer::Unknown),
        ] {
            assert_eq!(
                names().answer(name, Kind::Address),
                Some(expected),
                "{name}"
            );
        }
        for others in ["example.com", "notcluster.local", "9.0.0.127.in-addr.arpa"] {
            assert_eq!(names().answer(others, Kind::Address), None, "{others}");
        }
    }

    #[test]
    fn ports_and_addresses_resolve() {
        let service = |name: &str, port| Record::Service {
            name: name.to_owned(),
            port,
        };
        let query = |name: &str, kind| names().answer(name, kind).unwrap();
        assert_eq!(
            query("_http._tcp.web.n.svc.cluster.local", Kind::Service),
            Answer::Records(vec![service("web.n.svc.cluster.local", 80)])
        );
        assert_eq!(
            query("_sql._tcp.db.n.svc.cluster.local", Kind::Service),
            Answer::Records(vec![
                service("first.db.n.svc.cluster.local", 5432),
                service("10-244-0-3.db.n.svc.cluster.local", 5432),
            ])
        );
        assert_eq!(
            query("web.n.svc.cluster.local", Kind::Service),
            Answer::Records(vec![service("web.n.svc.cluster.local", 80)])
        );
        assert_eq!(
            query("dns-version.cluster.local", Kind::Text),
            Answer::Records(vec![Record::Text("1.1.0")])
        );
        assert_eq!(
            query("3.0.244.10.in-addr.arpa", Kind::Pointer),
            Answer::Records(vec![Record::Name(
                Kind::Pointer,
                "10-244-0-3.db.n.svc.cluster.local".into()
            )])
        );
        assert_eq!(
            query("_http._udp.web.n.svc.cluster.local", Kind::Service),
            Answer::Unknown
        );
        assert_eq!(
            query("5.0.96.10.in-addr.arpa", Kind::Pointer),
            Answer::Records(vec![Record::Name(
                Kind::Pointer,
                "web.n.svc.cluster.local".into()
            )])
        );
        assert_eq!(query("web.n.svc.cluster.local", Kind::Other), Answer::Empty);
    }
}
