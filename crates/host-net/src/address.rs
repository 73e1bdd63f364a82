//! Addresses of links.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use net_plan::Cidr;
use rustix::io::Errno;

use crate::{
    Link, Net, NetError,
    netlink::{ACK, CREATE, DUMP, EXCLUSIVE, Message, attributes, u32_at},
};

const NEW_ADDRESS: u16 = 20;
const DEL_ADDRESS: u16 = 21;
const GET_ADDRESS: u16 = 22;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_BROADCAST: u16 = 4;

/// No duplicate address detection, so that the address is usable at once.
const NO_DETECTION: u8 = 0x02;
const SCOPE_GLOBAL: u8 = 0;

pub(crate) const INET: u8 = 2;
pub(crate) const INET6: u8 = 10;

pub(crate) fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { INET } else { INET6 }
}

pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

pub(crate) fn from_octets(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(|octets| Ipv4Addr::from(octets).into());
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(|octets| Ipv6Addr::from(octets).into()))
        .ok()
}

/// `struct ifaddrmsg`.
fn head(address: &Cidr, index: u32) -> [u8; 8] {
    let flags = if address.address.is_ipv4() {
        0
    } else {
        NO_DETECTION
    };
    let index = index.to_ne_bytes();
    let [a, b, c, d] = index;
    [
        family(address.address),
        address.prefix_length,
        flags,
        SCOPE_GLOBAL,
        a,
        b,
        c,
        d,
    ]
}

impl Net {
    /// Global addresses of the link, in the kernel's order.
    pub fn addresses(&mut self, link: &Link) -> Result<Vec<Cidr>, NetError> {
        let all = self.all_addresses()?;
        Ok(all
            .into_iter()
            .filter(|(index, _)| *index == link.index)
            .map(|(_, one)| one)
            .collect())
    }

    /// Global addresses with the index of their link.
    pub(crate) fn all_addresses(&mut self) -> Result<Vec<(u32, Cidr)>, NetError> {
        let message = Message::new(GET_ADDRESS, DUMP).with(&[0; 8]);
        let replies = self
            .route
            .request(&message)
            .map_err(|error| error.during("list addresses"))?;
        let addresses = replies.iter().filter(|reply| reply.kind == NEW_ADDRESS);
        Ok(addresses
            .filter_map(|reply| parse(&reply.payload))
            .collect())
    }

    /// Adds the address to the link, unless it is there with the same prefix.
    pub fn ensure_address(&mut self, link: &Link, address: Cidr) -> Result<(), NetError> {
        let mut message =
            Message::new(NEW_ADDRESS, ACK | CREATE | EXCLUSIVE).with(&head(&address, link.index));
        message.attribute(IFA_LOCAL, &octets(address.address));
        message.attribute(IFA_ADDRESS, &octets(address.address));
        if let (IpAddr::V4(_), Some(broadcast)) = (address.address, broadcast(&address)) {
            message.attribute(IFA_BROADCAST, &octets(broadcast));
        }
        match self.route.request(&message) {
            Ok(_) => Ok(()),
            Err(error) if error.is(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.during(format!("add address {address} to {}", link.name))),
        }
    }

    /// Removes the address; a missing one is not an error.
    pub fn remove_address(&mut self, link: &Link, address: Cidr) -> Result<(), NetError> {
        let mut message = Message::new(DEL_ADDRESS, ACK).with(&head(&address, link.index));
        message.attribute(IFA_LOCAL, &octets(address.address));
        match self.route.request(&message) {
            Ok(_) => Ok(()),
            Err(error) if error.is(Errno::ADDRNOTAVAIL) || error.is(Errno::NODEV) => Ok(()),
            // A kernel that was booted without IPv6 has none of its addresses.
            Err(error) if address.address.is_ipv6() && error.is(Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.during(format!("remove address {address} from {}", link.name))),
        }
    }
}

/// The last address of a network large enough to have one.
fn broadcast(address: &Cidr) -> Option<IpAddr> {
    let hosts = 1_u64.checked_shl(address.host_bits().into())?;
    (address.host_bits() >= 2).then_some(())?;
    address.nth(u32::try_from(hosts - 1).ok()?)
}

fn parse(payload: &[u8]) -> Option<(u32, Cidr)> {
    let prefix_length = *payload.get(1)?;
    if *payload.get(3)? != SCOPE_GLOBAL {
        return None;
    }
    let find = |wanted| {
        let mut found = attributes(payload.get(8..).unwrap_or_default());
        found
            .find(|(kind, _)| *kind == wanted)
            .and_then(|(_, value)| from_octets(value))
    };
    // The two differ on point-to-point links, where the local one is the link's.
    let address = find(IFA_LOCAL).or_else(|| find(IFA_ADDRESS))?;
    Some((
        u32_at(payload, 4),
        Cidr {
            address,
            prefix_length,
        },
    ))
}
