//! Gives a pod an interface on a secondary network.

use std::net::{IpAddr, Ipv4Addr};

use host_net::{Link, LinkKind, Macvlan, Net, NetworkNamespace, SharedBridge, Veth};
use net_plan::{Cidr, MacAddress};
use sha2::{Digest as _, Sha256};

use super::{
    Addresses, Definition,
    definition::{Addressing, BridgeDefinition, LinkDefinition, NetworkRoute},
};
use crate::PodNetworkError;

/// The MTU of a network whose bridge is new and whose definition names none.
const USUAL_MTU: u32 = 1500;

/// The first byte of locally administered unicast addresses of ours.
const LOCAL: u8 = 0x0a;
/// That of the ports of bridges: a bridge takes the lowest address of its ports for its own unless it was set,
/// and the address of another program's bridge must not change.
const HIGH: u8 = 0xfe;

/// An interface of a pod on a secondary network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    pub pod_uid: String,
    /// What stays the same when the pod is replaced; the pod itself, if nothing does.
    pub owner: String,
    /// The interface's name in the pod.
    pub interface: String,
    /// `None`: one that follows from the owner.
    pub mac: Option<MacAddress>,
    pub definition: Definition,
}

/// The interface, and the link of the host at its other end.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) inside: Link,
    pub(crate) mac: MacAddress,
    pub(crate) addresses: Vec<Cidr>,
    pub(crate) routes: Vec<NetworkRoute>,
}

/// The alias of bridges that this pod network made, for the name of its tables.
fn bridge_alias(table: &str) -> String {
    format!("{table} secondary network")
}

fn pod_alias(table: &str, uid: &str) -> String {
    format!("{table} interface of pod {uid}")
}

/// The hardware address of a bridge that this pod network makes: it does not change with the ports.
fn bridge_mac(table: &str, name: &str) -> MacAddress {
    let digest: [u8; 32] = Sha256::digest(format!("{table} bridge {name}")).into();
    let [one, two, three, four, five, ..] = digest;
    MacAddress([LOCAL, one, two, three, four, five])
}

fn shared_bridge<'a>(name: &'a str, table: &str, alias: &'a str) -> SharedBridge<'a> {
    SharedBridge {
        name,
        mac: bridge_mac(table, name),
        mtu: None,
        alias,
    }
}

/// Whether the pod network of this table made the link as the bridge of a network, or began to.
pub(crate) fn is_bridge(link: &Link, table: &str) -> bool {
    let alias = bridge_alias(table);
    let bridge = shared_bridge(&link.name, table, &alias);
    (link.kind == LinkKind::Bridge && link.alias == alias) || bridge.is_incomplete(link)
}

/// Whether it made the link for a pod that `is_meant`.
pub(crate) fn is_of_pod(link: &Link, table: &str, is_meant: impl Fn(&str) -> bool) -> bool {
    let rest = link.alias.strip_prefix(&pod_alias(table, ""));
    let uid = rest.and_then(|rest| rest.split(' ').next());
    uid.is_some_and(is_meant)
}

fn digest(of: &str, interface: &str) -> [u8; 32] {
    Sha256::digest(format!("{of}/{interface}")).into()
}

/// The name of the host's end of a veth pair.
fn veth(pod_uid: &str, interface: &str) -> String {
    let hex = hex::encode(digest(pod_uid, interface));
    let digits: String = hex.chars().take(11).collect();
    format!("fv{digits}")
}

/// Removes a pod's interface at the host's end, where the thread is. A missing one is not an error.
pub(crate) fn remove_port(
    host: &mut Net,
    table: &str,
    pod_uid: &str,
    interface: &str,
) -> Result<(), PodNetworkError> {
    let name = veth(pod_uid, interface);
    let link = host.link(&name)?;
    if link.is_some_and(|link| is_of_pod(&link, table, |uid| uid == pod_uid)) {
        host.delete_link(&name)?;
    }
    Ok(())
}

/// Removes a pod's macvlan, which has no end outside of the pod. It may have been handed over to a guest.
pub(crate) fn remove_macvlan(pod: &mut Net, interface: &str) -> Result<(), PodNetworkError> {
    for name in [interface, &net_plan::port_name(interface)] {
        let link = pod.link(name)?;
        if link.is_some_and(|link| link.kind == LinkKind::Macvlan) {
            pod.delete_link(name)?;
        }
    }
    Ok(())
}

impl Attachment {
    fn digest(&self, of: &str) -> [u8; 32] {
        digest(of, &self.interface)
    }

    fn veth(&self) -> String {
        veth(&self.pod_uid, &self.interface)
    }

