//! The settings of a server, parsed.

use std::net::Ipv6Addr;

use launcher_channel::Ipv6Server;

/// The smallest MTU of IPv6.
const MIN_MTU: u16 = 1280;

pub(super) type Mac = [u8; 6];

/// The settings of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    /// The guest's hardware address.
    pub(super) client: Mac,
    /// The server's own.
    pub(super) mac: Mac,
    pub(super) router: Option<Router>,
    pub(super) address: Ipv6Addr,
    pub(super) prefix_length: u8,
    pub(super) dns: Vec<Ipv6Addr>,
    pub(super) search: Vec<String>,
    pub(super) mtu: u16,
}

/// The guest's default router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Router {
    pub(super) address: Ipv6Addr,
    pub(super) mac: Option<Mac>,
}

/// The setting is not a hardware address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a MAC address")]
pub(crate) struct BadMac(String);

impl Settings {
    pub(super) fn of(server: &Ipv6Server) -> Result<Self, BadMac> {
        let router = server.router.as_ref().map(|router| {
            let mac = router.mac.as_deref().map(mac_of).transpose()?;
            Ok(Router {
                address: router.address,
                mac,
            })
        });
        Ok(Self {
            client: mac_of(&server.client_mac)?,
            mac: mac_of(&server.mac)?,
            router: router.transpose()?,
            address: server.address,
            prefix_length: server.prefix_length.min(128),
            dns: server.dns.clone(),
            search: server.search.clone(),
            mtu: server.mtu.max(MIN_MTU),
        })
    }

    /// The link-local address from which the server sends: that of the router, since the guest takes the sender
    /// of an advertisement for it.
    pub(super) fn source(&self) -> Ipv6Addr {
        let own = || link_local(self.mac);
        self.router.map_or_else(own, |router| router.address)
    }
}

/// The link-local address that follows from a hardware address.
fn link_local(mac: Mac) -> Ipv6Addr {
    let mut octets = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 0];
    octets[8..11].copy_from_slice(&mac[..3]);
    octets[13..].copy_from_slice(&mac[3..]);
    octets[8] ^= 2;
    Ipv6Addr::from(octets)
}

fn mac_of(text: &str) -> Result<Mac, BadMac> {
    let bad = || BadMac(text.chars().take(32).collect());
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        let part = parts.next().filter(|part| part.len() == 2);
        *byte = u8::from_str_radix(part.ok_or_else(bad)?, 16).map_err(|_| bad())?;
    }
    if parts.next().is_some() {
        return Err(bad());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_address_follows_from_the_hardware_address() {
        let found = link_local([0x12, 0x81, 0xb8, 0x38, 0x4f, 0x52]);
        assert_eq!(found.to_string(), "fe80::1081:b8ff:fe38:4f52");
    }

    #[test]
    fn hardware_addresses_are_parsed_strictly() {
        assert_eq!(mac_of("02:00:00:00:00:0b"), Ok([2, 0, 0, 0, 0, 11]));
        for bad in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:0b:0c",
            "zz:00:00:00:00:0b",
        ] {
            assert!(mac_of(bad).is_err(), "{bad}");
        }
    }
}
