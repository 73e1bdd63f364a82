//! Computes the reply to a request. Pure.

use std::net::Ipv4Addr;

use launcher_channel::DhcpServer;

use super::options::{Options, find};

const BOOT_REQUEST: u8 = 1;
const BOOT_REPLY: u8 = 2;
const ETHERNET: u8 = 1;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Bytes of the header and the magic cookie.
const FIXED: usize = 240;
/// Old clients drop shorter packets.
const MIN_LENGTH: usize = 300;
/// The length that every client accepts: 576 bytes with the IP and UDP headers.
const DEFAULT_LENGTH: usize = 576 - 28;
const MAX_LENGTH: usize = 1500 - 28;

const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACKNOWLEDGE: u8 = 5;
const NAK: u8 = 6;
const INFORM: u8 = 8;

const MESSAGE_TYPE: u8 = 53;
const SERVER: u8 = 54;
const REQUESTED_ADDRESS: u8 = 50;
const LEASE_TIME: u8 = 51;
const MAX_MESSAGE_SIZE: u8 = 57;

/// 999 days: a guest keeps its address as long as it runs.
const LEASE_SECONDS: u32 = 999 * 24 * 60 * 60;

/// A packet and its destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) bytes: Vec<u8>,
    pub(super) to: Ipv4Addr,
}

/// The relevant fields of a request.
struct Request<'a> {
    packet: &'a [u8; FIXED],
    options: &'a [u8],
    kind: u8,
}

impl<'a> Request<'a> {
    /// `None` unless it is a well-formed request of this client and was not relayed.
    fn parse(packet: &'a [u8], client: [u8; 6]) -> Option<Self> {
        let (packet, options) = packet.split_first_chunk::<FIXED>()?;
        let [op, hardware, length, ..] = *packet;
        let direct = packet[24..28] == [0; 4];
        let from_client = packet[28..34] == client;
        let ours = (op, hardware, length) == (BOOT_REQUEST, ETHERNET, 6) && direct && from_client;
        let kind = find(options, MESSAGE_TYPE).and_then(|value| value.first().copied())?;
        (ours && packet[236..240] == COOKIE).then_some(Self {
            packet,
            options,
            kind,
        })
    }

    /// The address that the client uses already.
    fn current(&self) -> Ipv4Addr {
        let [a, b, c, d] = [12, 13, 14, 15].map(|at| self.packet[at]);
        Ipv4Addr::new(a, b, c, d)
    }

    fn address(&self, option: u8) -> Option<Ipv4Addr> {
        find(self.options, option)?
            .first_chunk::<4>()
            .map(|octets| Ipv4Addr::from(*octets))
    }

    /// The longest reply that the client accepts.
    fn max_reply(&self) -> usize {
        let size = find(self.options, MAX_MESSAGE_SIZE).and_then(|value| value.first_chunk::<2>());
        let size = size.map_or(0, |bytes| usize::from(u16::from_be_bytes(*bytes)));
        size.saturating_sub(28).clamp(DEFAULT_LENGTH, MAX_LENGTH)
    }
}

/// The reply to a packet from the client, if it gets one.
pub(super) fn reply_to(packet: &[u8], server: &DhcpServer, client: [u8; 6]) -> Option<Reply> {
    let request = Request::parse(packet, client)?;
    match request.kind {
        DISCOVER => Some(lease(&request, server, OFFER)),
        REQUEST => acknowledge_or_refuse(&request, server),
        INFORM => Some(inform(&request, server)),
        // A decline or release changes nothing, since the server is stateless.
        _ => None,
    }
}

fn acknowledge_or_refuse(request: &Request<'_>, server: &DhcpServer) -> Option<Reply> {
    if request
        .address(SERVER)
        .is_some_and(|chosen| chosen != server.server)
    {
        return None;
    }
    let current = Some(request.current()).filter(|address| !address.is_unspecified());
    let wanted = request.address(REQUESTED_ADDRESS).or(current)?;
    if wanted == server.address {
        return Some(lease(request, server, ACKNOWLEDGE));
    }
    let mut options = Options::new(request.max_reply() - FIXED);
    options.push(MESSAGE_TYPE, &[NAK]);
    options.push(SERVER, &server.server.octets());
    Some(render(
        request,
        Ipv4Addr::UNSPECIFIED,
        options,
        Ipv4Addr::BROADCAST,
    ))
}

fn lease(request: &Request<'_>, server: &DhcpServer, kind: u8) -> Reply {
    let mut options = Options::new(request.max_reply() - FIXED);
    options.push(MESSAGE_TYPE, &[kind]);
    options.push(SERVER, &server.server.octets());
    options.push(LEASE_TIME, &LEASE_SECONDS.to_be_bytes());
    options.push_settings(server);
    // A client that has its address receives unicast packets, others only broadcasts.
    let to = match request.current() {
        address if kind == ACKNOWLEDGE && address == server.address => address,
        _ => Ipv4Addr::BROADCAST,
    };
    render(request, server.address, options, to)
}

/// The settings for a client that got its address by other means.
fn inform(request: &Request<'_>, server: &DhcpServer) -> Reply {
    let mut options = Options::new(request.max_reply() - FIXED);
    options.push(MESSAGE_TYPE, &[ACKNOWLEDGE]);
    options.push(SERVER, &server.server.octets());
    options.push_settings(server);
    render(request, Ipv4Addr::UNSPECIFIED, options, Ipv4Addr::BROADCAST)
}

fn render(request: &Request<'_>, yours: Ipv4Addr, options: Options, to: Ipv4Addr) -> Reply {
    let packet = request.packet;
    let mut bytes = vec![0; FIXED];
    bytes[..4].copy_from_slice(&[BOOT_REPLY, ETHERNET, 6, 0]);
    // The transaction ID, and the flags that request broadcasts.
    bytes[4..8].copy_from_slice(&packet[4..8]);
    bytes[10..12].copy_from_slice(&packet[10..12]);
    if to != Ipv4Addr::BROADCAST {
        bytes[12..16].copy_from_slice(&packet[12..16]);
    }
    bytes[16..20].copy_from_slice(&yours.octets());
    bytes[28..34].copy_from_slice(&packet[28..34]);
    bytes[236..240].copy_from_slice(&COOKIE);
    bytes.extend(options.finish());
    bytes.resize(bytes.len().max(MIN_LENGTH), 0);
    Reply { bytes, to }
}

#[cfg(test)]
mod tests;
