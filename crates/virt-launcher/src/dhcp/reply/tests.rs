use launcher_channel::{DhcpBoot, PrivateOption, Route};

use super::*;

const CLIENT: [u8; 6] = [0x12, 0x81, 0xb8, 0x38, 0x4f, 0x52];

fn server() -> DhcpServer {
    DhcpServer {
        interface: "k6t-eth0".to_owned(),
        client_mac: "12:81:b8:38:4f:52".to_owned(),
        server: Ipv4Addr::new(10, 0, 2, 1),
        address: Ipv4Addr::new(10, 0, 2, 2),
        prefix_length: 24,
        router: Some(Ipv4Addr::new(10, 0, 2, 1)),
        dns: vec![Ipv4Addr::new(10, 96, 0, 10), Ipv4Addr::new(8, 8, 8, 8)],
        search: vec!["svc.local".to_owned(), "default.svc.local".to_owned()],
        routes: Vec::new(),
        mtu: 1450,
        host_name: "b1".to_owned(),
        boot: DhcpBoot::default(),
        ntp: Vec::new(),
        private: Vec::new(),
    }
}

fn request(kind: u8, current: Ipv4Addr, options: &[&[u8]]) -> Vec<u8> {
    let mut packet = vec![0; FIXED];
    packet[..4].copy_from_slice(&[BOOT_REQUEST, ETHERNET, 6, 0]);
    packet[4..8].copy_from_slice(&[1, 2, 3, 4]);
    packet[10] = 0x80;
    packet[12..16].copy_from_slice(&current.octets());
    packet[28..34].copy_from_slice(&CLIENT);
    packet[236..240].copy_from_slice(&COOKIE);
    packet.extend([MESSAGE_TYPE, 1, kind]);
    packet.extend(options.concat());
    packet.push(255);
    packet
}

const NONE: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
const OURS: &[u8] = &[SERVER, 4, 10, 0, 2, 1];
const THEIRS: &[u8] = &[SERVER, 4, 10, 0, 2, 9];
const RIGHT: &[u8] = &[REQUESTED_ADDRESS, 4, 10, 0, 2, 2];
const WRONG: &[u8] = &[REQUESTED_ADDRESS, 4, 10, 0, 2, 3];

fn option(reply: &Reply, code: u8) -> Option<Vec<u8>> {
    find(&reply.bytes[FIXED..], code).map(<[u8]>::to_vec)
}

