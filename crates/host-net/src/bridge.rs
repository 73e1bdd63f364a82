//! Bridges: in a namespace of our own, or beside those of other programs.

use net_plan::Bridge;

use crate::{
    Link, LinkKind, Net, NetError,
    link::{IFLA_INFO_KIND, IFLA_LINKINFO, Settings, create, of_kind},
};

impl Net {
    /// Creates the bridge with its addresses and sets it up.
    pub fn ensure_bridge(&mut self, bridge: &Bridge) -> Result<Link, NetError> {
        let link = self.create_bridge(&bridge.name)?;
        self.configure_bridge(&link, bridge, None)?;
        Ok(link)
    }

    /// The same in a namespace shared with other programs: our bridge carries this alias. A bridge
    /// without it is adopted only if it is unconfigured: a crash may have come right after its
    /// creation.
    pub fn ensure_own_bridge(&mut self, bridge: &Bridge, alias: &str) -> Result<Link, NetError> {
        let link = self.create_bridge(&bridge.name)?;
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

    fn create_bridge(&mut self, name: &str) -> Result<Link, NetError> {
        if self.link(name)?.is_none() {
            let mut message = create(name);
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
