//! Pure planning: which connections the network policies allow to each pod.
//!
//! **Invariants**: a policy that cannot be carried out as a whole allows its pods nothing; a policy changes
//! nothing in other namespaces; the work is bounded, whatever the policies say.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv4Addr},
};

use k8s_openapi::{
    api::{
        core::v1::{Namespace, Pod},
        networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort},
    },
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use kubevirt_api::annotations;
use pod_network::{Allowed, Cidr, Connections, Ports, Restriction, Transport};

use crate::{selector::selects, slots};

/// The packet rules that the policies of a namespace may need, and all of its rules as they are written. More would
/// slow down every packet.
const MOST_RULES: usize = 8192;
/// The packet rules of all namespaces, which are set at once.
const MOST_RULES_IN_ALL: usize = 4 * MOST_RULES;
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

/// Whether the pod's address is one of the pod network: another network may have the same.
pub(crate) fn is_on_pod_network(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    let is_elsewhere =
        annotations.is_some_and(|all| all.contains_key(annotations::MULTUS_DEFAULT_NETWORK));
    let spec = pod.spec.as_ref();
    let is_host = spec.is_some_and(|spec| spec.host_network == Some(true));
    !is_elsewhere && !is_host
}

impl<'a> Member<'a> {
    /// `None` for a pod without an address of its own. `leased` are addresses by the pods' uids, which
    /// their status may lack yet.
    pub(super) fn of(pod: &'a Pod, leased: &HashMap<String, Ipv4Addr>) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        if !is_on_pod_network(pod) || slots::has_ended(pod) {
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
    let mut by_namespace: BTreeMap<&str, Vec<&NetworkPolicy>> = BTreeMap::new();
    for policy in policies {
        let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
        by_namespace.entry(namespace).or_default().push(policy);
    }
    let mut planned = Planned::default();
    // The small ones first: if there are too many rules, it is the large ones that are not carried out.
    let mut sized = Vec::new();
    for (namespace, policies) in by_namespace {
        let restricted = cluster.namespace(namespace, &policies);
        let count = restricted.as_ref().map_or(usize::MAX, |one| rules(one));
        sized.push((count, namespace, policies, restricted));
    }
    sized.sort_by_key(|(count, namespace, ..)| (*count, *namespace));
    let mut left = MOST_RULES_IN_ALL;
    for (count, namespace, policies, restricted) in sized {
        let rest = left.checked_sub(count).filter(|_| count <= MOST_RULES);
        if let Some((restricted, rest)) = restricted.zip(rest) {
            left = rest;
            planned.restrictions.extend(restricted);
        } else {
            planned.too_large.insert(namespace.to_owned());
            let closed = cluster.closed(namespace, &policies);
            planned.restrictions.extend(closed);
        }
    }
    planned.restrictions.sort();
    planned
}

/// How many packet rules these need. Pods with the same connections share them.
fn rules(restrictions: &[Restriction]) -> usize {
    let all = restrictions
        .iter()
        .flat_map(|one| [&one.ingress, &one.egress]);
    let lists = all.filter_map(|connections| match connections {
        Connections::Free => None,
        Connections::Only(allowed) => Some(allowed),
    });
    let lists: BTreeSet<&Vec<Allowed>> = lists.collect();
    lists.into_iter().map(Vec::len).sum()
}

/// What rules may name.
struct Cluster<'a> {
    namespaces: BTreeMap<&'a str, Option<&'a BTreeMap<String, String>>>,
    pods: &'a [Member<'a>],
}

/// A policy whose peers are known.
struct Resolved<'a> {
    selector: Option<&'a LabelSelector>,
    /// `None` leaves the direction free.
    ingress: Option<Vec<Rule<'a>>>,
    egress: Option<Vec<Rule<'a>>>,
}

struct Rule<'a> {
    peers: Peers,
    ports: &'a [NetworkPolicyPort],
}

