//! Macvlans: links in another namespace that share a link of this one.

use net_plan::MacAddress;

use crate::{
    Link, LinkKind, Net, NetError, NetworkNamespace,
    link::{
        IFLA_ADDRESS, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINK, IFLA_LINKINFO, IFLA_MTU,
        IFLA_NET_NS_FD, Settings, check_name, create, of_kind,
    },
};

const IFLA_MACVLAN_MODE: u16 = 1;

/// Which frames links on the same master exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MacvlanMode {
    Private,
    Vepa,
    Bridge,
    /// The only link on its master; it receives all frames.
    Passthru,
}

impl MacvlanMode {
    fn number(self) -> u32 {
        match self {
            Self::Private => 1,
            Self::Vepa => 2,
            Self::Bridge => 4,
            Self::Passthru => 8,
        }
    }
}

/// `name` in the other namespace, on `master` here.
#[derive(Debug, Clone, Copy)]
pub struct Macvlan<'a> {
    pub name: &'a str,
    pub master: &'a str,
    pub mode: MacvlanMode,
    pub mac: MacAddress,
    /// `None`: that of the master.
    pub mtu: Option<u32>,
}

impl Net {
    /// Creates the link and sets it up.
    pub fn ensure_macvlan(
        &mut self,
        there: &mut Net,
        namespace: &NetworkNamespace,
        macvlan: &Macvlan<'_>,
    ) -> Result<Link, NetError> {
        check_name(macvlan.name)?;
        let master = self.existing_link(macvlan.master)?;
        let link = match there.link(macvlan.name)? {
            Some(link) if link.peer == Some(master.index) => {
                of_kind(link, &LinkKind::Macvlan, "macvlan")?
            }
            Some(taken) => {
                let found = format!("{} of another network", taken.kind.as_str());
                return Err(NetError::Foreign {
                    name: taken.name,
                    found,
                    wanted: "new macvlan",
                });
            }
            None => self.create_macvlan(there, namespace, macvlan, &master)?,
        };
        let wanted = Settings {
            mac: Some(macvlan.mac),
            mtu: macvlan.mtu,
            ..Settings::default()
        };
        there.configure(&link, wanted)?;
        Ok(link)
    }

    fn create_macvlan(
        &mut self,
        there: &mut Net,
        namespace: &NetworkNamespace,
        macvlan: &Macvlan<'_>,
        master: &Link,
    ) -> Result<Link, NetError> {
        use std::os::fd::{AsFd as _, AsRawFd as _};
        let descriptor = namespace.as_fd().as_raw_fd().cast_unsigned();
        let mut message = create(macvlan.name);
        message.number(IFLA_LINK, master.index);
        message.number(IFLA_NET_NS_FD, descriptor);
        message.attribute(IFLA_ADDRESS, &macvlan.mac.0);
        if let Some(mtu) = macvlan.mtu {
            message.number(IFLA_MTU, mtu);
        }
        message.nest(IFLA_LINKINFO, |info| {
            info.text(IFLA_INFO_KIND, "macvlan");
            info.nest(IFLA_INFO_DATA, |data| {
                data.number(IFLA_MACVLAN_MODE, macvlan.mode.number());
            });
        });
        self.create(&message, macvlan.name, "macvlan")?;
        there.existing_link(macvlan.name)
    }
}
