//! Handover of a pod's interface to its guest: the interface becomes a bridge port, and a stand-in
//! takes its name.
//!
//! The stand-in is a bridge without ports that stays down. A dummy link would do the same, but some
//! kernels lack dummies, and bridges are required anyway.
//!
//! The observed state of the interface is saved in its alias before the first change, and stays there
//! after the rename: after a crash at any step, a second run reads it, makes the same plan and
//! completes the handover.

use net_plan::{GivenInterface, PodInterface, Unplumbing};

use crate::{
    Link, LinkKind, Net, NetError,
    link::{
        IFLA_ADDRESS, IFLA_INFO_KIND, IFLA_LINKINFO, IFLA_MTU, Settings, check_name, create,
        of_kind,
    },
};

impl Net {
    /// Makes the interface a port of its bridge and creates the stand-in. The bridge must exist.
    pub fn ensure_handover(&mut self, given: &GivenInterface) -> Result<(), NetError> {
        check_name(&given.name)?;
        check_name(&given.renamed)?;
        let bridge = of_kind(
            self.existing_link(&given.bridge)?,
            &LinkKind::Bridge,
            "bridge",
        )?;
        let port = match self.link(&given.renamed)? {
            Some(port) => port,
            None => self.rename_to_port(given)?,
        };
        for address in self.addresses(&port)? {
            self.remove_address(&port, address)?;
            failpoints::after("host-net/handover/remove-address");
        }
        self.ensure_stand_in(given)?;
        let wanted = Settings {
            mac: Some(given.mac),
            master: Some(bridge.index),
            ..Settings::default()
        };
        self.configure(&port, wanted)?;
        failpoints::after("host-net/handover/join-bridge");
        self.disable_learning(&port)
    }

    fn rename_to_port(&mut self, given: &GivenInterface) -> Result<Link, NetError> {
        let link = self.existing_link(&given.name)?;
        if link.kind == LinkKind::Bridge {
            return Err(NetError::Foreign {
                name: link.name,
                found: "stand-in of a missing interface".to_owned(),
                wanted: "pod's interface",
            });
        }
        self.set_alias(&link, &given.alias)?;
        failpoints::after("host-net/handover/save-state");
        self.set_down(&link)?;
        failpoints::after("host-net/handover/set-down");
        self.rename(&link, &given.renamed)?;
        failpoints::after("host-net/handover/rename");
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
            failpoints::after("host-net/handover/create-stand-in");
        }
        let link = of_kind(
            self.existing_link(&given.name)?,
            &LinkKind::Bridge,
            "stand-in",
        )?;
        for address in &stand_in.addresses {
            self.ensure_address(&link, *address)?;
            failpoints::after("host-net/handover/add-stand-in-address");
        }
        Ok(())
    }

    /// Removes the stand-in, and gives the interface its name back. It stays a port until the bridge is removed.
    pub(crate) fn undo_handover(&mut self, links: &Unplumbing) -> Result<(), NetError> {
        let stand_in = self.link(&links.name)?;
        if stand_in.is_some_and(|link| link.kind == LinkKind::Bridge) {
            self.delete_link(&links.name)?;
            failpoints::after("host-net/unplumb/delete-stand-in");
        }
        let Some(port) = self.link(&links.renamed)? else {
            return Ok(());
        };
        // The network plugin has made another one since.
        if self.link(&links.name)?.is_some() {
            return self.delete_link(&links.renamed);
        }
        self.set_down(&port)?;
        self.rename(&port, &links.name)
    }

    /// The state of the interface before its handover; `None` if there was none.
    pub(crate) fn saved_state(&mut self, name: &str) -> Result<Option<PodInterface>, NetError> {
        let port = net_plan::port_name(name);
        if let Some(link) = self.link(&port)? {
            let saved = saved(name, &link);
            let foreign = || NetError::Foreign {
                name: port,
                found: "link without a ferrovirt alias".to_owned(),
                wanted: "handed-over interface",
            };
            return saved.map(Some).ok_or_else(foreign);
        }
        let link = self.existing_link(name)?;
        Ok(saved(name, &link))
    }
}

fn saved(name: &str, link: &Link) -> Option<PodInterface> {
    let saved = PodInterface::from_alias(name, link.mtu, &link.alias)?;
    Some(PodInterface {
        receives_own_only: link.kind == LinkKind::Macvlan,
        ..saved
    })
}
