//! Router advertisements: tell the guest to ask for its address by `DHCPv6`, and which router it has.

use std::time::Duration;

use super::settings::Settings;

/// How often one is sent without being asked for. A guest that has migrated asks nobody.
pub(super) const EVERY: Duration = Duration::from_mins(5);

const ROUTER_ADVERTISEMENT: u8 = 134;
const HOP_LIMIT: u8 = 64;
/// Addresses, and all other settings, come by `DHCPv6`.
const MANAGED: u8 = 0x80;
const OTHER: u8 = 0x40;
/// The longest that hosts must accept.
const ROUTER_SECONDS: u16 = 9000;

const SOURCE_LINK_ADDRESS: u8 = 1;
const PREFIX: u8 = 3;
const MTU: u8 = 5;
/// The addresses of the prefix are on the link. Guests make no addresses from it.
const ON_LINK: u8 = 0x80;
const FOREVER: u32 = u32::MAX;

/// The message, with a checksum of zero.
pub(super) fn message(settings: &Settings) -> Vec<u8> {
    let seconds = settings.router.map_or(0, |_| ROUTER_SECONDS);
    let mut bytes = vec![ROUTER_ADVERTISEMENT, 0, 0, 0, HOP_LIMIT, MANAGED | OTHER];
    bytes.extend(seconds.to_be_bytes());
    // The guest's own times for neighbours.
    bytes.extend([0; 8]);
    let mac = match settings.router {
        Some(router) => router.mac,
        None => Some(settings.mac),
    };
    if let Some(mac) = mac {
        bytes.extend([SOURCE_LINK_ADDRESS, 1]);
        bytes.extend(mac);
    }
    bytes.extend([MTU, 1, 0, 0]);
    bytes.extend(u32::from(settings.mtu).to_be_bytes());
    if settings.prefix_length < 128 {
        bytes.extend([PREFIX, 4, settings.prefix_length, ON_LINK]);
        bytes.extend([FOREVER, FOREVER, 0].map(u32::to_be_bytes).as_flattened());
        bytes.extend(network(settings).to_be_bytes());
    }
    bytes
}

fn network(settings: &Settings) -> u128 {
    let host_bits = 128_u32.saturating_sub(settings.prefix_length.into());
    let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
    settings.address.to_bits() & mask
}

#[cfg(test)]
mod tests {
    use super::super::answer::tests::settings;
    use super::super::settings::Router;
    use super::*;

    #[test]
    fn guest_is_told_its_router_prefix_and_mtu() {
        let expected = [
            &[134, 0, 0, 0, 64, 0xc0, 0x23, 0x28, 0, 0, 0, 0, 0, 0, 0, 0][..],
            &[1, 1, 2, 0, 0, 0, 0, 0],
            &[5, 1, 0, 0, 0, 0, 5, 0xaa],
            &[3, 4, 120, 0x80],
            &[255; 8],
            &[0; 4],
            &[0xfd, 0x10, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(message(&settings()), expected.concat());
    }

    #[test]
    fn guest_without_a_router_has_no_default_route() {
        let mut settings = settings();
        settings.router = None;
        settings.prefix_length = 128;
        let message = message(&settings);
        assert_eq!(message[5..8], [0xc0, 0, 0]);
        assert_eq!(message[16..24], [1, 1, 0x92, 0, 0, 0, 0, 1]);
        assert_eq!(message.len(), 32, "no prefix is on the link");
    }

    #[test]
    fn router_of_an_unknown_hardware_address_is_asked_for_it() {
        let mut settings = settings();
        let address = "fe80::1".parse().unwrap();
        settings.router = Some(Router { address, mac: None });
        assert_eq!(message(&settings)[16..18], [5, 1]);
    }
}
