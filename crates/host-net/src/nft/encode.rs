//! Encoding of nftables messages. All numbers are big-endian.

use std::net::IpAddr;

use net_plan::{
    Cidr,
    nft::{
        Action, Chain, EtherType, Family, HookKind, HookPoint, Match, NeighbourMessage, Rule,
        Table, Transport,
    },
};

use super::BaseChain;
use crate::{
    address::octets,
    netlink::{APPEND, CREATE, Message, attributes, text_of},
};

const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;

const NEW_TABLE: u16 = 0;
const DEL_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const GET_CHAIN: u16 = 4;
const DEL_CHAIN: u16 = 5;
const NEW_RULE: u16 = 6;
const DEL_RULE: u16 = 8;

const TABLE_NAME: u16 = 1;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const HOOK_DEVICE: u16 = 3;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const LIST_ELEMENT: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;

const DROP: u32 = 0;
const ACCEPT: u32 = 1;
const JUMP: i32 = -3;
const RETURN: i32 = -5;

const REGISTER_VERDICT: u32 = 0;
const REGISTER_1: u32 = 1;
const REGISTER_2: u32 = 2;

const CONNECTION_STATE: u32 = 0;
const CONNECTION_DIRECTION: u32 = 1;
const REPLY: u8 = 1;
const CONNECTION_STATUS: u32 = 2;
/// Bits of a connection's state and status, in the byte order of this machine.
const RELATED: u32 = 1 << 2;
const DESTINATION_TRANSLATED: u32 = 1 << 5;
const RANDOM: u32 = 1;
/// Result and flag of a route lookup: the type of the destination address.
const FIB_ADDRESS_TYPE: u32 = 3;
const FIB_DESTINATION: u32 = 1 << 1;
/// The type of this host's own addresses, in the byte order of this machine.
const ROUTE_LOCAL: u32 = 2;
/// Reject by an ICMP message "port unreachable".
const REJECT_BY_ICMP: u32 = 0;
const PORT_UNREACHABLE: u8 = 3;
const ICMP_OF_IPV6: u8 = 58;

const META_PROTOCOL: u32 = 1;
const META_INPUT_NAME: u32 = 6;
const META_OUTPUT_NAME: u32 = 7;
const META_TRANSPORT: u32 = 16;

const BASE_LINK: u32 = 0;
const BASE_NETWORK: u32 = 1;
const BASE_TRANSPORT: u32 = 2;

const NFPROTO_UNSPEC: u8 = 0;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_NETDEV: u8 = 5;
const NFPROTO_IPV6: u8 = 10;

fn protocol(family: Family) -> u8 {
    match family {
        Family::Ip => NFPROTO_IPV4,
        Family::Ip6 => NFPROTO_IPV6,
        Family::Netdev => NFPROTO_NETDEV,
    }
}

/// `struct nfgenmsg` before the attributes: family, version, resource.
fn head(kind: u16, flags: u16, family: u8, resource: u16) -> Message {
    let [high, low] = resource.to_be_bytes();
    Message::new(kind, flags).with(&[family, 0, high, low])
}

fn message(kind: u16, flags: u16, family: Family) -> Message {
    head(SUBSYSTEM << 8 | kind, flags, protocol(family), 0)
}

pub(super) fn begin() -> Message {
    head(BATCH_BEGIN, 0, NFPROTO_UNSPEC, SUBSYSTEM)
}

pub(super) fn end() -> Message {
    head(BATCH_END, 0, NFPROTO_UNSPEC, SUBSYSTEM)
}

pub(super) fn new_table(table: &Table) -> Message {
    let mut message = message(NEW_TABLE, CREATE, table.family);
    message.text(TABLE_NAME, &table.name);
    message
}

pub(super) fn delete_table(family: Family, name: &str) -> Message {
    let mut message = message(DEL_TABLE, 0, family);
    message.text(TABLE_NAME, name);
    message
}

pub(super) fn new_chain(table: &Table, chain: &Chain) -> Message {
    let mut message = chain_message(NEW_CHAIN, CREATE, table, chain);
    if let Some(hook) = &chain.hook {
        message.nest(CHAIN_HOOK, |inside| {
            inside.big_endian(HOOK_NUMBER, hook_number(hook.point));
            inside.big_endian(HOOK_PRIORITY, hook.priority.cast_unsigned());
            if hook.point == HookPoint::Ingress {
                inside.text(HOOK_DEVICE, &chain.name);
            }
        });
        message.big_endian(CHAIN_POLICY, ACCEPT);
        message.text(
            CHAIN_TYPE,
            match hook.kind {
                HookKind::Filter => "filter",
                HookKind::Nat => "nat",
            },
        );
    }
    message
}

