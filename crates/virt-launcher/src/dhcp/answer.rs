//! From a question to the answer, bytes to bytes.

use std::net::Ipv4Addr;

use launcher_channel::DhcpServer;

use super::options::{Options, find};

const BOOT_REQUEST: u8 = 1;
const BOOT_REPLY: u8 = 2;
const ETHERNET: u8 = 1;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Header and cookie.
const FIXED: usize = 240;
/// Old clients drop what is shorter.
const SHORTEST: usize = 300;
/// What every client takes, without the IP and UDP headers it is counted with.
const COMMON: usize = 576 - 28;
const LONGEST: usize = 1500 - 28;

const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACKNOWLEDGE: u8 = 5;
const REFUSE: u8 = 6;
const INFORM: u8 = 8;

const MESSAGE_TYPE: u8 = 53;
const SERVER: u8 = 54;
const REQUESTED_ADDRESS: u8 = 50;
const LEASE_TIME: u8 = 51;
const LONGEST_MESSAGE: u8 = 57;

/// 999 days: a guest keeps its address for life.
const LEASE_SECONDS: u32 = 999 * 24 * 60 * 60;

/// A packet and where it goes, port 68.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) bytes: Vec<u8>,
    pub(super) to: Ipv4Addr,
}

/// The fields of a question that matter.
struct Question<'a> {
    packet: &'a [u8; FIXED],
    options: &'a [u8],
    kind: u8,
}

impl<'a> Question<'a> {
    /// `None` unless it is a well-formed question of this client, come here directly.
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

    /// The address that the client has in use already.
    fn current(&self) -> Ipv4Addr {
        let [a, b, c, d] = [12, 13, 14, 15].map(|at| self.packet[at]);
        Ipv4Addr::new(a, b, c, d)
    }

    fn address(&self, option: u8) -> Option<Ipv4Addr> {
        find(self.options, option)?
            .first_chunk::<4>()
            .map(|octets| Ipv4Addr::from(*octets))
    }

    /// How long an answer may be.
    fn room(&self) -> usize {
        let said = find(self.options, LONGEST_MESSAGE).and_then(|value| value.first_chunk::<2>());
        let said = said.map_or(0, |bytes| usize::from(u16::from_be_bytes(*bytes)));
        said.saturating_sub(28).clamp(COMMON, LONGEST)
    }
}

/// Answers the client's question; `None` is silence.
pub(super) fn answer(packet: &[u8], server: &DhcpServer, client: [u8; 6]) -> Option<Answer> {
    let question = Question::parse(packet, client)?;
    match question.kind {
        DISCOVER => Some(lease(&question, server, OFFER)),
        REQUEST => request(&question, server),
        INFORM => Some(inform(&question, server)),
        // It declines or releases: there is nothing to remember.
        _ => None,
    }
}

fn request(question: &Question<'_>, server: &DhcpServer) -> Option<Answer> {
    if question
        .address(SERVER)
        .is_some_and(|chosen| chosen != server.server)
    {
        return None;
    }
    let current = Some(question.current()).filter(|address| !address.is_unspecified());
    let wanted = question.address(REQUESTED_ADDRESS).or(current)?;
    if wanted == server.address {
        return Some(lease(question, server, ACKNOWLEDGE));
    }
    let mut options = Options::new(question.room() - FIXED);
    options.push(MESSAGE_TYPE, &[REFUSE]);
    options.push(SERVER, &server.server.octets());
    Some(reply(
        question,
        Ipv4Addr::UNSPECIFIED,
        options,
        Ipv4Addr::BROADCAST,
    ))
}

fn lease(question: &Question<'_>, server: &DhcpServer, kind: u8) -> Answer {
    let mut options = Options::new(question.room() - FIXED);
    options.push(MESSAGE_TYPE, &[kind]);
    options.push(SERVER, &server.server.octets());
    options.push(LEASE_TIME, &LEASE_SECONDS.to_be_bytes());
    options.settings(server);
    // A client that has its address hears packets to it; others hear broadcasts.
    let to = match question.current() {
        address if kind == ACKNOWLEDGE && address == server.address => address,
        _ => Ipv4Addr::BROADCAST,
    };
    reply(question, server.address, options, to)
}

/// The settings for a client that has an address by other means.
fn inform(question: &Question<'_>, server: &DhcpServer) -> Answer {
    let mut options = Options::new(question.room() - FIXED);
    options.push(MESSAGE_TYPE, &[ACKNOWLEDGE]);
    options.push(SERVER, &server.server.octets());
    options.settings(server);
    reply(
        question,
        Ipv4Addr::UNSPECIFIED,
        options,
        Ipv4Addr::BROADCAST,
    )
}

fn reply(question: &Question<'_>, yours: Ipv4Addr, options: Options, to: Ipv4Addr) -> Answer {
    let asked = question.packet;
    let mut bytes = vec![0; FIXED];
    bytes[..4].copy_from_slice(&[BOOT_REPLY, ETHERNET, 6, 0]);
    // The transaction, and the flags that ask for broadcasts.
    bytes[4..8].copy_from_slice(&asked[4..8]);
    bytes[10..12].copy_from_slice(&asked[10..12]);
    if to != Ipv4Addr::BROADCAST {
        bytes[12..16].copy_from_slice(&asked[12..16]);
    }
    bytes[16..20].copy_from_slice(&yours.octets());
    bytes[28..34].copy_from_slice(&asked[28..34]);
    bytes[236..240].copy_from_slice(&COOKIE);
    bytes.extend(options.finish());
    bytes.resize(bytes.len().max(SHORTEST), 0);
    Answer { bytes, to }
}

#[cfg(test)]
mod tests;
