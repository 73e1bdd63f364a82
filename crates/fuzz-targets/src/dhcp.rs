//! DHCP requests of a guest: a reply fits into a frame, goes to the guest or to the broadcast address,
//! and can be parsed by the same rules.

use std::net::Ipv4Addr;

use launcher_channel::{DhcpBoot, DhcpServer, PrivateOption, Route};

// The parser is private to the launcher, so its files are included. (rustfmt would look for their test
// modules and fail.)
#[rustfmt::skip]
#[path = "../../virt-launcher/src/dhcp/reply.rs"]
mod reply;
#[path = "../../virt-launcher/src/dhcp/options.rs"]
mod options;

const CLIENT: [u8; 6] = [2, 0, 0, 1, 2, 3];
const FRAME: usize = 1500 - 28;

pub fn run(bytes: &[u8]) {
    let server = server();
    let Some(reply) = reply::reply_to(bytes, &server, CLIENT) else {
        return;
    };
    assert!(
        (300..=FRAME).contains(&reply.bytes.len()),
        "{}",
        reply.bytes.len()
    );
    assert!([server.address, Ipv4Addr::BROADCAST].contains(&reply.to));
    assert_eq!(reply.bytes[28..34], CLIENT);
    let kind = options::find(&reply.bytes[240..], 53).expect("a type of message");
    assert_eq!(kind.len(), 1);
}

fn server() -> DhcpServer {
    let address = |last| Ipv4Addr::new(10, 0, 2, last);
    DhcpServer {
        interface: "k6t-eth0".to_owned(),
        client_mac: "02:00:00:01:02:03".to_owned(),
        server: address(1),
        address: address(2),
        prefix_length: 24,
        router: Some(address(1)),
        dns: vec![address(3); 70],
        search: vec!["default.svc.cluster.local".to_owned(); 20],
        routes: vec![Route {
            destination: Ipv4Addr::new(10, 1, 0, 0),
            prefix_length: 16,
            via: address(1),
        }],
        mtu: 1400,
        host_name: "guest".to_owned(),
        boot: DhcpBoot {
            server: Some("10.0.2.1".to_owned()),
            file: Some("boot".repeat(70)),
        },
        ntp: vec![address(1); 70],
        private: vec![PrivateOption {
            code: 224,
            value: "x".repeat(300),
        }],
    }
}
