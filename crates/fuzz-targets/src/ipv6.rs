//! Frames of a guest to the server for IPv6: an answer goes to the guest, fits into the smallest MTU, and is whole.

use launcher_channel::{Ipv6Router, Ipv6Server};

// The parser is private to the launcher, so its files are included. (rustfmt would look for their test
// modules and fail.)
#[path = "../../virt-launcher/src/ipv6/advertisement.rs"]
mod advertisement;
#[path = "../../virt-launcher/src/ipv6/answer.rs"]
mod answer;
#[rustfmt::skip]
#[path = "../../virt-launcher/src/ipv6/dhcp.rs"]
mod dhcp;
#[path = "../../virt-launcher/src/ipv6/frame.rs"]
mod frame;
#[path = "../../virt-launcher/src/ipv6/options.rs"]
mod options;
#[path = "../../virt-launcher/src/ipv6/settings.rs"]
mod settings;

const HEADERS: usize = 14 + 40;

/// A frame, or with a first byte of zero a message of `DHCPv6`: random bytes have no right checksum.
pub fn run(bytes: &[u8]) {
    let settings = settings::Settings::of(&server()).expect("addresses");
    if let Some(message) = bytes.strip_prefix(&[0]) {
        if let Some(reply) = dhcp::reply_to(message, &settings) {
            assert!(reply.len() <= 1280 - 48, "{}", reply.len());
            assert!([2, 7].contains(&reply[0]));
            assert_eq!(reply[1..4], message[1..4]);
        }
        return;
    }
    let Some(frame) = answer::answer(bytes, &settings) else {
        return;
    };
    assert!(frame.len() <= 14 + 1280, "{}", frame.len());
    assert_eq!(frame[..6], settings.client);
    let length = usize::from(u16::from_be_bytes([frame[18], frame[19]]));
    assert_eq!(frame.len(), HEADERS + length);
}

fn server() -> Ipv6Server {
    Ipv6Server {
        tap: "ra-eth0".to_owned(),
        client_mac: "02:00:00:01:02:03".to_owned(),
        mac: "82:00:00:01:02:03".to_owned(),
        router: Some(Ipv6Router {
            address: "fe80::1".parse().expect("an address"),
            mac: None,
        }),
        address: "fd10:0:2::2".parse().expect("an address"),
        prefix_length: 120,
        dns: vec!["fd00::a".parse().expect("an address"); 70],
        search: vec!["default.svc.cluster.local".to_owned(); 40],
        mtu: 1400,
    }
}
