//! The masquerade binding: the guest has a private network behind a bridge in its pod, and network
//! address translation to the pod's addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kubevirt_api::network::{Interface, PodNetwork};

use crate::{
    Cidr, PlanError, PodInterface, Sysctl,
    nft::{Action, Chain, Family, Hook, HookKind, HookPoint, Match, Rule, Table, Transport},
};

const PREINBOUND: &str = "KUBEVIRT_PREINBOUND";
const POSTINBOUND: &str = "KUBEVIRT_POSTINBOUND";

/// The guest's private network of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) gateway: Cidr,
    pub(crate) guest: IpAddr,
}

impl Side {
    fn loopback(&self) -> IpAddr {
        if self.guest.is_ipv4() {
            Ipv4Addr::LOCALHOST.into()
        } else {
            Ipv6Addr::LOCALHOST.into()
        }
    }
}

/// One side for each family of which the pod has a global address, IPv4 first.
pub(crate) fn sides(
    network: &str,
    settings: &PodNetwork,
    pod: &PodInterface,
) -> Result<Vec<Side>, PlanError> {
    let mut sides = Vec::new();
    if pod.ipv4.is_some() {
        sides.push(side_v4(network, settings)?);
    }
    if pod.ipv6.is_some() {
        sides.push(side_v6(network, settings)?);
    }
    if sides.is_empty() {
        return Err(PlanError::PodHasNoAddress {
            interface: pod.name.clone(),
        });
    }
    Ok(sides)
}

/// The guest's addresses, if its pod has both families.
pub(crate) fn guest_addresses(
    network: &str,
    settings: &PodNetwork,
) -> Result<[IpAddr; 2], PlanError> {
    let (v4, v6) = (side_v4(network, settings)?, side_v6(network, settings)?);
    Ok([v4.guest, v6.guest])
}

/// The link-local address of the bridge that guests use as their router: advertisements name no other. It is not
/// the kernel's own, which is another with some settings.
pub(crate) fn router() -> Cidr {
    Cidr::v6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), 64)
}

fn side_v4(network: &str, settings: &PodNetwork) -> Result<Side, PlanError> {
    let text = settings.vm_network_cidr.as_deref();
    let default = Cidr::v4(Ipv4Addr::new(10, 0, 2, 0), 24);
    side(network, "vmNetworkCIDR", written(text), default)
}

fn side_v6(network: &str, settings: &PodNetwork) -> Result<Side, PlanError> {
    let text = settings.vm_ipv6_network_cidr.as_deref();
    let default = Cidr::v6(Ipv6Addr::new(0xfd10, 0, 2, 0, 0, 0, 0, 0), 120);
    side(network, "vmIPv6NetworkCIDR", written(text), default)
}

fn written(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn side(
    network: &str,
    field: &'static str,
    text: Option<&str>,
    default: Cidr,
) -> Result<Side, PlanError> {
    let bad = |wanted| PlanError::BadNetworkCidr {
        network: network.to_owned(),
        field,
        value: text.unwrap_or_default().to_owned(),
        wanted,
    };
    let family = if default.address.is_ipv4() {
        "an IPv4 network such as 10.0.2.0/24"
    } else {
        "an IPv6 network such as fd10:0:2::/120"
    };
    let cidr = text.map_or(Ok(default), |text| {
        without_leading_zeros(text).parse().map_err(|_| bad(family))
    })?;
    if cidr.address.is_ipv4() != default.address.is_ipv4() || is_of_link(cidr.network().address) {
        return Err(bad(family));
    }
    let large = "large enough: it must leave two bits to hosts";
    if cidr.host_bits() < 2 {
        return Err(bad(large));
    }
    let host = |n| cidr.nth(n).ok_or_else(|| bad(large));
    Ok(Side {
        gateway: Cidr {
            address: host(1)?,
            prefix_length: cidr.prefix_length,
        },
        guest: host(2)?,
    })
}

/// Whether the guest's own network cannot have such addresses: they have a meaning on every link.
fn is_of_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.is_multicast() || address.is_unicast_link_local(),
    }
}

/// `KubeVirt` reads the numbers of an IPv4 address as decimal even with leading zeros.
fn without_leading_zeros(text: &str) -> String {
    if text.contains(':') {
        return text.to_owned();
    }
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let number = |number: &str| match number.trim_start_matches('0') {
        "" if !number.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let address: Vec<String> = address.split('.').map(number).collect();
    format!("{}/{length}", address.join("."))
}

/// Settings that permit forwarding between the pod's interface, loopback and the bridge.
pub(crate) fn sysctls(sides: &[Side], bridge: &str) -> Vec<Sysctl> {
    let on = |name: String| Sysctl {
        name,
        value: "1".to_owned(),
    };
    let mut all = Vec::new();
    for side in sides {
        if side.guest.is_ipv4() {
            all.push(on("net/ipv4/ip_forward".to_owned()));
            all.push(on(format!("net/ipv4/conf/{bridge}/route_localnet")));
        } else {
            all.push(on("net/ipv6/conf/all/forwarding".to_owned()));
        }
    }
    all
}

/// Ports of the guest that are reachable at the pod's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) protocol: Transport,
    pub(crate) first: u16,
    pub(crate) last: u16,
}

