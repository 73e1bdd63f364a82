//! Frames of Ethernet with IPv6 packets: reads those of the client that matter, writes those of the server.

use std::net::Ipv6Addr;

use super::settings::Mac;

/// The longest frame that is read.
pub(super) const MAX_FRAME: usize = 1514;

const ETHERNET: usize = 14;
const IPV6: usize = 40;
const UDP_HEADER: usize = 8;
const ETHER_TYPE: [u8; 2] = [0x86, 0xdd];
pub(super) const ICMP: u8 = 58;
pub(super) const UDP: u8 = 17;
/// Messages between neighbours have it, so that no router has passed them on.
const NEVER_ROUTED: u8 = 255;

const ROUTER_SOLICITATION: u8 = 133;
const SERVER_PORT: u16 = 547;
const CLIENT_PORT: u16 = 546;

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const ALL_DHCP_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);

/// What a client sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request<'a> {
    RouterSolicitation,
    Dhcp { client: Ipv6Addr, message: &'a [u8] },
}

/// `None` unless the frame is from this client, whole, with right checksums, and for routers or DHCP servers.
/// Packets with extension headers are dropped, fragments too.
pub(super) fn parse(frame: &[u8], client: Mac) -> Option<Request<'_>> {
    let (head, packet) = frame.split_at_checked(ETHERNET)?;
    if frame.len() > MAX_FRAME || head.get(6..12)? != client || head.get(12..)? != ETHER_TYPE {
        return None;
    }
    let (head, rest) = packet.split_first_chunk::<IPV6>()?;
    let payload = rest.get(..usize::from(u16::from_be_bytes([head[4], head[5]])))?;
    let (protocol, hop_limit) = (head[6], head[7]);
    let [source, destination] = [8, 24].map(|at| address(head, at));
    let (source, destination) = (source?, destination?);
    if head[0] >> 4 != 6 || checksum(source, destination, protocol, payload) != 0 {
        return None;
    }
    match (protocol, destination) {
        (ICMP, ALL_ROUTERS) => {
            let is_solicitation = payload.starts_with(&[ROUTER_SOLICITATION, 0])
                && payload.len() >= 8
                && hop_limit == NEVER_ROUTED
                && (source.is_unspecified() || source.is_unicast_link_local());
            is_solicitation.then_some(Request::RouterSolicitation)
        }
        (UDP, ALL_DHCP_SERVERS) if source.is_unicast_link_local() => {
            let (head, _) = payload.split_first_chunk::<UDP_HEADER>()?;
            let to_server = [head[2], head[3]] == SERVER_PORT.to_be_bytes();
            let has_checksum = [head[6], head[7]] != [0; 2];
            let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
            let is_whole = length == payload.len();
            (to_server && has_checksum && is_whole).then_some(Request::Dhcp {
                client: source,
                message: payload.get(UDP_HEADER..)?,
            })
        }
        _ => None,
    }
}

fn address(head: &[u8; IPV6], at: usize) -> Option<Ipv6Addr> {
    let octets = head.get(at..)?.first_chunk::<16>()?;
    Some(Ipv6Addr::from(*octets))
}

/// The ends of a frame from the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) server: Mac,
    pub(super) client: Mac,
    /// Of the server.
    pub(super) source: Ipv6Addr,
}

/// The frame of a message of ICMP, whose checksum is zero, for all nodes. It goes to the client alone, though:
/// in a bridge to the pod's network, others must not receive it.
pub(super) fn advertisement(ends: Ends, message: Vec<u8>) -> Vec<u8> {
    frame(ends, ALL_NODES, ICMP, message)
}

/// The frame of a message of `DHCPv6` to the client.
pub(super) fn dhcp(ends: Ends, client: Ipv6Addr, message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(UDP_HEADER + message.len()).unwrap_or(u16::MAX);
    let head = [SERVER_PORT, CLIENT_PORT, length, 0].map(u16::to_be_bytes);
    frame(ends, client, UDP, [head.as_flattened(), message].concat())
}

fn frame(ends: Ends, to: Ipv6Addr, protocol: u8, mut payload: Vec<u8>) -> Vec<u8> {
    let sum = checksum(ends.source, to, protocol, &payload);
    // Zero would be "no checksum" in UDP, and is the same number.
    let sum = if sum == 0 { u16::MAX } else { sum };
    let at = if protocol == UDP { 6 } else { 2 };
    if let Some(field) = payload.get_mut(at..at + 2) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    let [high, low] = length.to_be_bytes();
    [
        &ends.client[..],
        &ends.server,
        &ETHER_TYPE,
        &[6 << 4, 0, 0, 0, high, low, protocol, NEVER_ROUTED],
        &ends.source.octets(),
        &to.octets(),
        &payload,
    ]
    .concat()
}

