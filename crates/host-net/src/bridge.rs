//! Bridges: in a namespace of our own, or beside those of other programs.

use std::path::Path;

use net_plan::{Bridge, MacAddress, Sysctl};

use crate::{
    Link, LinkKind, Net, NetError,
    link::{
        IFLA_ADDRESS, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINKINFO, NEW_LINK, Settings, create,
        info, of_kind,
    },
    netlink::{ACK, Message},
};

const IFLA_BR_NF_CALL_IPTABLES: u16 = 36;
const IFLA_BR_NF_CALL_IP6TABLES: u16 = 37;

/// A bridge in a namespace shared with other programs, which may have made it.
#[derive(Debug, Clone, Copy)]
pub struct SharedBridge<'a> {
    pub name: &'a str,
    /// The hardware address of a new bridge, by which one is recognised that has no alias yet.
    pub mac: MacAddress,
    /// The MTU of a new bridge; `None` leaves it to the kernel.
    pub mtu: Option<u32>,
    /// The alias of a new bridge.
    pub alias: &'a str,
}

impl SharedBridge<'_> {
    /// Whether the creation of the link by [`Net::ensure_shared_bridge`] was cut off.
    pub fn is_incomplete(&self, link: &Link) -> bool {
        link.kind == LinkKind::Bridge && link.alias.is_empty() && link.mac == Some(self.mac)
    }
}

impl Net {
    /// Creates the bridge with its addresses and sets it up.
    pub fn ensure_bridge(&mut self, bridge: &Bridge) -> Result<Link, NetError> {
        let link = self.create_bridge(&bridge.name, None)?;
        self.configure_bridge(&link, bridge, None)?;
        Ok(link)
    }

    /// The same in a namespace shared with other programs: our bridge carries this alias. A bridge
    /// without it is adopted only if it is unconfigured: a crash may have come right after its
    /// creation.
    pub fn ensure_own_bridge(&mut self, bridge: &Bridge, alias: &str) -> Result<Link, NetError> {
        let link = self.create_bridge(&bridge.name, None)?;
        if link.alias != alias && !self.is_unconfigured(&link)? {
            return Err(NetError::Foreign {
                name: link.name,
                found: "bridge in use".to_owned(),
                wanted: "ferrovirt bridge",
            });
        }
        self.configure_bridge(&link, bridge, Some(alias))?;
        Ok(link)
    }

    /// A bridge that other programs may share: one that exists keeps its settings, and is only set up. A new
    /// one gets its alias last. The host takes no part in its traffic: it has no IPv6 there, so that it
    /// follows no router that a guest announces, and accepts IPv4 packets only from networks that it
    /// has an address of.
    pub fn ensure_shared_bridge(&mut self, bridge: &SharedBridge<'_>) -> Result<Link, NetError> {
        let link = match self.link(bridge.name)? {
            Some(link) => of_kind(link, &LinkKind::Bridge, "bridge")?,
            None => self.create_bridge(bridge.name, Some(bridge.mac))?,
        };
        let mut settings = Settings::default();
        if bridge.is_incomplete(&link) {
            self.keep_host_off(bridge.name)?;
            settings = Settings {
                mtu: bridge.mtu,
                alias: Some(bridge.alias),
                ..settings
            };
        }
        self.configure(&link, settings)?;
        self.existing_link(bridge.name)
    }

    /// Has packets between ports of the bridge pass the packet rules, as those that the host routes. Idempotent.
    pub fn filter_bridged(&mut self, bridge: &Link) -> Result<(), NetError> {
        let operation = || format!("filter packets on bridge {}", bridge.name);
        // The settings exist once the kernel can do it.
        if !Path::new("/proc/sys/net/bridge").exists() {
            return Err(NetError::NotSupported {
                operation: operation(),
                feature: "br_netfilter".to_owned(),
            });
        }
        let mut message = Message::new(NEW_LINK, ACK).with(&info(0, bridge.index, 0, 0));
        message.nest(IFLA_LINKINFO, |link| {
            link.text(IFLA_INFO_KIND, "bridge");
            link.nest(IFLA_INFO_DATA, |data| {
                data.attribute(IFLA_BR_NF_CALL_IPTABLES, &[1]);
                data.attribute(IFLA_BR_NF_CALL_IP6TABLES, &[1]);
            });
        });
        self.change(&message, operation)
    }

    fn keep_host_off(&mut self, link: &str) -> Result<(), NetError> {
        let setting = |name: &str, value: &str| Sysctl {
            name: name.replace('*', link),
            value: value.to_owned(),
        };
        self.ensure_sysctl_if_present(&setting("net/ipv6/conf/*/disable_ipv6", "1"))?;
        self.ensure_sysctl(&setting("net/ipv4/conf/*/rp_filter", "1"))
    }

    fn create_bridge(&mut self, name: &str, mac: Option<MacAddress>) -> Result<Link, NetError> {
        if self.link(name)?.is_none() {
            let mut message = create(name);
            if let Some(mac) = mac {
                message.attribute(IFLA_ADDRESS, &mac.0);
            }
            message.nest(IFLA_LINKINFO, |info| info.text(IFLA_INFO_KIND, "bridge"));
            self.create(&message, name, "bridge")?;
        }
        of_kind(self.existing_link(name)?, &LinkKind::Bridge, "bridge")
    }

    fn is_unconfigured(&mut self, bridge: &Link) -> Result<bool, NetError> {
        Ok(bridge.alias.is_empty()
            && self.addresses(bridge)?.is_empty()
            && self.ports(bridge)?.is_empty())
    }

    fn configure_bridge(
        &mut self,
        link: &Link,
        bridge: &Bridge,
        alias: Option<&str>,
    ) -> Result<(), NetError> {
        let settings = Settings {
            mac: Some(bridge.mac),
            mtu: Some(bridge.mtu),
            alias,
            master: None,
        };
        self.configure(link, settings)?;
        for address in &bridge.addresses {
            self.ensure_address(link, *address)?;
        }
        Ok(())
    }

    /// The links that are ports of the bridge.
    pub fn ports(&mut self, bridge: &Link) -> Result<Vec<Link>, NetError> {
        let mut links = self.links()?;
        links.retain(|link| link.master == Some(bridge.index));
        Ok(links)
    }
}
