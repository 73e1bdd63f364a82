//! A pod's interface that is given to its guest: a port of a bridge, and a stand-in in its place.
//!
//! The stand-in is a bridge without ports that stays down. A dummy would do the same, but not every
//! kernel has dummies, and none can do without bridges here.
//!
//! What was seen of the interface is written down at it before anything is done to it, and stays
//! there under its other name: cut off anywhere, a second run looks, plans the same and completes it.

use net_plan::{GivenInterface, PodInterface};

use crate::{
    Link, LinkKind, Net, NetError,
    link::{
        IFLA_ADDRESS, IFLA_INFO_KIND, IFLA_LINKINFO, IFLA_MTU, Settings, check_name, create,
        of_kind,
    },
};

impl Net {
    /// Makes the interface a port of its bridge, and the stand-in. The bridge must be there.
    pub fn ensure_given(&mut self, given: &GivenInterface) -> Result<(), NetError> {
        check_name(&given.name)?;
        check_name(&given.renamed)?;
        let bridge = of_kind(
            self.existing_link(&given.bridge)?,
            &LinkKind::Bridge,
            "bridge",
        )?;
        let port = match self.link(&given.renamed)? {
            Some(port) => port,
            None => self.set_aside(given)?,
        };
        for address in self.addresses(&port)? {
            self.remove_address(&port, address)?;
            failpoints::after("host-net/given/take-address");
        }
        self.ensure_stand_in(given)?;
        let wanted = Settings {
            mac: Some(given.mac),
            master: Some(bridge.index),
            ..Settings::default()
        };
        self.configure(&port, wanted)?;
        failpoints::after("host-net/given/join");
        self.stop_learning(&port)
    }

    fn set_aside(&mut self, given: &GivenInterface) -> Result<Link, NetError> {
        let link = self.existing_link(&given.name)?;
        if link.kind == LinkKind::Bridge {
            return Err(NetError::Foreign {
                name: link.name,
                found: "stand-in of an interface that is gone".to_owned(),
                wanted: "pod's interface",
            });
        }
        self.set_alias(&link, &given.alias)?;
        failpoints::after("host-net/given/remember");
        self.set_down(&link)?;
        failpoints::after("host-net/given/set-down");
        self.rename(&link, &given.renamed)?;
        failpoints::after("host-net/given/rename");
        self.existing_link(&given.renamed)
    }

    fn ensure_stand_in(&mut self, given: &GivenInterface) -> Result<(), NetError> {
        let stand_in = &given.stand_in;
        if self.link(&given.name)?.is_none() {
            let mut message = create(&given.name);
            message.attribute(IFLA_ADDRESS, &stand_in.mac.0);
            message.number(IFLA_MTU, stand_in.mtu);
            message.nest(IFLA_LINKINFO, |info| info.text(IFLA_INFO_KIND, "bridge"));
            self.create(&message, &given.name, "bridge")?;
            failpoints::after("host-net/given/stand-in");
        }
        let link = of_kind(
            self.existing_link(&given.name)?,
            &LinkKind::Bridge,
            "stand-in",
        )?;
        for address in &stand_in.addresses {
            self.ensure_address(&link, *address)?;
            failpoints::after("host-net/given/give-address");
        }
        Ok(())
    }

    /// What was seen of the interface of this name before it was given away; `None` if it was not.
    pub(crate) fn remembered(&mut self, name: &str) -> Result<Option<PodInterface>, NetError> {
        let port = net_plan::port_name(name);
        if let Some(link) = self.link(&port)? {
            let seen = PodInterface::from_alias(name, link.mtu, &link.alias);
            let foreign = || NetError::Foreign {
                name: port,
                found: "link without our remark".to_owned(),
                wanted: "port of ours",
            };
            return seen.map(Some).ok_or_else(foreign);
        }
        let link = self.existing_link(name)?;
        Ok(PodInterface::from_alias(name, link.mtu, &link.alias))
    }
}
