//! Bridges, in a namespace of ours or beside those of other programs.

use net_plan::Bridge;

use crate::{
    Link, LinkKind, Net, NetError,
    link::{IFLA_INFO_KIND, IFLA_LINKINFO, Settings, create, of_kind},
};

impl Net {
    /// Makes the bridge, its addresses too, and sets it up.
    pub fn ensure_bridge(&mut self, bridge: &Bridge) -> Result<Link, NetError> {
        let link = self.make_bridge(&bridge.name)?;
        self.furnish(&link, bridge, None)?;
        Ok(link)
    }

    /// The same where other programs have bridges: ours has a remark, and a bridge without it is
    /// only taken if nobody has done anything with it (we may have been cut off).
    pub fn ensure_own_bridge(&mut self, bridge: &Bridge, remark: &str) -> Result<Link, NetError> {
        let link = self.make_bridge(&bridge.name)?;
        if link.alias != remark && !self.is_bare(&link)? {
            return Err(NetError::Foreign {
                name: link.name,
                found: "bridge in use".to_owned(),
                wanted: "bridge of ours",
            });
        }
        self.furnish(&link, bridge, Some(remark))?;
        Ok(link)
    }

    fn make_bridge(&mut self, name: &str) -> Result<Link, NetError> {
        if self.link(name)?.is_none() {
            let mut message = create(name);
            message.nest(IFLA_LINKINFO, |info| info.text(IFLA_INFO_KIND, "bridge"));
            self.create(&message, name, "bridge")?;
        }
        of_kind(self.existing_link(name)?, &LinkKind::Bridge, "bridge")
    }

    fn is_bare(&mut self, bridge: &Link) -> Result<bool, NetError> {
        Ok(bridge.alias.is_empty()
            && self.addresses(bridge)?.is_empty()
            && self.ports(bridge)?.is_empty())
    }

    fn furnish(
        &mut self,
        link: &Link,
        bridge: &Bridge,
        remark: Option<&str>,
    ) -> Result<(), NetError> {
        let (mac, mtu) = (Some(bridge.mac), Some(bridge.mtu));
        self.configure(
            link,
            Settings {
                mac,
                mtu,
                alias: remark,
                master: None,
            },
        )?;
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
