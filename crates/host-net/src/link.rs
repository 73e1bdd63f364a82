//! Links: look-up, creation, configuration, deletion.

use net_plan::MacAddress;
use rustix::io::Errno;

use crate::{
    Net, NetError,
    netlink::{ACK, CREATE, DUMP, EXCLUSIVE, Message, attributes, text_of, u32_at},
};

pub(crate) const NEW_LINK: u16 = 16;
pub(crate) const DEL_LINK: u16 = 17;
pub(crate) const GET_LINK: u16 = 18;
pub(crate) const SET_LINK: u16 = 19;

pub(crate) const IFLA_ADDRESS: u16 = 1;
pub(crate) const IFLA_IFNAME: u16 = 3;
pub(crate) const IFLA_MTU: u16 = 4;
pub(crate) const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_PROTINFO: u16 = 12;
pub(crate) const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
pub(crate) const IFLA_NET_NS_FD: u16 = 28;
pub(crate) const IFLA_INFO_KIND: u16 = 1;
pub(crate) const IFLA_INFO_DATA: u16 = 2;
/// Hairpin mode of a bridge port.
const IFLA_BRPORT_MODE: u16 = 4;
const IFLA_BRPORT_LEARNING: u16 = 8;

const UP: u32 = 1;
pub(crate) const AF_BRIDGE: u8 = 7;

/// An observed link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    pub kind: LinkKind,
    /// `None` for links without Ethernet addresses.
    pub mac: Option<MacAddress>,
    pub mtu: u32,
    /// Administratively up; the carrier may be off.
    pub up: bool,
    /// Index of its bridge, if it is a bridge port.
    pub master: Option<u32>,
    /// Index of the other end of a veth pair or of the link below a macvlan, in its namespace.
    pub peer: Option<u32>,
    /// Free text stored at the link.
    pub alias: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkKind {
    Bridge,
    Veth,
    /// TUN and TAP devices.
    Tun,
    Macvlan,
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
            Some("macvlan") => Self::Macvlan,
            Some(other) => Self::Other(other.to_owned()),
        }
    }

    pub fn as_str(&self) -> &str {
        match self {
            Self::Bridge => "bridge",
            Self::Veth => "veth",
            Self::Tun => "tap",
            Self::Macvlan => "macvlan",
            Self::Physical => "physical device",
            Self::Other(other) => other,
        }
    }
}

/// Wanted settings of a link; `None` keeps the current value. The link is always set up.
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

/// The kernel's rules for link names, checked here for a readable error, and two of our own: it replaces `%d`
/// by a number, so that a new link has another name, and settings of `all` and `default` are not those of a link.
pub(crate) fn check_name(name: &str) -> Result<(), NetError> {
    let bytes = name.as_bytes();
    let sane = (1..16).contains(&bytes.len())
        && !matches!(name, "." | ".." | "all" | "default")
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_graphic() && !b"/:%".contains(byte));
    if sane {
        return Ok(());
    }
    Err(NetError::BadName {
        name: name.to_owned(),
        what: "link name (at most 15 characters)",
    })
}

/// A setting of a bridge port.
#[derive(Debug, Clone, Copy)]
enum PortSetting {
    Hairpin,
    NoLearning,
}

