//! Links: found, made, set and deleted.

use net_plan::MacAddress;
use rustix::io::Errno;

use crate::{
    Net, NetError,
    netlink::{ACK, CREATE, DUMP, EXCLUSIVE, Message, attributes, text_of, u32_at},
};

const NEW_LINK: u16 = 16;
const DEL_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const SET_LINK: u16 = 19;

pub(crate) const IFLA_ADDRESS: u16 = 1;
pub(crate) const IFLA_IFNAME: u16 = 3;
pub(crate) const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_PROTINFO: u16 = 12;
pub(crate) const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
pub(crate) const IFLA_NET_NS_FD: u16 = 28;
pub(crate) const IFLA_INFO_KIND: u16 = 1;
pub(crate) const IFLA_INFO_DATA: u16 = 2;
/// Hairpin, in the kernel's words "mode", of a bridge port.
const IFLA_BRPORT_MODE: u16 = 4;
const IFLA_BRPORT_LEARNING: u16 = 8;

const UP: u32 = 1;
const AF_BRIDGE: u8 = 7;

/// A link as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    pub kind: LinkKind,
    /// `None` for links without Ethernet addresses.
    pub mac: Option<MacAddress>,
    pub mtu: u32,
    /// Set up by its administrator; its carrier may be off.
    pub up: bool,
    /// Index of the bridge it is a port of.
    pub master: Option<u32>,
    /// Index of the other end of a veth pair, in that end's namespace.
    pub peer: Option<u32>,
    /// A remark somebody left.
    pub alias: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkKind {
    Bridge,
    Veth,
    /// TUN and TAP devices.
    Tun,
    /// Hardware and loopback.
    Physical,
    Other(String),
}

impl LinkKind {
    fn from_wire(kind: Option<&str>) -> Self {
        match kind {
            None => Self::Physical,
            Some("bridge") => Self::Bridge,
            Some("veth") => Self::Veth,
            Some("tun") => Self::Tun,
            Some(other) => Self::Other(other.to_owned()),
        }
    }

    pub fn as_str(&self) -> &str {
        match self {
            Self::Bridge => "bridge",
            Self::Veth => "veth",
            Self::Tun => "tap",
            Self::Physical => "physical device",
            Self::Other(other) => other,
        }
    }
}

/// What to set on a link; `None` leaves it. It is set up in any case.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Settings<'a> {
    pub(crate) mac: Option<MacAddress>,
    pub(crate) mtu: Option<u32>,
    pub(crate) master: Option<u32>,
    pub(crate) alias: Option<&'a str>,
}

/// `struct ifinfomsg`.
pub(crate) fn info(family: u8, index: u32, flags: u32, mask: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[0] = family;
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&mask.to_ne_bytes());
    bytes
}

/// The kernel's rules for names, so that a bad one is refused in words.
pub(crate) fn check_name(name: &str) -> Result<(), NetError> {
    let bytes = name.as_bytes();
    let sane = (1..16).contains(&bytes.len())
        && !matches!(name, "." | "..")
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_graphic() && !b"/:".contains(byte));
    if sane {
        return Ok(());
    }
    Err(NetError::BadName {
        name: name.to_owned(),
        what: "a link of at most 15 characters",
    })
}

impl Net {
    pub fn links(&mut self) -> Result<Vec<Link>, NetError> {
        let message = Message::new(GET_LINK, DUMP).with(&info(0, 0, 0, 0));
        let replies = self
            .route
            .request(&message)
            .map_err(|err| err.while_doing("list links"))?;
        Ok(replies
            .iter()
            .filter(|reply| reply.kind == NEW_LINK)
            .map(|reply| parse(&reply.payload))
            .collect())
    }

    pub fn link(&mut self, name: &str) -> Result<Option<Link>, NetError> {
        check_name(name)?;
        let mut message = Message::new(GET_LINK, ACK).with(&info(0, 0, 0, 0));
        message.text(IFLA_IFNAME, name);
        match self.route.request(&message) {
            Ok(replies) => Ok(replies
                .iter()
                .find(|reply| reply.kind == NEW_LINK)
                .map(|reply| parse(&reply.payload))),
            Err(err) if err.is(Errno::NODEV) => Ok(None),
            Err(err) => Err(err.while_doing(format!("look up link {name}"))),
        }
    }

    /// The link, which must be there.
    pub fn existing_link(&mut self, name: &str) -> Result<Link, NetError> {
        self.link(name)?.ok_or_else(|| NetError::NoSuchLink {
            name: name.to_owned(),
        })
    }

    /// One that appeared meanwhile is as good; its kind is the caller's to check.
    pub(crate) fn create(
        &mut self,
        message: &Message,
        name: &str,
        feature: &str,
    ) -> Result<(), NetError> {
        let doing = || format!("make {feature} {name}");
        match self.route.request(message) {
            Ok(_) => Ok(()),
            Err(err) if err.is(Errno::EXIST) => Ok(()),
            Err(err) if err.is(Errno::OPNOTSUPP) => Err(NetError::NotSupported {
                doing: doing(),
                feature: feature.to_owned(),
            }),
            Err(err) => Err(err.while_doing(doing())),
        }
    }

