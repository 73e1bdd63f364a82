//! Reads and writes DHCP options.

use std::net::Ipv4Addr;

use launcher_channel::DhcpServer;

use crate::domain_list::domain_list;

/// The longest value of an option.
const MAX_VALUE: usize = 255;

const PAD: u8 = 0;
const END: u8 = 255;

const SUBNET_MASK: u8 = 1;
const ROUTER: u8 = 3;
const NAME_SERVERS: u8 = 6;
const HOST_NAME: u8 = 12;
const DOMAIN_NAME: u8 = 15;
const MTU: u8 = 26;
const NTP_SERVERS: u8 = 42;
const TFTP_SERVER: u8 = 66;
const BOOT_FILE: u8 = 67;
const DOMAIN_SEARCH: u8 = 119;
const CLASSLESS_ROUTES: u8 = 121;

/// The value of an option; a malformed option ends the list.
pub(super) fn find(mut options: &[u8], wanted: u8) -> Option<&[u8]> {
    loop {
        let (code, rest) = options.split_first()?;
        match *code {
            PAD => options = rest,
            END => return None,
            code => {
                let (length, rest) = rest.split_first()?;
                let (value, rest) = rest.split_at_checked(usize::from(*length))?;
                if code == wanted {
                    return Some(value);
                }
                options = rest;
            }
        }
    }
}

/// Options of a reply. An option that does not fit is omitted, so the important ones come first.
#[derive(Debug)]
pub(super) struct Options {
    bytes: Vec<u8>,
    capacity: usize,
}

impl Options {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            bytes: Vec::new(),
            capacity,
        }
    }

    pub(super) fn push(&mut self, code: u8, value: &[u8]) {
        let Ok(length) = u8::try_from(value.len()) else {
            return;
        };
        // The last byte ends the list.
        if length == 0 || self.bytes.len() + 2 + value.len() + 1 > self.capacity {
            return;
        }
        self.bytes.extend_from_slice(&[code, length]);
        self.bytes.extend_from_slice(value);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(END);
        self.bytes
    }

    /// Adds the network settings.
    pub(super) fn push_settings(&mut self, server: &DhcpServer) {
        self.push(SUBNET_MASK, &mask(server.prefix_length).octets());
        if let Some(router) = server.router {
            self.push(ROUTER, &router.octets());
        }
        self.push(CLASSLESS_ROUTES, &classless_routes(server));
        let servers = server.dns.iter().take(63).flat_map(Ipv4Addr::octets);
        self.push(NAME_SERVERS, &servers.collect::<Vec<_>>());
        self.push(MTU, &server.mtu.to_be_bytes());
        self.push(HOST_NAME, server.host_name.as_bytes());
        let domain = server.search.iter().max_by_key(|domain| domain.len());
        self.push(DOMAIN_NAME, domain.map_or(&[], |domain| domain.as_bytes()));
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        self.push(TFTP_SERVER, text(&server.boot.server).as_bytes());
        self.push(BOOT_FILE, text(&server.boot.file).as_bytes());
        let servers = server.ntp.iter().take(63).flat_map(Ipv4Addr::octets);
        self.push(NTP_SERVERS, &servers.collect::<Vec<_>>());
        for option in &server.private {
            self.push(option.code, option.value.as_bytes());
        }
        self.push(DOMAIN_SEARCH, &domain_list(&server.search, MAX_VALUE));
    }
}

fn mask(prefix_length: u8) -> Ipv4Addr {
    let host_bits = 32_u32.saturating_sub(prefix_length.into());
    Ipv4Addr::from_bits(u32::MAX.checked_shl(host_bits).unwrap_or(0))
}

/// Destination as prefix length and its significant bytes, then the router. A client that supports
/// this option ignores the router option, so the default route is repeated at the end.
fn classless_routes(server: &DhcpServer) -> Vec<u8> {
    let mut bytes = Vec::new();
    for route in &server.routes {
        let prefix_length = route.prefix_length.min(32);
        let network = route.destination.to_bits() & mask(prefix_length).to_bits();
        let significant = usize::from(prefix_length.div_ceil(8));
        bytes.push(prefix_length);
        bytes.extend(network.to_be_bytes().into_iter().take(significant));
        bytes.extend(route.via.octets());
    }
    if let Some(router) = server.router.filter(|_| !bytes.is_empty()) {
        bytes.push(0);
        bytes.extend(router.octets());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_after_padding_and_only_before_the_end() {
        let cases: [(&[u8], Option<&[u8]>); 8] = [
            (&[53, 1, 3, 255], Some(&[3])),
            (&[0, 0, 12, 2, 53, 1, 53, 1, 1], Some(&[1])),
            (&[255, 53, 1, 3], None),
            (&[53, 2, 3], None),
            (&[53], None),
            (&[], None),
            (&[12, 200, 53, 1, 3], None),
            (&[53, 0], Some(&[])),
        ];
        for (options, expected) in cases {
            assert_eq!(find(options, 53), expected, "{options:?}");
        }
    }

    #[test]
    fn option_that_does_not_fit_is_omitted() {
        let mut options = Options::new(8);
        options.push(1, &[1, 2, 3, 4]);
        options.push(2, &[5]);
        options.push(3, &[]);
        assert_eq!(options.finish(), [1, 4, 1, 2, 3, 4, 255]);
    }

    #[test]
    fn masks_and_routes_are_encoded_by_their_significant_bytes() {
        for (prefix_length, expected) in [
            (24, [255, 255, 255, 0]),
            (0, [0; 4]),
            (32, [255; 4]),
            (29, [255, 255, 255, 248]),
        ] {
            assert_eq!(mask(prefix_length).octets(), expected);
        }
        assert_eq!(mask(200).octets(), [255; 4]);
    }
}