enum Peers {
    All,
    Some(BTreeSet<Peer>),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Peer {
    /// The position in the list of pods.
    Pod(usize),
    Range(Cidr),
}

impl Cluster<'_> {
    /// The restrictions of a namespace; `None` if they are too many.
    fn namespace(&self, name: &str, policies: &[&NetworkPolicy]) -> Option<Vec<Restriction>> {
        let mut left = MOST_RULES;
        let resolved: Option<Vec<Resolved<'_>>> = policies
            .iter()
            .map(|policy| self.resolved(name, policy, &mut left))
            .collect();
        let resolved = resolved?;
        let mut all = Vec::new();
        for pod in self.pods.iter().filter(|pod| pod.namespace == name) {
            let selecting: Vec<&Resolved<'_>> =
                resolved.iter().filter(|one| one.selects(pod)).collect();
            if selecting.is_empty() {
                continue;
            }
            let ingress = selecting.iter().map(|one| one.ingress.as_deref());
            let egress = selecting.iter().map(|one| one.egress.as_deref());
            all.push(Restriction {
                pod: pod.address,
                ingress: self.connections(ingress, Some(pod))?,
                egress: self.connections(egress, None)?,
            });
        }
        Some(all)
    }

    /// No connections for the pods that the policies select.
    fn closed(&self, name: &str, policies: &[&NetworkPolicy]) -> Vec<Restriction> {
        let is_selected = |pod: &&Member<'_>| {
            let mut specs = policies.iter().filter_map(|policy| policy.spec.as_ref());
            pod.namespace == name
                && specs.any(|spec| {
                    let selector = spec.pod_selector.as_ref();
                    selector.is_none_or(|selector| selects(selector, pod.labels))
                })
        };
        let pods = self.pods.iter().filter(is_selected);
        pods.map(|pod| Restriction {
            pod: pod.address,
            ingress: Connections::Only(Vec::new()),
            egress: Connections::Only(Vec::new()),
        })
        .collect()
    }

    /// `left` are the rules that the namespace may still have, each as often as it has peers and ports.
    fn resolved<'p>(
        &self,
        own: &str,
        policy: &'p NetworkPolicy,
        left: &mut usize,
    ) -> Option<Resolved<'p>> {
        let Some(spec) = &policy.spec else {
            return Some(Resolved {
                selector: None,
                ingress: None,
                egress: None,
            });
        };
        let has = |direction: &str| {
            let types = spec.policy_types.as_deref().unwrap_or_default();
            types.iter().any(|one| one == direction)
        };
        let mut rule = |peers: &Option<Vec<NetworkPolicyPeer>>,
                        ports: &'p Option<Vec<NetworkPolicyPort>>| {
            let peers = peers.as_deref().unwrap_or_default();
            let ports = ports.as_deref().unwrap_or_default();
            let written = peers.len().max(1).saturating_mul(ports.len().max(1));
            *left = left.checked_sub(written)?;
            let peers = self.peers(own, peers)?;
            Some(Rule { peers, ports })
        };
        let ingress = spec.ingress.iter().flatten();
        let ingress: Option<Vec<Rule<'p>>> =
            ingress.map(|one| rule(&one.from, &one.ports)).collect();
        let egress = spec.egress.iter().flatten();
        let egress: Option<Vec<Rule<'p>>> = egress.map(|one| rule(&one.to, &one.ports)).collect();
        Some(Resolved {
            selector: spec.pod_selector.as_ref(),
            ingress: Some(ingress?).filter(|_| has(INGRESS)),
            egress: Some(egress?).filter(|_| has(EGRESS)),
        })
    }

    fn peers(&self, own: &str, peers: &[NetworkPolicyPeer]) -> Option<Peers> {
        if peers.is_empty() {
            return Some(Peers::All);
        }
        let mut all = BTreeSet::new();
        for peer in peers {
            self.add_peer(own, peer, &mut all);
            if all.len() > MOST_RULES {
                return None;
            }
        }
        Some(Peers::Some(all))
    }

    fn add_peer(&self, own: &str, peer: &NetworkPolicyPeer, all: &mut BTreeSet<Peer>) {
        if let Some(block) = &peer.ip_block {
            let parse = |text: &str| text.parse::<Cidr>().ok();
            let except = block.except.iter().flatten();
            let except: Option<Vec<Cidr>> = except.map(|one| parse(one)).collect();
            // The pod network has IPv4 only, so another range allows nothing.
            if let Some((range, except)) = parse(&block.cidr).zip(except) {
                add_without(range, &except, all);
            }
            return;
        }
        let is_selected = |member: &Member<'_>| {
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
        let members = self.pods.iter().enumerate();
        let selected = members.filter(|(_, member)| is_selected(member));
        all.extend(selected.map(|(at, _)| Peer::Pod(at)));
    }

    /// What policies allow in one direction; `None` if it is too much. Names of ports are those of the pod that
    /// accepts connections: `accepting`, or the peer.
    fn connections<'r>(
        &self,
        policies: impl Iterator<Item = Option<&'r [Rule<'r>]>>,
        accepting: Option<&Member<'_>>,
    ) -> Option<Connections> {
        let mut is_restricted = false;
        let mut allowed = BTreeSet::new();
        let mut left = MOST_RULES;
        for rules in policies.flatten() {
            is_restricted = true;
            for rule in rules {
                self.allow(rule, accepting, (&mut allowed, &mut left))?;
            }
        }
        Some(if is_restricted {
            Connections::Only(allowed.into_iter().collect())
        } else {
            Connections::Free
        })
    }

    fn allow(
        &self,
        rule: &Rule<'_>,
        accepting: Option<&Member<'_>>,
        (allowed, left): (&mut BTreeSet<Allowed>, &mut usize),
    ) -> Option<()> {
        let every = [None];
        let ports: Vec<Option<&NetworkPolicyPort>> = if rule.ports.is_empty() {
            every.to_vec()
        } else {
            rule.ports.iter().map(Some).collect()
        };
        for port in ports {
            let named = port.is_some_and(|port| matches!(port.port, Some(IntOrString::String(_))));
            let peers: Vec<Option<Peer>> = match &rule.peers {
                Peers::All if named && accepting.is_none() => {
                    (0..self.pods.len()).map(|at| Some(Peer::Pod(at))).collect()
                }
                Peers::All => vec![None],
                Peers::Some(peers) => peers.iter().copied().map(Some).collect(),
            };
            *left = left.checked_sub(peers.len())?;
            for peer in peers {
                let pod = match peer {
                    Some(Peer::Pod(at)) => self.pods.get(at),
                    Some(Peer::Range(_)) | None => None,
                };
                let ports = match port.map(|port| number(port, accepting.or(pod))) {
                    None => None,
                    Some(Some(ports)) => Some(ports),
                    // The pod has no port of that name.
                    Some(None) => continue,
                };
                let peer = match peer {
                    Some(Peer::Range(range)) => Some(range),
                    Some(Peer::Pod(_)) => pod.map(|pod| Cidr::v4(pod.address, 32)),
                    None => None,
                };
                allowed.insert(Allowed { peer, ports });
            }
        }
        Some(())
    }
}

impl Resolved<'_> {
    fn selects(&self, pod: &Member<'_>) -> bool {
        let selector = self.selector;
        selector.is_none_or(|selector| selects(selector, pod.labels))
    }
}

/// Adds the range without the exceptions, as ranges: each exception halves those that have it.
fn add_without(range: Cidr, except: &[Cidr], all: &mut BTreeSet<Peer>) {
    let IpAddr::V4(first) = range.network().address else {
        return;
    };
    let except: Vec<Cidr> = except
        .iter()
        .copied()
        .filter(|one| one.overlaps(&range))
        .collect();
    let is_inside = |one: &Cidr| one.prefix_length > range.prefix_length;
    if except.is_empty() {
        all.insert(Peer::Range(Cidr::v4(first, range.prefix_length)));
    } else if except.iter().all(is_inside) && all.len() <= MOST_RULES {
        let length = range.prefix_length + 1;
        let second = first.to_bits() | 1 << (32 - u32::from(length));
        add_without(Cidr::v4(first, length), &except, all);
        add_without(Cidr::v4(second.into(), length), &except, all);
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