fn hook_number(point: HookPoint) -> u32 {
    match point {
        // Numbers of different families.
        HookPoint::Prerouting | HookPoint::Ingress => 0,
        HookPoint::Input => 1,
        HookPoint::Forward => 2,
        HookPoint::Output => 3,
        HookPoint::Postrouting => 4,
    }
}

fn chain_message(kind: u16, flags: u16, table: &Table, chain: &Chain) -> Message {
    let mut message = message(kind, flags, table.family);
    message.text(CHAIN_TABLE, &table.name);
    message.text(CHAIN_NAME, &chain.name);
    message
}

pub(super) fn delete_chain(family: Family, table: &str, chain: &str) -> Message {
    let mut message = message(DEL_CHAIN, 0, family);
    message.text(CHAIN_TABLE, table);
    message.text(CHAIN_NAME, chain);
    message
}

/// Deletes all rules of the chain.
pub(super) fn flush_chain(table: &Table, chain: &Chain) -> Message {
    rule_message(DEL_RULE, 0, table, chain)
}

fn rule_message(kind: u16, flags: u16, table: &Table, chain: &Chain) -> Message {
    let mut message = message(kind, flags, table.family);
    message.text(RULE_TABLE, &table.name);
    message.text(RULE_CHAIN, &chain.name);
    message
}

pub(super) fn new_rule(table: &Table, chain: &Chain, rule: &Rule) -> Message {
    let mut message = rule_message(NEW_RULE, CREATE | APPEND, table, chain);
    message.nest(RULE_EXPRESSIONS, |list| {
        for one in &rule.matches {
            matches(list, one);
        }
        expression(list, "counter", |_| ());
        action(list, &rule.action);
    });
    message
}

fn expression(list: &mut Message, name: &str, data: impl FnOnce(&mut Message)) {
    list.nest(LIST_ELEMENT, |element| {
        element.text(EXPRESSION_NAME, name);
        element.nest(EXPRESSION_DATA, data);
    });
}

fn matches(list: &mut Message, one: &Match) {
    match one {
        Match::InputInterface(name) => {
            meta(list, META_INPUT_NAME);
            compare(list, Comparison::Equal, &padded(name));
        }
        Match::OutputInterface(name) => {
            meta(list, META_OUTPUT_NAME);
            compare(list, Comparison::Equal, &padded(name));
        }
        Match::Source(cidr) => address(list, cidr, End::Source, Comparison::Equal),
        Match::NotSource(cidr) => address(list, cidr, End::Source, Comparison::NotEqual),
        Match::Destination(cidr) => address(list, cidr, End::Destination, Comparison::Equal),
        Match::NotDestination(cidr) => {
            address(list, cidr, End::Destination, Comparison::NotEqual);
        }
        Match::DestinationPorts {
            protocol,
            first,
            last,
        } => destination_ports(list, *protocol, [*first, *last]),
        Match::DestinationIsLocal => {
            expression(list, "fib", |data| {
                data.big_endian(1, REGISTER_1);
                data.big_endian(2, FIB_ADDRESS_TYPE);
                data.big_endian(3, FIB_DESTINATION);
            });
            compare(list, Comparison::Equal, &ROUTE_LOCAL.to_ne_bytes());
        }
        Match::OneClientOf { many, seed } => {
            load(list, REGISTER_2, Part::IPV4_SOURCE);
            expression(list, "hash", |data| {
                data.big_endian(1, REGISTER_2);
                data.big_endian(2, REGISTER_1);
                data.big_endian(3, 4);
                data.big_endian(4, *many);
                data.big_endian(5, *seed);
            });
            compare(list, Comparison::Equal, &[0; 4]);
        }
        Match::OneOf(many) => {
            expression(list, "numgen", |data| {
                data.big_endian(1, REGISTER_1);
                data.big_endian(2, *many);
                data.big_endian(3, RANDOM);
            });
            compare(list, Comparison::Equal, &[0; 4]);
        }
        Match::DestinationWasTranslated => {
            connection(list, CONNECTION_STATUS, DESTINATION_TRANSLATED);
        }
        Match::Reply => {
            load_connection(list, CONNECTION_DIRECTION);
            compare(list, Comparison::Equal, &[REPLY]);
        }
        Match::Related => connection(list, CONNECTION_STATE, RELATED),
        Match::Protocol(protocol) => {
            meta(list, META_PROTOCOL);
            let number: u16 = match protocol {
                EtherType::Arp => 0x0806,
                EtherType::Ip => 0x0800,
                EtherType::Ip6 => 0x86dd,
            };
            compare(list, Comparison::Equal, &number.to_be_bytes());
        }
        Match::ArpSender(address) => {
            payload(list, BASE_NETWORK, 14, 4);
            compare(list, Comparison::Equal, &address.octets());
        }
        Match::SourceMacBeginsWith(bytes) => {
            // No more bytes than an address has.
            let length = bytes.len().try_into().unwrap_or(6);
            payload(list, BASE_LINK, 6, length);
            compare(list, Comparison::Equal, bytes);
        }
        Match::NotSourceMac(address) => {
            payload(list, BASE_LINK, 6, 6);
            compare(list, Comparison::NotEqual, &address.0);
        }
        Match::Neighbour(message) => {
            meta(list, META_TRANSPORT);
            compare(list, Comparison::Equal, &[ICMP_OF_IPV6]);
            payload(list, BASE_TRANSPORT, 0, 1);
            compare(list, Comparison::Equal, &[neighbour_type(*message)]);
        }
        Match::NeighbourTarget(cidr) => target(list, cidr, Comparison::Equal),
        Match::NotNeighbourTarget(cidr) => target(list, cidr, Comparison::NotEqual),
    }
}

