//! Pure planning: which connections the network policies allow to each pod.
//!
//! **Invariants**: a policy that cannot be carried out as a whole allows its pods nothing; a policy changes
//! nothing in other namespaces.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    net::{IpAddr, Ipv4Addr},
};

use k8s_openapi::{
    api::{
        core::v1::{Namespace, Pod},
        networking::v1::{
            NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer,
            NetworkPolicyPort,
        },
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use pod_network::{Allowed, Block, Cidr, Connections, Ports, Restriction, Transport};

use crate::{selector::selects, slots};

/// The packet rules that the policies of a namespace may need. Those of thousands of pods would slow down
/// every packet.
const MOST_RULES: usize = 8192;
const INGRESS: &str = "Ingress";
const EGRESS: &str = "Egress";

/// A pod on the pod network.
#[derive(Debug)]
pub(super) struct Member<'a> {
    namespace: &'a str,
    labels: Option<&'a BTreeMap<String, String>>,
    address: Ipv4Addr,
    /// Protocol, name and number of the ports with names.
    ports: Vec<(&'a str, &'a str, u16)>,
}

/// What the policies come to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) restrictions: Vec<Restriction>,
    /// Namespaces whose policies need too many rules, so that their pods get no connections.
    pub(super) too_large: BTreeSet<String>,
}

impl<'a> Member<'a> {
    /// `None` for a pod without an address of its own. `leased` are addresses by the pods' uids, which
    /// their status may lack yet.
    pub(super) fn of(pod: &'a Pod, leased: &HashMap<String, Ipv4Addr>) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        if spec.host_network == Some(true) || slots::has_ended(pod) {
            return None;
        }
        let uid = pod.metadata.uid.as_deref()?;
        let address = leased.get(uid).copied().or_else(|| {
            let status = pod.status.as_ref()?;
            let address: Ipv4Addr = status.pod_ip.as_deref()?.parse().ok()?;
            // The address of a pod that is gone may be another's by now.
            let is_taken = leased.values().any(|leased| *leased == address);
            (!is_taken).then_some(address)
        })?;
        let ports = spec
            .containers
            .iter()
            .flat_map(|container| container.ports.iter().flatten());
        let ports = ports.filter_map(|port| {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let number = u16::try_from(port.container_port).ok()?;
            Some((protocol, port.name.as_deref()?, number))
        });
        Some(Self {
            namespace: pod.metadata.namespace.as_deref().unwrap_or_default(),
            labels: pod.metadata.labels.as_ref(),
            address,
            ports: ports.collect(),
        })
    }

    fn port(&self, protocol: &str, name: &str) -> Option<u16> {
        let mut ports = self.ports.iter();
        let found = ports.find(|(of, named, _)| *of == protocol && *named == name);
        found.map(|(_, _, number)| *number)
    }
}

pub(super) fn plan(
    policies: &[&NetworkPolicy],
    namespaces: &[&Namespace],
    pods: &[Member<'_>],
) -> Planned {
    let namespaces = namespaces.iter().map(|namespace| {
        let name = namespace.metadata.name.as_deref().unwrap_or_default();
        (name, namespace.metadata.labels.as_ref())
    });
    let cluster = Cluster {
        namespaces: namespaces.collect(),
        pods,
    };
    let mut planned = Planned::default();
    let mut known: HashMap<&str, BTreeSet<Vec<Allowed>>> = HashMap::new();
    for pod in pods {
        let selecting = policies.iter().filter(|policy| {
            let selector = policy
                .spec
                .as_ref()
                .and_then(|spec| spec.pod_selector.as_ref());
            policy.metadata.namespace.as_deref() == Some(pod.namespace)
                && selector.is_none_or(|selector| selects(selector, pod.labels))
        });
        let selecting: Vec<&NetworkPolicy> = selecting.copied().collect();
        if selecting.is_empty() {
            continue;
        }
        planned.restrictions.push(Restriction {
            pod: pod.address,
            ingress: cluster.connections(INGRESS, pod, &selecting),
            egress: cluster.connections(EGRESS, pod, &selecting),
        });
        let Some(Restriction {
            ingress, egress, ..
        }) = planned.restrictions.last_mut()
        else {
            continue;
        };
        // Pods with the same connections share their rules.
        let known = known.entry(pod.namespace).or_default();
        for connections in [ingress, egress] {
            if let Connections::Only(allowed) = connections {
                known.insert(allowed.clone());
            }
        }
        if known.iter().map(Vec::len).sum::<usize>() > MOST_RULES {
            planned.too_large.insert(pod.namespace.to_owned());
        }
    }
    let too_large: HashSet<Ipv4Addr> = pods
        .iter()
        .filter(|pod| planned.too_large.contains(pod.namespace))
        .map(|pod| pod.address)
        .collect();
    for restriction in &mut planned.restrictions {
        if too_large.contains(&restriction.pod) {
            restriction.ingress = Connections::Only(Vec::new());
            restriction.egress = Connections::Only(Vec::new());
        }
    }
    planned.restrictions.sort();
    planned
}

/// What rules may name.
struct Cluster<'a> {
    namespaces: BTreeMap<&'a str, Option<&'a BTreeMap<String, String>>>,
    pods: &'a [Member<'a>],
}

/// The peers of a rule.
enum Peers<'a> {
    All,
    Some(Vec<Peer<'a>>),
}

enum Peer<'a> {
    Pod(&'a Member<'a>),
    Block(Block),
}