impl Ports {
    fn matched(self) -> Match {
        let Self {
            protocol,
            first,
            last,
        } = self;
        Match::DestinationPorts {
            protocol,
            first,
            last,
        }
    }
}

/// The listed ports, then the ranges; an empty list means all ports.
pub(crate) fn ports(interface: &Interface) -> Result<Vec<Ports>, PlanError> {
    let bad = |port: String, problem| PlanError::BadPort {
        interface: interface.name.clone(),
        port,
        problem,
    };
    let transport = |protocol: &str, port: String| match protocol {
        "" => Ok(Transport::Tcp),
        _ if protocol.eq_ignore_ascii_case("tcp") => Ok(Transport::Tcp),
        _ if protocol.eq_ignore_ascii_case("udp") => Ok(Transport::Udp),
        _ => Err(bad(port, "has a protocol other than TCP and UDP")),
    };
    let number = |port: i32| {
        u16::try_from(port)
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| bad(port.to_string(), "is not between 1 and 65535"))
    };
    let mut all = Vec::new();
    for port in &interface.ports {
        let protocol = transport(
            port.protocol.as_deref().unwrap_or(""),
            port.port.to_string(),
        )?;
        let number = number(port.port)?;
        all.push(Ports {
            protocol,
            first: number,
            last: number,
        });
    }
    for range in &interface.port_ranges {
        let text = || format!("range {}-{}", range.start, range.end);
        let protocol = transport(&range.protocol, text())?;
        let (first, last) = (number(range.start)?, number(range.end)?);
        if first > last {
            return Err(bad(text(), "ends before it starts"));
        }
        all.push(Ports {
            protocol,
            first,
            last,
        });
    }
    Ok(all)
}

/// The table `nat` of each family.
pub(crate) fn tables(
    interface: &Interface,
    sides: &[Side],
    pod_interface: &str,
    bridge: &str,
) -> Result<Vec<Table>, PlanError> {
    let ports = ports(interface)?;
    Ok(sides
        .iter()
        .map(|side| table(side, &ports, pod_interface, bridge))
        .collect())
}

fn table(side: &Side, ports: &[Ports], pod_interface: &str, bridge: &str) -> Table {
    let mut inbound = Inbound::default();
    if ports.is_empty() {
        inbound.open(side, None);
    }
    for ports in ports {
        inbound.open(side, Some(*ports));
    }
    let base = |name: &str, point, priority, rules| Chain {
        name: name.to_owned(),
        hook: Some(Hook {
            kind: HookKind::Nat,
            point,
            priority,
        }),
        rules,
    };
    let plain = |name: &str, rules| Chain {
        name: name.to_owned(),
        hook: None,
        rules,
    };
    let jump = |to: &str, when| Rule {
        matches: vec![when],
        action: Action::Jump(to.to_owned()),
    };
    let leaving = Rule {
        matches: vec![from(side.guest)],
        action: Action::Masquerade,
    };
    let entering = jump(PREINBOUND, Match::InputInterface(pod_interface.to_owned()));
    let to_guest = jump(POSTINBOUND, Match::OutputInterface(bridge.to_owned()));
    Table {
        family: Family::of(side.guest),
        name: "nat".to_owned(),
        chains: vec![
            base("prerouting", HookPoint::Prerouting, -100, vec![entering]),
            base("input", HookPoint::Input, 100, Vec::new()),
            base("output", HookPoint::Output, -100, inbound.output),
            base(
                "postrouting",
                HookPoint::Postrouting,
                100,
                vec![leaving, to_guest],
            ),
            plain(PREINBOUND, inbound.before),
            plain(POSTINBOUND, inbound.after),
        ],
    }
}

/// The rules that forward connections to the guest.
#[derive(Default)]
struct Inbound {
    before: Vec<Rule>,
    after: Vec<Rule>,
    output: Vec<Rule>,
}

impl Inbound {
    /// Opens these ports, or all, to the outside and to the pod itself. Packets from the pod's loopback
    /// get the gateway's address as source: the guest could not reply to a loopback address.
    fn open(&mut self, side: &Side, ports: Option<Ports>) {
        let ports: Vec<_> = ports.map(Ports::matched).into_iter().collect();
        let to_guest = Action::DestinationNat(side.guest);
        self.before.push(Rule {
            matches: ports.clone(),
            action: to_guest.clone(),
        });
        let mut matches = ports.clone();
        matches.push(from(side.loopback()));
        self.after.push(Rule {
            matches,
            action: Action::SourceNat(side.gateway.address),
        });
        let mut matches = vec![to(side.loopback())];
        matches.extend(ports);
        self.output.push(Rule {
            matches,
            action: to_guest,
        });
    }
}

fn host(address: IpAddr) -> Cidr {
    Cidr {
        address,
        prefix_length: if address.is_ipv4() { 32 } else { 128 },
    }
}

fn from(address: IpAddr) -> Match {
    Match::Source(host(address))
}

fn to(address: IpAddr) -> Match {
    Match::Destination(host(address))
}