impl Net {
    pub fn links(&mut self) -> Result<Vec<Link>, NetError> {
        let message = Message::new(GET_LINK, DUMP).with(&info(0, 0, 0, 0));
        let replies = self
            .route
            .request(&message)
            .map_err(|error| error.during("list links"))?;
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
            Err(error) if error.is(Errno::NODEV) => Ok(None),
            Err(error) => Err(error.during(format!("look up link {name}"))),
        }
    }

    /// The link, which must exist.
    pub fn existing_link(&mut self, name: &str) -> Result<Link, NetError> {
        self.link(name)?.ok_or_else(|| NetError::NoSuchLink {
            name: name.to_owned(),
        })
    }

    /// Creates a link. An existing link of that name is not an error; the caller checks its kind.
    pub(crate) fn create(
        &mut self,
        message: &Message,
        name: &str,
        feature: &str,
    ) -> Result<(), NetError> {
        let operation = || format!("create {feature} {name}");
        match self.route.request(message) {
            Ok(_) => Ok(()),
            Err(error) if error.is(Errno::EXIST) => Ok(()),
            Err(error) if error.is(Errno::OPNOTSUPP) => Err(NetError::NotSupported {
                operation: operation(),
                feature: feature.to_owned(),
            }),
            Err(error) => Err(error.during(operation())),
        }
    }

    /// Applies the settings that differ and sets the link up.
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

    /// Sets the link up without other changes.
    pub fn set_up(&mut self, name: &str) -> Result<(), NetError> {
        let link = self.existing_link(name)?;
        self.configure(&link, Settings::default())
    }

    /// Sets the link down, which removes its routes.
    pub fn set_down(&mut self, link: &Link) -> Result<(), NetError> {
        let message = Message::new(SET_LINK, ACK).with(&info(0, link.index, 0, UP));
        self.change(&message, || format!("set down link {}", link.name))
    }

    /// Renames the link, which must be down.
    pub(crate) fn rename(&mut self, link: &Link, name: &str) -> Result<(), NetError> {
        check_name(name)?;
        let mut message = Message::new(SET_LINK, ACK).with(&info(0, link.index, 0, 0));
        message.text(IFLA_IFNAME, name);
        self.change(&message, || format!("rename link {} to {name}", link.name))
    }

    /// Sets the alias and nothing else.
    pub(crate) fn set_alias(&mut self, link: &Link, alias: &str) -> Result<(), NetError> {
        let mut message = Message::new(SET_LINK, ACK).with(&info(0, link.index, 0, 0));
        message.attribute(IFLA_IFALIAS, alias.as_bytes());
        self.change(&message, || format!("set the alias of link {}", link.name))
    }

    /// Allows the bridge to send frames back through the port they came from, so that a pod reaches
    /// itself by an address that the host translates.
    pub(crate) fn set_hairpin(&mut self, port: &Link) -> Result<(), NetError> {
        self.set_port(port, PortSetting::Hairpin)
    }

    /// Disables address learning on the port: frames that come back through it do not originate
    /// behind it.
    pub(crate) fn disable_learning(&mut self, port: &Link) -> Result<(), NetError> {
        self.set_port(port, PortSetting::NoLearning)
    }

    fn set_port(&mut self, port: &Link, setting: PortSetting) -> Result<(), NetError> {
        let (attribute, value, operation) = match setting {
            PortSetting::Hairpin => (IFLA_BRPORT_MODE, 1, "enable hairpin mode"),
            PortSetting::NoLearning => (IFLA_BRPORT_LEARNING, 0, "disable learning"),
        };
        let mut message = Message::new(SET_LINK, ACK).with(&info(AF_BRIDGE, port.index, 0, 0));
        message.nest(IFLA_PROTINFO, |port| port.attribute(attribute, &[value]));
        self.change(&message, || format!("{operation} on {}", port.name))
    }

    pub(crate) fn change(
        &mut self,
        message: &Message,
        operation: impl Fn() -> String,
    ) -> Result<(), NetError> {
        let done = self.route.request(message);
        done.map(drop).map_err(|error| error.during(operation()))
    }

    /// Deletes the link, of a veth pair both ends. A missing link is not an error.
    pub fn delete_link(&mut self, name: &str) -> Result<(), NetError> {
        check_name(name)?;
        let mut message = Message::new(DEL_LINK, ACK).with(&info(0, 0, 0, 0));
        message.text(IFLA_IFNAME, name);
        match self.route.request(&message) {
            Ok(_) => Ok(()),
            Err(error) if error.is(Errno::NODEV) => Ok(()),
            Err(error) => Err(error.during(format!("delete link {name}"))),
        }
    }
}

/// The beginning of a message that creates a link.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_links_are_checked() {
        for name in ["lan0", "br.100", "a-b_c", "abcdefghijklmno"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "all",
            "default",
            "a/b",
            "a:b",
            "a b",
            "net%d",
            "abcdefghijklmnop",
            "\u{e9}",
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