impl Cluster<'_> {
    /// What the policies allow a pod in one direction.
    fn connections(
        &self,
        direction: &str,
        pod: &Member<'_>,
        policies: &[&NetworkPolicy],
    ) -> Connections {
        let specs = policies.iter().filter_map(|policy| policy.spec.as_ref());
        let specs = specs.filter(|spec| {
            let types = spec.policy_types.as_deref().unwrap_or_default();
            types.iter().any(|one| one == direction)
        });
        let mut is_restricted = false;
        let mut allowed = BTreeSet::new();
        for spec in specs {
            is_restricted = true;
            if direction == INGRESS {
                for NetworkPolicyIngressRule { from, ports } in spec.ingress.iter().flatten() {
                    let peers = self.peers(pod.namespace, from.as_deref());
                    allowed.extend(self.rule(&peers, ports.as_deref(), Some(pod)));
                }
            } else {
                for NetworkPolicyEgressRule { to, ports } in spec.egress.iter().flatten() {
                    let peers = self.peers(pod.namespace, to.as_deref());
                    allowed.extend(self.rule(&peers, ports.as_deref(), None));
                }
            }
        }
        if is_restricted {
            Connections::Only(allowed.into_iter().collect())
        } else {
            Connections::Free
        }
    }

    fn peers(&self, own: &str, peers: Option<&[NetworkPolicyPeer]>) -> Peers<'_> {
        match peers {
            None | Some([]) => Peers::All,
            Some(peers) => {
                Peers::Some(peers.iter().flat_map(|peer| self.peer(own, peer)).collect())
            }
        }
    }

    fn peer(&self, own: &str, peer: &NetworkPolicyPeer) -> Vec<Peer<'_>> {
        if let Some(block) = &peer.ip_block {
            let parse = |text: &str| text.parse::<Cidr>().ok();
            // The pod network has IPv4 only, so another range allows nothing.
            let range = parse(&block.cidr).filter(|range| range.address.is_ipv4());
            let except = block.except.iter().flatten();
            let except: Option<Vec<Cidr>> = except.map(|one| parse(one)).collect();
            let block = range
                .zip(except)
                .map(|(range, except)| Block { range, except });
            return block.map(Peer::Block).into_iter().collect();
        }
        let is_selected = |member: &&Member<'_>| {
            let namespace = match &peer.namespace_selector {
                None => member.namespace == own,
                Some(selector) => {
                    let found = self.namespaces.get(member.namespace);
                    found.is_some_and(|labels| selects(selector, *labels))
                }
            };
            let pod = peer.pod_selector.as_ref();
            namespace && pod.is_none_or(|selector| selects(selector, member.labels))
        };
        let members = self.pods.iter().filter(is_selected);
        members.map(Peer::Pod).collect()
    }

    /// The connections of a rule. Names of ports are those of the pod that accepts them: `accepting`, or the
    /// peer.
    fn rule(
        &self,
        peers: &Peers<'_>,
        ports: Option<&[NetworkPolicyPort]>,
        accepting: Option<&Member<'_>>,
    ) -> Vec<Allowed> {
        let mut all = Vec::new();
        let Some(ports) = ports.filter(|ports| !ports.is_empty()) else {
            match peers {
                Peers::All => all.push(Allowed {
                    peer: None,
                    ports: None,
                }),
                Peers::Some(peers) => all.extend(peers.iter().map(|peer| Allowed {
                    peer: Some(peer.block()),
                    ports: None,
                })),
            }
            return all;
        };
        for port in ports {
            let is_of_the_peer =
                accepting.is_none() && matches!(port.port, Some(IntOrString::String(_)));
            match peers {
                Peers::All if is_of_the_peer => {
                    all.extend(self.pods.iter().filter_map(|pod| {
                        let ports = Some(number(port, Some(pod))?);
                        let peer = Some(Peer::Pod(pod).block());
                        Some(Allowed { peer, ports })
                    }));
                }
                Peers::All => all.extend(number(port, accepting).map(|ports| Allowed {
                    peer: None,
                    ports: Some(ports),
                })),
                Peers::Some(peers) => all.extend(peers.iter().filter_map(|peer| {
                    let of = accepting.or(match peer {
                        Peer::Pod(pod) => Some(pod),
                        Peer::Block(_) => None,
                    });
                    Some(Allowed {
                        peer: Some(peer.block()),
                        ports: Some(number(port, of)?),
                    })
                })),
            }
        }
        all
    }
}

impl Peer<'_> {
    fn block(&self) -> Block {
        match self {
            Self::Pod(pod) => Block {
                range: Cidr {
                    address: IpAddr::V4(pod.address),
                    prefix_length: 32,
                },
                except: Vec::new(),
            },
            Self::Block(block) => block.clone(),
        }
    }
}

/// The numbers of a port; `None` if the pod has no port of that name.
fn number(port: &NetworkPolicyPort, of: Option<&Member<'_>>) -> Option<Ports> {
    let name = port.protocol.as_deref().unwrap_or("TCP");
    let protocol = match name {
        "TCP" => Transport::Tcp,
        "UDP" => Transport::Udp,
        "SCTP" => Transport::Sctp,
        _ => return None,
    };
    let (first, last) = match &port.port {
        None => (0, u16::MAX),
        Some(IntOrString::Int(first)) => {
            let last = port.end_port.unwrap_or(*first);
            (u16::try_from(*first).ok()?, u16::try_from(last).ok()?)
        }
        Some(IntOrString::String(port)) => {
            let number = of?.port(name, port)?;
            (number, number)
        }
    };
    Some(Ports {
        protocol,
        first,
        last,
    })
}