    /// A short form of the owner, for the alias of a link.
    fn owner_digest(&self) -> String {
        let hex = hex::encode(self.digest(&self.owner));
        hex.chars().take(8).collect()
    }

    /// The same for every pod of an owner, so that a guest keeps its address.
    fn mac(&self) -> MacAddress {
        self.mac.unwrap_or_else(|| {
            let [one, two, three, four, five, ..] = self.digest(&self.owner);
            MacAddress([LOCAL, one, two, three, four, five])
        })
    }

    /// The hardware address of the host's end of a veth pair.
    fn port_mac(&self) -> MacAddress {
        let [one, two, three, four, five, ..] = self.digest(&self.pod_uid);
        MacAddress([HIGH, one, two, three, four, five])
    }

    fn addresses(
        &self,
        leases: &Addresses,
    ) -> Result<(Vec<Cidr>, Vec<NetworkRoute>), PodNetworkError> {
        Ok(match &self.definition.addressing {
            Addressing::None => (Vec::new(), Vec::new()),
            Addressing::Static { addresses, routes } => (addresses.clone(), routes.clone()),
            Addressing::Leased { range, routes } => {
                let owner = format!("{}/{}", self.owner, self.interface);
                let network = (&*self.definition.name, range);
                let address = leases.ensure(network, &self.pod_uid, &owner)?;
                let address = Cidr::v4(address, range.subnet.prefix_length);
                (vec![address], routes.clone())
            }
        })
    }

    /// Creates what the network needs on the host, where the thread is. `own` is the bridge of the pod network,
    /// where a pod without its lease would take the addresses of others.
    pub(crate) fn prepare(
        &self,
        host: &mut Net,
        own: &str,
        table: &str,
    ) -> Result<(), PodNetworkError> {
        let definition = match &self.definition.link {
            LinkDefinition::Bridge(definition) => definition,
            LinkDefinition::Macvlan { master, .. } => {
                return refuse_pod_network(master.as_deref().unwrap_or_default(), own);
            }
        };
        let name = &*definition.name;
        refuse_pod_network(name, own)?;
        let alias = bridge_alias(table);
        let bridge = host.ensure_shared_bridge(&SharedBridge {
            mtu: self.definition.mtu,
            ..shared_bridge(name, table, &alias)
        })?;
        if definition.vlan.is_none() || host.separates_vlans(&bridge)? {
            return Ok(());
        }
        if bridge.alias != alias {
            let bridge = bridge.name;
            return Err(PodNetworkError::BridgeWithoutVlans { bridge });
        }
        Ok(host.separate_vlans(&bridge)?)
    }

    /// Creates the interface on a prepared host. Idempotent, as long as the pod has not changed it.
    pub(crate) fn create(
        &self,
        leases: &Addresses,
        table: &str,
        (host, pod): (&mut Net, &mut Net),
        namespace: &NetworkNamespace,
    ) -> Result<Attached, PodNetworkError> {
        let (addresses, routes) = self.addresses(leases)?;
        let mac = self.mac();
        let inside = match &self.definition.link {
            LinkDefinition::Bridge(bridge) => {
                self.join_bridge(bridge, table, (&mut *host, &mut *pod), namespace)?
            }
            LinkDefinition::Macvlan { master, mode } => {
                let master = match master {
                    Some(master) => master.clone(),
                    None => default_link(host)?,
                };
                let macvlan = Macvlan {
                    name: &self.interface,
                    master: &master,
                    mode: *mode,
                    mac,
                    mtu: self.definition.mtu,
                };
                host.ensure_macvlan(pod, namespace, &macvlan)?
            }
        };
        for address in &addresses {
            pod.ensure_address(&inside, *address)?;
        }
        for route in &routes {
            pod.ensure_route(&inside, route.destination, route.via)?;
        }
        Ok(Attached {
            inside,
            mac,
            addresses,
            routes,
        })
    }