/// The address that a message between neighbours is about.
fn target(list: &mut Message, cidr: &Cidr, how: Comparison) {
    let bytes = cidr.whole_bytes();
    // No more bytes than an address has.
    let length = bytes.len().try_into().unwrap_or(16);
    payload(list, BASE_TRANSPORT, 8, length);
    compare(list, how, &bytes);
}

fn neighbour_type(message: NeighbourMessage) -> u8 {
    match message {
        NeighbourMessage::RouterAdvertisement => 134,
        NeighbourMessage::Solicitation => 135,
        NeighbourMessage::Advertisement => 136,
        NeighbourMessage::Redirect => 137,
    }
}

fn destination_ports(list: &mut Message, protocol: Transport, [first, last]: [u16; 2]) {
    let number = match protocol {
        Transport::Tcp => 6,
        Transport::Udp => 17,
        Transport::Sctp => 132,
    };
    meta(list, META_TRANSPORT);
    compare(list, Comparison::Equal, &[number]);
    payload(list, BASE_TRANSPORT, 2, 2);
    if first == last {
        compare(list, Comparison::Equal, &first.to_be_bytes());
    } else {
        compare(list, Comparison::AtLeast, &first.to_be_bytes());
        compare(list, Comparison::AtMost, &last.to_be_bytes());
    }
}

/// The connection has one of these bits.
fn connection(list: &mut Message, key: u32, mask: u32) {
    load_connection(list, key);
    bits(list, &mask.to_ne_bytes());
    compare(list, Comparison::NotEqual, &[0; 4]);
}

fn load_connection(list: &mut Message, key: u32) {
    expression(list, "ct", |data| {
        data.big_endian(1, REGISTER_1);
        data.big_endian(2, key);
    });
}

/// Interface names are compared with their zero padding.
fn padded(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().zip(name.bytes()) {
        *to = from;
    }
    bytes
}

#[derive(Clone, Copy)]
enum Comparison {
    Equal,
    NotEqual,
    AtMost,
    AtLeast,
}

#[derive(Clone, Copy)]
enum End {
    Source,
    Destination,
}

fn meta(list: &mut Message, key: u32) {
    expression(list, "meta", |data| {
        data.big_endian(1, REGISTER_1);
        data.big_endian(2, key);
    });
}

fn compare(list: &mut Message, how: Comparison, value: &[u8]) {
    expression(list, "cmp", |data| {
        data.big_endian(1, REGISTER_1);
        data.big_endian(
            2,
            match how {
                Comparison::Equal => 0,
                Comparison::NotEqual => 1,
                Comparison::AtMost => 3,
                Comparison::AtLeast => 5,
            },
        );
        data.nest(3, |inside| inside.attribute(DATA_VALUE, value));
    });
}

/// A part of a packet.
#[derive(Clone, Copy)]
struct Part {
    base: u32,
    offset: u32,
    length: u32,
}

impl Part {
    const IPV4_SOURCE: Self = Self {
        base: BASE_NETWORK,
        offset: 12,
        length: 4,
    };
}

fn payload(list: &mut Message, base: u32, offset: u32, length: u32) {
    let part = Part {
        base,
        offset,
        length,
    };
    load(list, REGISTER_1, part);
}

fn load(list: &mut Message, register: u32, part: Part) {
    expression(list, "payload", |data| {
        data.big_endian(1, register);
        data.big_endian(2, part.base);
        data.big_endian(3, part.offset);
        data.big_endian(4, part.length);
    });
}