/// A request, and the kind, address and destination of its reply.
type Case = (&'static str, Vec<u8>, Option<(u8, Ipv4Addr, Ipv4Addr)>);

#[test]
fn each_request_gets_its_kind_of_reply() {
    let guest = Ipv4Addr::new(10, 0, 2, 2);
    let other = Ipv4Addr::new(192, 168, 0, 9);
    let all = Ipv4Addr::BROADCAST;
    let cases: [Case; 12] = [
        (
            "discover",
            request(DISCOVER, NONE, &[]),
            Some((OFFER, guest, all)),
        ),
        (
            "select",
            request(REQUEST, NONE, &[OURS, RIGHT]),
            Some((ACKNOWLEDGE, guest, all)),
        ),
        (
            "select another server",
            request(REQUEST, NONE, &[THEIRS, RIGHT]),
            None,
        ),
        (
            "reboot",
            request(REQUEST, NONE, &[RIGHT]),
            Some((ACKNOWLEDGE, guest, all)),
        ),
        (
            "reboot elsewhere",
            request(REQUEST, NONE, &[WRONG]),
            Some((NAK, NONE, all)),
        ),
        (
            "renew",
            request(REQUEST, guest, &[]),
            Some((ACKNOWLEDGE, guest, guest)),
        ),
        (
            "renew another",
            request(REQUEST, other, &[]),
            Some((NAK, NONE, all)),
        ),
        (
            "request without an address",
            request(REQUEST, NONE, &[]),
            None,
        ),
        (
            "inform",
            request(INFORM, other, &[]),
            Some((ACKNOWLEDGE, NONE, all)),
        ),
        ("decline", request(4, NONE, &[RIGHT]), None),
        ("release", request(7, guest, &[]), None),
        ("an offer", request(OFFER, NONE, &[]), None),
    ];
    for (name, packet, expected) in cases {
        let reply = reply_to(&packet, &server(), CLIENT);
        let found = reply.map(|reply| {
            let yours = Ipv4Addr::from(*reply.bytes[16..20].first_chunk().unwrap());
            assert!(reply.bytes.len() >= MIN_LENGTH, "{name}");
            assert_eq!(
                reply.bytes[..8],
                [BOOT_REPLY, ETHERNET, 6, 0, 1, 2, 3, 4],
                "{name}"
            );
            assert_eq!(reply.bytes[28..34], CLIENT, "{name}");
            assert_eq!(option(&reply, SERVER), Some(vec![10, 0, 2, 1]), "{name}");
            (option(&reply, MESSAGE_TYPE).unwrap()[0], yours, reply.to)
        });
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn lease_has_all_settings() {
    let reply = reply_to(&request(DISCOVER, NONE, &[]), &server(), CLIENT).unwrap();
    let expected: [(u8, &[u8]); 8] = [
        (LEASE_TIME, &86_313_600_u32.to_be_bytes()),
        (1, &[255, 255, 255, 0]),
        (3, &[10, 0, 2, 1]),
        (6, &[10, 96, 0, 10, 8, 8, 8, 8]),
        (12, b"b1"),
        (15, b"default.svc.local"),
        (26, &1450_u16.to_be_bytes()),
        (119, b"\x03svc\x05local\0\x07default\x03svc\x05local\0"),
    ];
    for (code, value) in expected {
        assert_eq!(
            option(&reply, code).as_deref(),
            Some(value),
            "option {code}"
        );
    }
    assert_eq!(option(&reply, 121), None);
}

#[test]
fn routes_include_the_default_route() {
    let mut server = server();
    server.routes = vec![Route {
        destination: Ipv4Addr::new(10, 128, 7, 7),
        prefix_length: 9,
        via: Ipv4Addr::new(10, 0, 2, 5),
    }];
    let first = reply_to(&request(DISCOVER, NONE, &[]), &server, CLIENT).unwrap();
    assert_eq!(
        option(&first, 121).unwrap(),
        [9, 10, 128, 10, 0, 2, 5, 0, 10, 0, 2, 1]
    );
    server.router = None;
    let second = reply_to(&request(DISCOVER, NONE, &[]), &server, CLIENT).unwrap();
    assert_eq!(option(&second, 121).unwrap(), [9, 10, 128, 10, 0, 2, 5]);
    assert_eq!(option(&second, 3), None);
}

#[test]
fn reply_is_as_long_as_the_client_accepts() {
    let mut server = server();
    server.search = (0..6)
        .map(|n| format!("{n}{}.example", "x".repeat(30)))
        .collect();
    server.dns = vec![Ipv4Addr::new(1, 1, 1, 1); 60];
    let short = reply_to(&request(DISCOVER, NONE, &[]), &server, CLIENT).unwrap();
    assert!(short.bytes.len() <= DEFAULT_LENGTH, "{}", short.bytes.len());
    assert_eq!(option(&short, 119), None);
    let long = request(DISCOVER, NONE, &[&[MAX_MESSAGE_SIZE, 2, 5, 220]]);
    let long = reply_to(&long, &server, CLIENT).unwrap();
    assert!(option(&long, 119).is_some());
}

#[test]
fn malformed_and_foreign_packets_are_dropped() {
    let good = request(DISCOVER, NONE, &[]);
    let modified = |at: usize, to: u8| {
        let mut packet = good.clone();
        packet[at] = to;
        packet
    };
    let cases = [
        ("empty", Vec::new()),
        ("cut in the header", good[..200].to_vec()),
        ("cut before the options", good[..FIXED].to_vec()),
        ("cut in an option", good[..FIXED + 2].to_vec()),
        ("a reply", modified(0, 2)),
        ("not Ethernet", modified(1, 6)),
        ("a long address", modified(2, 16)),
        ("relayed", modified(24, 10)),
        ("another client", modified(33, 0)),
        ("no cookie", modified(236, 0)),
        ("no kind", modified(FIXED, 54)),
    ];
    for (name, packet) in cases {
        assert_eq!(reply_to(&packet, &server(), CLIENT), None, "{name}");
    }
    // No packet causes a panic.
    for end in 0..good.len() {
        for byte in [0, 1, 255] {
            let mut packet = good.clone();
            packet[end] = byte;
            reply_to(&packet[..end], &server(), CLIENT);
            reply_to(&packet, &server(), CLIENT);
        }
    }
}

#[test]
fn options_of_the_user_are_in_the_reply() {
    let server = DhcpServer {
        boot: DhcpBoot {
            server: Some("tftp.example".to_owned()),
            file: Some("pxelinux.0".to_owned()),
        },
        ntp: vec![Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)],
        private: vec![PrivateOption {
            code: 240,
            value: "blue".to_owned(),
        }],
        ..server()
    };
    let reply = reply_to(&request(DISCOVER, NONE, &[]), &server, CLIENT).unwrap();
    for (code, expected) in [
        (66, b"tftp.example".as_slice()),
        (67, b"pxelinux.0"),
        (42, &[10, 0, 0, 1, 10, 0, 0, 2]),
        (240, b"blue"),
    ] {
        assert_eq!(option(&reply, code).as_deref(), Some(expected), "{code}");
    }
}