/// The Internet checksum of the payload and its pseudo-header; zero if the payload has the right one.
fn checksum(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, payload: &[u8]) -> u16 {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut sum = u64::from(length) + u64::from(protocol);
    let (source, destination) = (source.octets(), destination.octets());
    for bytes in [&source[..], &destination, payload] {
        for pair in bytes.chunks(2) {
            let high = pair.first().copied().unwrap_or(0);
            let low = pair.get(1).copied().unwrap_or(0);
            sum += u64::from(u16::from_be_bytes([high, low]));
        }
    }
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) const CLIENT: Mac = [0x12, 0x81, 0xb8, 0x38, 0x4f, 0x52];
    pub(crate) const LINK: Ipv6Addr =
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0x1081, 0xb8ff, 0xfe38, 0x4f52);

    /// A frame of the client, with the right checksum.
    fn sent(from: Ipv6Addr, to: Ipv6Addr, protocol: u8, payload: Vec<u8>) -> Vec<u8> {
        let ends = Ends {
            server: CLIENT,
            client: [0x33, 0x33, 0, 0, 0, 2],
            source: from,
        };
        frame(ends, to, protocol, payload)
    }

    pub(crate) fn solicitation() -> Vec<u8> {
        let message = vec![
            ROUTER_SOLICITATION,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            1,
            1,
            2,
            0,
            0,
            0,
            0,
            9,
        ];
        sent(LINK, ALL_ROUTERS, ICMP, message)
    }

    pub(crate) fn request(message: &[u8]) -> Vec<u8> {
        let length = u16::try_from(message.len() + 8).unwrap();
        let head = [CLIENT_PORT, SERVER_PORT, length, 0].map(u16::to_be_bytes);
        let payload = [head.as_flattened(), message].concat();
        sent(LINK, ALL_DHCP_SERVERS, UDP, payload)
    }

    #[test]
    fn solicitations_and_dhcp_messages_of_the_client_are_read() {
        let found = parse(&solicitation(), CLIENT).is_some();
        assert!(found);
        let detecting = vec![ROUTER_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
        let detecting = sent(Ipv6Addr::UNSPECIFIED, ALL_ROUTERS, ICMP, detecting);
        assert_eq!(parse(&detecting, CLIENT), Some(Request::RouterSolicitation));
        let frame = request(b"odd");
        let expected = Request::Dhcp {
            client: LINK,
            message: b"odd",
        };
        assert_eq!(parse(&frame, CLIENT), Some(expected));
        // Ethernet pads short frames.
        let padded = [&frame[..], &[0; 9]].concat();
        assert_eq!(parse(&padded, CLIENT), Some(expected));
    }

    #[test]
    fn malformed_and_foreign_frames_are_dropped() {
        let good = request(b"message");
        let changed = |at: usize, to: u8| {
            let mut frame = good.clone();
            frame[at] = to;
            frame
        };
        let other: Ipv6Addr = "2001:db8::1".parse().unwrap();
        let udp = |port: u16, length: u16| {
            let head = [CLIENT_PORT, port, length, 0].map(u16::to_be_bytes);
            head.as_flattened().to_vec()
        };
        let icmp = |kind: u8| vec![kind, 0, 0, 0, 0, 0, 0, 0];
        let mut far = solicitation();
        far[21] = 64;
        let mut long = good.clone();
        long.resize(MAX_FRAME + 1, 0);
        let cases = [
            ("empty", Vec::new()),
            ("cut in the payload", good[..good.len() - 1].to_vec()),
            ("longer than a frame", long),
            ("another client", changed(11, 0)),
            ("another protocol", changed(13, 0)),
            ("another version", changed(14, 0x40)),
            ("a wrong checksum", changed(good.len() - 1, 0)),
            ("a routed solicitation", far),
            ("an advertisement", sent(LINK, ALL_ROUTERS, ICMP, icmp(134))),
            (
                "a short one",
                sent(LINK, ALL_ROUTERS, ICMP, icmp(133)[..6].to_vec()),
            ),
            ("from afar", sent(other, ALL_ROUTERS, ICMP, icmp(133))),
            ("to all nodes", sent(LINK, ALL_NODES, ICMP, icmp(133))),
            (
                "DHCP from afar",
                sent(other, ALL_DHCP_SERVERS, UDP, udp(547, 8)),
            ),
            (
                "another port",
                sent(LINK, ALL_DHCP_SERVERS, UDP, udp(53, 8)),
            ),
            (
                "a wrong length",
                sent(LINK, ALL_DHCP_SERVERS, UDP, udp(547, 9)),
            ),
            ("a fragment", sent(LINK, ALL_DHCP_SERVERS, 44, udp(547, 8))),
        ];
        for (name, frame) in cases {
            assert_eq!(parse(&frame, CLIENT), None, "{name}");
        }
        for end in 0..good.len() {
            assert_eq!(parse(&good[..end], CLIENT), None);
        }
    }

    #[test]
    fn checksum_is_that_of_the_internet() {
        // An echo request between two addresses, as `ping` sends it.
        let [from, to] = ["fe80::1", "fe80::2"].map(|text| text.parse().unwrap());
        let message = [128, 0, 0, 0, 0, 1, 0, 1];
        assert_eq!(checksum(from, to, ICMP, &message), 0x82b6);
        let frame = sent(from, to, ICMP, message.to_vec());
        assert_eq!(checksum(from, to, ICMP, &frame[54..]), 0);
    }
}