fn address(list: &mut Message, cidr: &Cidr, end: End, how: Comparison) {
    let (offset, length) = match (cidr.address, end) {
        (IpAddr::V4(_), End::Source) => (12, 4),
        (IpAddr::V4(_), End::Destination) => (16, 4),
        (IpAddr::V6(_), End::Source) => (8, 16),
        (IpAddr::V6(_), End::Destination) => (24, 16),
    };
    payload(list, BASE_NETWORK, offset, length);
    let address = octets(cidr.network().address);
    if cidr.host_bits() > 0 {
        bits(list, &mask(cidr.prefix_length, address.len()));
    }
    compare(list, how, &address);
}

/// Masks the register.
fn bits(list: &mut Message, mask: &[u8]) {
    let length = u32::try_from(mask.len()).unwrap_or(u32::MAX);
    expression(list, "bitwise", |data| {
        data.big_endian(1, REGISTER_1);
        data.big_endian(2, REGISTER_1);
        data.big_endian(3, length);
        data.nest(4, |inside| inside.attribute(DATA_VALUE, mask));
        data.nest(5, |inside| {
            inside.attribute(DATA_VALUE, &vec![0; mask.len()]);
        });
    });
}

fn mask(prefix_length: u8, bytes: usize) -> Vec<u8> {
    let ones = u128::MAX
        .checked_shl(128 - u32::from(prefix_length))
        .unwrap_or(0);
    ones.to_be_bytes().into_iter().take(bytes).collect()
}

fn action(list: &mut Message, action: &Action) {
    match action {
        Action::Accept => verdict(list, ACCEPT, None),
        Action::Drop => verdict(list, DROP, None),
        Action::Reject => expression(list, "reject", |data| {
            data.big_endian(1, REJECT_BY_ICMP);
            data.attribute(2, &[PORT_UNREACHABLE]);
        }),
        Action::Return => verdict(list, RETURN.cast_unsigned(), None),
        Action::Jump(chain) => verdict(list, JUMP.cast_unsigned(), Some(chain)),
        Action::Masquerade => expression(list, "masq", |_| ()),
        Action::SourceNat(to) => translate(list, 0, *to, None),
        Action::DestinationNat(to) => translate(list, 1, *to, None),
        Action::DestinationNatTo(to) => translate(list, 1, to.ip(), Some(to.port())),
    }
}

fn verdict(list: &mut Message, code: u32, chain: Option<&str>) {
    expression(list, "immediate", |data| {
        data.big_endian(1, REGISTER_VERDICT);
        data.nest(2, |inside| {
            inside.nest(DATA_VERDICT, |verdict| {
                verdict.big_endian(VERDICT_CODE, code);
                if let Some(chain) = chain {
                    verdict.text(VERDICT_CHAIN, chain);
                }
            });
        });
    });
}

fn translate(list: &mut Message, kind: u32, to: IpAddr, port: Option<u16>) {
    let mut put = |register: u32, value: &[u8]| {
        expression(list, "immediate", |data| {
            data.big_endian(1, register);
            data.nest(2, |inside| inside.attribute(DATA_VALUE, value));
        });
    };
    put(REGISTER_1, &octets(to));
    if let Some(port) = port {
        put(REGISTER_2, &port.to_be_bytes());
    }
    expression(list, "nat", |data| {
        data.big_endian(1, kind);
        data.big_endian(2, u32::from(protocol(Family::of(to))));
        data.big_endian(3, REGISTER_1);
        if port.is_some() {
            data.big_endian(5, REGISTER_2);
        }
    });
}

pub(super) fn get_chains(family: Family, flags: u16) -> Message {
    message(GET_CHAIN, flags, family)
}

/// `None` for chains without a hook.
pub(super) fn base_chain(payload: &[u8]) -> Option<BaseChain> {
    let (mut table, mut name, mut hook, mut policy) = (String::new(), String::new(), None, ACCEPT);
    for (kind, value) in attributes(payload.get(4..)?) {
        match kind {
            CHAIN_TABLE => table = text_of(value),
            CHAIN_NAME => name = text_of(value),
            CHAIN_POLICY => policy = big_endian(value)?,
            CHAIN_HOOK => {
                let number = attributes(value).find(|(kind, _)| *kind == HOOK_NUMBER);
                hook = number.and_then(|(_, value)| big_endian(value));
            }
            _ => {}
        }
    }
    Some(BaseChain {
        table,
        name,
        hook: hook?,
        drops_by_default: policy == DROP,
    })
}

fn big_endian(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}
