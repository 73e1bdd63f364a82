//! Veth pairs between two namespaces.

use net_plan::MacAddress;

use crate::{
    Link, LinkKind, Net, NetError, NetworkNamespace,
    link::{
        IFLA_ADDRESS, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINKINFO, IFLA_MTU,
        IFLA_NET_NS_FD, Settings, check_name, create, info, of_kind,
    },
};

const VETH_INFO_PEER: u16 = 1;

/// A pair: `name` here, as a port of `bridge`; `peer` in the other namespace.
#[derive(Debug, Clone, Copy)]
pub struct Veth<'a> {
    pub name: &'a str,
    pub bridge: &'a str,
    /// The hardware address of the end here; `None` leaves it to the kernel.
    pub mac: Option<MacAddress>,
    /// The MTU of the end here.
    pub mtu: u32,
    pub peer: &'a str,
    pub peer_mac: MacAddress,
    pub peer_mtu: u32,
    /// Whether the bridge sends frames back through the port that they came from.
    pub hairpin: bool,
    /// The alias of the end here; `None` leaves it as it is.
    pub alias: Option<&'a str>,
}

/// The two ends of a pair.
#[derive(Debug, Clone)]
pub struct VethPair {
    pub here: Link,
    pub peer: Link,
}

impl Net {
    /// Creates the pair and sets both ends up; the end here is a port of the bridge. An end left over from
    /// a deleted namespace is replaced.
    pub fn ensure_veth(
        &mut self,
        there: &mut Net,
        namespace: &NetworkNamespace,
        veth: &Veth<'_>,
    ) -> Result<VethPair, NetError> {
        check_name(veth.name)?;
        check_name(veth.peer)?;
        let bridge = of_kind(
            self.existing_link(veth.bridge)?,
            &LinkKind::Bridge,
            "bridge",
        )?;
        let pair = match self.existing_pair(there, veth)? {
            Some(pair) => pair,
            None => self.create_pair(there, namespace, veth)?,
        };
        let port = Settings {
            mac: veth.mac,
            master: Some(bridge.index),
            mtu: Some(veth.mtu),
            alias: veth.alias,
        };
        self.configure(&pair.here, port)?;
        if veth.hairpin {
            self.set_hairpin(&pair.here)?;
        }
        let end = Settings {
            mac: Some(veth.peer_mac),
            mtu: Some(veth.peer_mtu),
            ..Settings::default()
        };
        there.configure(&pair.peer, end)?;
        Ok(pair)
    }

    fn existing_pair(
        &mut self,
        there: &mut Net,
        veth: &Veth<'_>,
    ) -> Result<Option<VethPair>, NetError> {
        let Some(here) = self.link(veth.name)? else {
            return Ok(None);
        };
        let here = of_kind(here, &LinkKind::Veth, "veth")?;
        let peer = there.link(veth.peer)?;
        if let Some(peer) =
            peer.filter(|peer| peer.peer == Some(here.index) && here.peer == Some(peer.index))
        {
            return Ok(Some(VethPair { here, peer }));
        }
        self.delete_link(veth.name)?;
        Ok(None)
    }

    fn create_pair(
        &mut self,
        there: &mut Net,
        namespace: &NetworkNamespace,
        veth: &Veth<'_>,
    ) -> Result<VethPair, NetError> {
        use std::os::fd::{AsFd as _, AsRawFd as _};
        if let Some(taken) = there.link(veth.peer)? {
            let found = format!("{} of another network", taken.kind.as_str());
            return Err(NetError::Foreign {
                name: taken.name,
                found,
                wanted: "new veth",
            });
        }
        let descriptor = namespace.as_fd().as_raw_fd().cast_unsigned();
        let mut message = create(veth.name);
        message.number(IFLA_MTU, veth.mtu);
        if let Some(mac) = veth.mac {
            message.attribute(IFLA_ADDRESS, &mac.0);
        }
        message.nest(IFLA_LINKINFO, |link| {
            link.text(IFLA_INFO_KIND, "veth");
            link.nest(IFLA_INFO_DATA, |data| {
                data.nest(VETH_INFO_PEER, |peer| {
                    peer.push(&info(0, 0, 0, 0));
                    peer.text(IFLA_IFNAME, veth.peer);
                    peer.number(IFLA_MTU, veth.peer_mtu);
                    peer.attribute(IFLA_ADDRESS, &veth.peer_mac.0);
                    peer.number(IFLA_NET_NS_FD, descriptor);
                });
            });
        });
        self.create(&message, veth.name, "veth")?;
        Ok(VethPair {
            here: self.existing_link(veth.name)?,
            peer: there.existing_link(veth.peer)?,
        })
    }
}