    /// Sets what differs, and the link up.
    pub(crate) fn configure(&mut self, link: &Link, wanted: Settings<'_>) -> Result<(), NetError> {
        let mut message = Message::new(SET_LINK, ACK).with(&info(0, link.index, UP, UP));
        let mut differs = !link.up;
        if let Some(mac) = wanted.mac.filter(|mac| link.mac != Some(*mac)) {
            message.attribute(IFLA_ADDRESS, &mac.0);
            differs = true;
        }
        if let Some(mtu) = wanted.mtu.filter(|mtu| link.mtu != *mtu) {
            message.number(IFLA_MTU, mtu);
            differs = true;
        }
        if let Some(master) = wanted.master.filter(|master| link.master != Some(*master)) {
            message.number(IFLA_MASTER, master);
            differs = true;
        }
        if let Some(alias) = wanted.alias.filter(|alias| link.alias != *alias) {
            message.attribute(IFLA_IFALIAS, alias.as_bytes());
            differs = true;
        }
        if !differs {
            return Ok(());
        }
        self.change(&message, || format!("set up link {}", link.name))
    }

    /// Sets the link up as it is.
    pub fn set_up(&mut self, name: &str) -> Result<(), NetError> {
        let link = self.existing_link(name)?;
        self.configure(&link, Settings::default())
    }

    /// Sets the link down, which takes its routes.
    pub(crate) fn set_down(&mut self, link: &Link) -> Result<(), NetError> {
        let message = Message::new(SET_LINK, ACK).with(&info(0, link.index, 0, UP));
        self.change(&message, || format!("set down link {}", link.name))
    }

    /// Gives the link another name; it has to be down.
    pub(crate) fn rename(&mut self, link: &Link, name: &str) -> Result<(), NetError> {
        check_name(name)?;
        let mut message = Message::new(SET_LINK, ACK).with(&info(0, link.index, 0, 0));
        message.text(IFLA_IFNAME, name);
        self.change(&message, || format!("rename link {} to {name}", link.name))
    }

    /// Leaves a remark at the link, and everything else as it is.
    pub(crate) fn set_alias(&mut self, link: &Link, alias: &str) -> Result<(), NetError> {
        let mut message = Message::new(SET_LINK, ACK).with(&info(0, link.index, 0, 0));
        message.attribute(IFLA_IFALIAS, alias.as_bytes());
        self.change(&message, || format!("leave a remark at link {}", link.name))
    }

    /// Lets the bridge send frames back through the port they came from, so that a pod reaches
    /// itself by an address that is translated outside of it.
    pub(crate) fn set_hairpin(&mut self, port: &Link) -> Result<(), NetError> {
        self.set_port(port, (IFLA_BRPORT_MODE, "hairpin", 1))
    }

    /// Keeps the bridge from learning who is behind the port: frames that come back by it are not
    /// from there.
    pub(crate) fn stop_learning(&mut self, port: &Link) -> Result<(), NetError> {
        self.set_port(port, (IFLA_BRPORT_LEARNING, "learning", 0))
    }

    fn set_port(
        &mut self,
        port: &Link,
        (setting, what, value): (u16, &str, u8),
    ) -> Result<(), NetError> {
        let mut message = Message::new(SET_LINK, ACK).with(&info(AF_BRIDGE, port.index, 0, 0));
        message.nest(IFLA_PROTINFO, |port| port.attribute(setting, &[value]));
        self.change(&message, || format!("set {what} on {}", port.name))
    }

    fn change(&mut self, message: &Message, doing: impl Fn() -> String) -> Result<(), NetError> {
        let done = self.route.request(message);
        done.map(drop).map_err(|err| err.while_doing(doing()))
    }

    /// Deletes the link; with one end of a veth pair goes the other. One that is not there is fine.
    pub fn delete_link(&mut self, name: &str) -> Result<(), NetError> {
        check_name(name)?;
        let mut message = Message::new(DEL_LINK, ACK).with(&info(0, 0, 0, 0));
        message.text(IFLA_IFNAME, name);
        match self.route.request(&message) {
            Ok(_) => Ok(()),
            Err(err) if err.is(Errno::NODEV) => Ok(()),
            Err(err) => Err(err.while_doing(format!("delete link {name}"))),
        }
    }
}

/// The beginning of a message that makes a link.
pub(crate) fn create(name: &str) -> Message {
    let mut message = Message::new(NEW_LINK, ACK | CREATE | EXCLUSIVE).with(&info(0, 0, 0, 0));
    message.text(IFLA_IFNAME, name);
    message
}

pub(crate) fn of_kind(link: Link, kind: &LinkKind, wanted: &'static str) -> Result<Link, NetError> {
    if link.kind == *kind {
        return Ok(link);
    }
    let found = link.kind.as_str().to_owned();
    Err(NetError::Foreign {
        name: link.name,
        found,
        wanted,
    })
}

fn parse(payload: &[u8]) -> Link {
    let mut link = Link {
        index: u32_at(payload, 4),
        name: String::new(),
        kind: LinkKind::Physical,
        mac: None,
        mtu: 0,
        up: u32_at(payload, 8) & UP != 0,
        master: None,
        peer: None,
        alias: String::new(),
    };
    for (kind, value) in attributes(payload.get(16..).unwrap_or_default()) {
        match kind {
            IFLA_IFNAME => link.name = text_of(value),
            IFLA_ADDRESS => link.mac = value.try_into().ok().map(MacAddress),
            IFLA_MTU => link.mtu = u32_at(value, 0),
            IFLA_MASTER => link.master = Some(u32_at(value, 0)).filter(|master| *master != 0),
            IFLA_LINK => link.peer = Some(u32_at(value, 0)).filter(|peer| *peer != 0),
            IFLA_IFALIAS => link.alias = text_of(value),
            IFLA_LINKINFO => {
                let kind = attributes(value).find(|(kind, _)| *kind == IFLA_INFO_KIND);
                link.kind = LinkKind::from_wire(kind.map(|(_, text)| text_of(text)).as_deref());
            }
            _ => {}
        }
    }
    link
}