    fn join_bridge(
        &self,
        definition: &BridgeDefinition,
        table: &str,
        (host, pod): (&mut Net, &mut Net),
        namespace: &NetworkNamespace,
    ) -> Result<Link, PodNetworkError> {
        let bridge = host.existing_link(&definition.name)?;
        let vlan = definition.vlan.map_or(0, |vlan| vlan.id);
        let address = format!(" with {} in VLAN {vlan}", self.mac());
        let alias = format!(
            "{} of {}{address}",
            pod_alias(table, &self.pod_uid),
            self.owner_digest()
        );
        // The pods of one guest share its address.
        let own = format!(" of {}{address}", self.owner_digest());
        let is_other = |alias: &str| alias.ends_with(&address) && !alias.ends_with(&own);
        let mut ports = host.ports(&bridge)?.into_iter();
        if ports.any(|port| is_of_pod(&port, table, |_| true) && is_other(&port.alias)) {
            return Err(PodNetworkError::MacInUse {
                mac: self.mac(),
                bridge: bridge.name,
            });
        }
        let usual = if bridge.mtu > 0 {
            bridge.mtu
        } else {
            USUAL_MTU
        };
        let mtu = self.definition.mtu.unwrap_or(usual);
        let veth = Veth {
            name: &self.veth(),
            bridge: &bridge.name,
            mac: Some(self.port_mac()),
            // A bridge takes the lowest MTU of its ports for its own.
            mtu: mtu.max(usual),
            peer: &self.interface,
            peer_mac: self.mac(),
            peer_mtu: mtu,
            hairpin: definition.hairpin,
            alias: Some(&alias),
        };
        let pair = host.ensure_veth(pod, namespace, &veth)?;
        if let Some(vlan) = definition.vlan {
            host.ensure_port_vlan(&pair.here, vlan)?;
        }
        if definition.interface_is_down {
            pod.set_down(&pair.peer)?;
        }
        Ok(pair.peer)
    }
}

fn refuse_pod_network(link: &str, own: &str) -> Result<(), PodNetworkError> {
    if link == own {
        let link = link.to_owned();
        return Err(PodNetworkError::OwnBridge { link });
    }
    Ok(())
}

/// The link of the host's default route.
fn default_link(host: &mut Net) -> Result<String, PodNetworkError> {
    let routes = host.routes()?;
    let is_default = |route: &&host_net::Route| {
        route.destination.prefix_length == 0
            && matches!(route.destination.address, IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    };
    let index = routes.iter().find(is_default).and_then(|route| route.link);
    let links = host.links()?;
    let link = links.into_iter().find(|link| Some(link.index) == index);
    link.map(|link| link.name)
        .ok_or(PodNetworkError::NoDefaultLink)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(pod: &str, owner: &str, interface: &str) -> Attachment {
        Attachment {
            pod_uid: pod.to_owned(),
            owner: owner.to_owned(),
            interface: interface.to_owned(),
            mac: None,
            definition: Definition::parse("lan", r#"{"type": "bridge"}"#).unwrap(),
        }
    }

    #[test]
    fn guest_keeps_its_hardware_address_and_pods_have_links_of_their_own() {
        let first = attachment("u1", "ns/VM/a", "pod1");
        let second = attachment("u2", "ns/VM/a", "pod1");
        assert_eq!(first.mac(), second.mac());
        assert!(first.mac().is_unicast());
        assert_ne!(first.veth(), second.veth());
        assert_eq!(first.veth().len(), 13);
        for other in [
            attachment("u1", "ns/VM/b", "pod1"),
            attachment("u1", "ns/VM/a", "pod2"),
        ] {
            assert_ne!(first.mac(), other.mac());
        }
        let mac: MacAddress = "02:00:00:00:00:0b".parse().unwrap();
        let given = Attachment {
            mac: Some(mac),
            ..first
        };
        assert_eq!(given.mac(), mac);
    }

    #[test]
    fn links_of_this_network_are_recognised() {
        let link = |kind: LinkKind, mac: Option<MacAddress>, alias: &str| Link {
            index: 1,
            name: "x".to_owned(),
            kind,
            mac,
            mtu: 1500,
            up: true,
            master: None,
            peer: None,
            alias: alias.to_owned(),
        };
        let own = Some(bridge_mac("ferrovirt", "x"));
        for (kind, mac, alias, expected) in [
            (LinkKind::Bridge, None, "ferrovirt secondary network", true),
            (LinkKind::Veth, None, "ferrovirt secondary network", false),
            (LinkKind::Bridge, own, "", true),
            (LinkKind::Bridge, own, "lan", false),
            (LinkKind::Bridge, Some(bridge_mac("other", "x")), "", false),
            (LinkKind::Bridge, None, "", false),
        ] {
            let link = link(kind, mac, alias);
            assert_eq!(is_bridge(&link, "ferrovirt"), expected, "{link:?}");
        }
        for (alias, of_pod) in [
            ("ferrovirt secondary network", false),
            ("ferrovirt interface of pod u1", true),
            (
                "ferrovirt interface of pod u1 of 0123abcd with 02:00:00:00:00:0b in VLAN 0",
                true,
            ),
            ("ferrovirt interface of pod u11", false),
            ("ferrovirt interface of pod u2", false),
            ("ferrovirt2 interface of pod u1", false),
            ("", false),
        ] {
            let link = link(LinkKind::Veth, None, alias);
            assert_eq!(
                is_of_pod(&link, "ferrovirt", |uid| uid == "u1"),
                of_pod,
                "{alias}"
            );
        }
    }
}
