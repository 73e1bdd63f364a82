use launcher_channel::Route;

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
    }
}

fn question(kind: u8, current: Ipv4Addr, options: &[&[u8]]) -> Vec<u8> {
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

fn option(answer: &Answer, code: u8) -> Option<Vec<u8>> {
    find(&answer.bytes[FIXED..], code).map(<[u8]>::to_vec)
}

/// A question, and the kind, address and destination of its answer.
type Case = (&'static str, Vec<u8>, Option<(u8, Ipv4Addr, Ipv4Addr)>);

#[test]
fn each_question_gets_its_kind_of_answer() {
    let guest = Ipv4Addr::new(10, 0, 2, 2);
    let other = Ipv4Addr::new(192, 168, 0, 9);
    let all = Ipv4Addr::BROADCAST;
    let cases: [Case; 12] = [
        (
            "discover",
            question(DISCOVER, NONE, &[]),
            Some((OFFER, guest, all)),
        ),
        (
            "select",
            question(REQUEST, NONE, &[OURS, RIGHT]),
            Some((ACKNOWLEDGE, guest, all)),
        ),
        (
            "select another server",
            question(REQUEST, NONE, &[THEIRS, RIGHT]),
            None,
        ),
        (
            "reboot",
            question(REQUEST, NONE, &[RIGHT]),
            Some((ACKNOWLEDGE, guest, all)),
        ),
        (
            "reboot elsewhere",
            question(REQUEST, NONE, &[WRONG]),
            Some((REFUSE, NONE, all)),
        ),
        (
            "renew",
            question(REQUEST, guest, &[]),
            Some((ACKNOWLEDGE, guest, guest)),
        ),
        (
            "renew another",
            question(REQUEST, other, &[]),
            Some((REFUSE, NONE, all)),
        ),
        ("ask for nothing", question(REQUEST, NONE, &[]), None),
        (
            "inform",
            question(INFORM, other, &[]),
            Some((ACKNOWLEDGE, NONE, all)),
        ),
        ("decline", question(4, NONE, &[RIGHT]), None),
        ("release", question(7, guest, &[]), None),
        ("an offer", question(OFFER, NONE, &[]), None),
    ];
    for (name, packet, expected) in cases {
        let answer = answer(&packet, &server(), CLIENT);
        let seen = answer.map(|answer| {
            let yours = Ipv4Addr::from(*answer.bytes[16..20].first_chunk().unwrap());
            assert!(answer.bytes.len() >= SHORTEST, "{name}");
            assert_eq!(
                answer.bytes[..8],
                [BOOT_REPLY, ETHERNET, 6, 0, 1, 2, 3, 4],
                "{name}"
            );
            assert_eq!(answer.bytes[28..34], CLIENT, "{name}");
            assert_eq!(option(&answer, SERVER), Some(vec![10, 0, 2, 1]), "{name}");
            (option(&answer, MESSAGE_TYPE).unwrap()[0], yours, answer.to)
        });
        assert_eq!(seen, expected, "{name}");
    }
}

#[test]
fn a_lease_tells_all_the_guest_needs() {
    let answer = answer(&question(DISCOVER, NONE, &[]), &server(), CLIENT).unwrap();
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
            option(&answer, code).as_deref(),
            Some(value),
            "option {code}"
        );
    }
    assert_eq!(option(&answer, 121), None);
}

#[test]
fn routes_bring_the_default_route_along() {
    let mut server = server();
    server.routes = vec![Route {
        destination: Ipv4Addr::new(10, 128, 7, 7),
        prefix_length: 9,
        via: Ipv4Addr::new(10, 0, 2, 5),
    }];
    let first = answer(&question(DISCOVER, NONE, &[]), &server, CLIENT).unwrap();
    assert_eq!(
        option(&first, 121).unwrap(),
        [9, 10, 128, 10, 0, 2, 5, 0, 10, 0, 2, 1]
    );
    server.router = None;
    let second = answer(&question(DISCOVER, NONE, &[]), &server, CLIENT).unwrap();
    assert_eq!(option(&second, 121).unwrap(), [9, 10, 128, 10, 0, 2, 5]);
    assert_eq!(option(&second, 3), None);
}

#[test]
fn an_answer_is_as_long_as_its_client_allows() {
    let mut server = server();
    server.search = (0..6)
        .map(|n| format!("{n}{}.example", "x".repeat(30)))
        .collect();
    server.dns = vec![Ipv4Addr::new(1, 1, 1, 1); 60];
    let short = answer(&question(DISCOVER, NONE, &[]), &server, CLIENT).unwrap();
    assert!(short.bytes.len() <= COMMON, "{}", short.bytes.len());
    assert_eq!(option(&short, 119), None);
    let long = question(DISCOVER, NONE, &[&[LONGEST_MESSAGE, 2, 5, 220]]);
    let long = answer(&long, &server, CLIENT).unwrap();
    assert!(option(&long, 119).is_some());
}

#[test]
fn what_is_malformed_or_not_from_the_guest_is_dropped() {
    let good = question(DISCOVER, NONE, &[]);
    let bent = |at: usize, to: u8| {
        let mut packet = good.clone();
        packet[at] = to;
        packet
    };
    let cases = [
        ("empty", Vec::new()),
        ("cut in the header", good[..200].to_vec()),
        ("cut before the options", good[..FIXED].to_vec()),
        ("cut in an option", good[..FIXED + 2].to_vec()),
        ("a reply", bent(0, 2)),
        ("not Ethernet", bent(1, 6)),
        ("a long address", bent(2, 16)),
        ("relayed", bent(24, 10)),
        ("another client", bent(33, 0)),
        ("no cookie", bent(236, 0)),
        ("no kind", bent(FIXED, 54)),
    ];
    for (name, packet) in cases {
        assert_eq!(answer(&packet, &server(), CLIENT), None, "{name}");
    }
    // No length or byte of a packet is a reason to panic.
    for end in 0..good.len() {
        for byte in [0, 1, 255] {
            let mut packet = good.clone();
            packet[end] = byte;
            answer(&packet[..end], &server(), CLIENT);
            answer(&packet, &server(), CLIENT);
        }
    }
}
