//! Reads and writes options of `DHCPv6`.

use std::net::Ipv6Addr;

pub(super) const CLIENT: u16 = 1;
pub(super) const SERVER: u16 = 2;
pub(super) const ADDRESS_ASSOCIATION: u16 = 3;
pub(super) const TEMPORARY_ASSOCIATION: u16 = 4;
pub(super) const ADDRESS: u16 = 5;
pub(super) const PREFERENCE: u16 = 7;
pub(super) const STATUS: u16 = 13;
pub(super) const RAPID_COMMIT: u16 = 14;
pub(super) const NAME_SERVERS: u16 = 23;
pub(super) const DOMAINS: u16 = 24;
pub(super) const PREFIX_ASSOCIATION: u16 = 25;

/// Options of a message that are read.
const MAX_COUNT: usize = 64;
/// Associations, and addresses of one, that are answered; clients have one or two.
const MAX_ASSOCIATIONS: usize = 4;

/// The options, or `None` if one is cut off or there are too many.
fn list(mut bytes: &[u8]) -> Option<Vec<(u16, &[u8])>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let ([a, b, c, d], rest) = bytes.split_first_chunk::<4>()?;
        let length = usize::from(u16::from_be_bytes([*c, *d]));
        let (value, rest) = rest.split_at_checked(length)?;
        all.push((u16::from_be_bytes([*a, *b]), value));
        if all.len() > MAX_COUNT {
            return None;
        }
        bytes = rest;
    }
    Some(all)
}

/// What a client asks for: addresses of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Association {
    /// The code of the option.
    pub(super) code: u16,
    pub(super) id: [u8; 4],
    /// Those that the client has, or wishes.
    pub(super) addresses: Vec<Ipv6Addr>,
}

impl Association {
    fn of(code: u16, value: &[u8]) -> Option<Self> {
        // Those of temporary addresses have no times.
        let head = if code == TEMPORARY_ASSOCIATION { 4 } else { 12 };
        let id = *value.first_chunk::<4>()?;
        let mut addresses = Vec::new();
        for (code, value) in list(value.get(head..)?)? {
            if code == ADDRESS && addresses.len() < MAX_ASSOCIATIONS {
                addresses.push(Ipv6Addr::from(*value.first_chunk::<16>()?));
            }
        }
        Some(Self {
            code,
            id,
            addresses,
        })
    }
}

/// A message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub(super) kind: u8,
    pub(super) transaction: [u8; 3],
    pub(super) client: Option<&'a [u8]>,
    pub(super) server: Option<&'a [u8]>,
    pub(super) is_rapid: bool,
    pub(super) associations: Vec<Association>,
}

impl<'a> Message<'a> {
    /// `None` if it is malformed.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let ([kind, a, b, c], options) = bytes.split_first_chunk::<4>()?;
        let mut message = Self {
            kind: *kind,
            transaction: [*a, *b, *c],
            client: None,
            server: None,
            is_rapid: false,
            associations: Vec::new(),
        };
        for (code, value) in list(options)? {
            match code {
                // The longest is a type of two bytes and 128 bytes.
                CLIENT if (3..=130).contains(&value.len()) => message.client = Some(value),
                CLIENT => return None,
                SERVER => message.server = Some(value),
                RAPID_COMMIT => message.is_rapid = true,
                ADDRESS_ASSOCIATION | TEMPORARY_ASSOCIATION | PREFIX_ASSOCIATION
                    if message.associations.len() < MAX_ASSOCIATIONS =>
                {
                    message.associations.push(Association::of(code, value)?);
                }
                _ => {}
            }
        }
        Some(message)
    }
}

/// Options that are written. One that does not fit is omitted, so the important ones come first.
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

    pub(super) fn push(&mut self, code: u16, value: &[u8]) {
        let Ok(length) = u16::try_from(value.len()) else {
            return;
        };
        if self.bytes.len() + 4 + value.len() <= self.capacity {
            self.bytes.extend(code.to_be_bytes());
            self.bytes.extend(length.to_be_bytes());
            self.bytes.extend_from_slice(value);
        }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_with_a_malformed_option_is_refused() {
        let good = [1, 7, 8, 9, 0, 1, 0, 3, 0, 3, 1, 0, 14, 0, 0];
        let message = Message::parse(&good).unwrap();
        assert_eq!((message.kind, message.transaction), (1, [7, 8, 9]));
        assert_eq!(
            (message.client, message.server),
            (Some(&[0, 3, 1][..]), None)
        );
        assert!(message.is_rapid);
        for end in (0..good.len()).filter(|end| ![4, 11].contains(end)) {
            assert_eq!(Message::parse(&good[..end]), None, "{end}");
        }
        let option = |code: u8, value: &[u8]| {
            let length = u16::try_from(value.len()).unwrap().to_be_bytes();
            [&[1, 7, 8, 9, 0, code, length[0], length[1]], value].concat()
        };
        for (name, bytes) in [
            ("a short identifier", option(1, &[0, 3])),
            ("a long identifier", option(1, &[0; 131])),
            ("a short association", option(3, &[0; 11])),
            ("a cut option of it", option(3, &[0; 13])),
            (
                "a short address",
                option(3, &[&[0; 12][..], &[0, 5, 0, 1, 0]].concat()),
            ),
            ("many options", [&[1, 7, 8, 9][..], &[0; 4 * 65]].concat()),
        ] {
            assert_eq!(Message::parse(&bytes), None, "{name}");
        }
    }

    #[test]
    fn only_some_associations_and_addresses_are_read() {
        let mut address = vec![0, 5, 0, 24];
        address.extend([0; 24]);
        let value = [vec![0; 12], address.repeat(6)].concat();
        let length = u16::try_from(value.len()).unwrap().to_be_bytes();
        let association = [&[0, 3, length[0], length[1]], &value[..]].concat();
        let bytes = [vec![1, 7, 8, 9], association.repeat(6)].concat();
        let message = Message::parse(&bytes).unwrap();
        let counts = message.associations.iter().map(|one| one.addresses.len());
        assert_eq!(counts.collect::<Vec<_>>(), [4; 4]);
    }

    #[test]
    fn option_that_does_not_fit_is_omitted() {
        let mut options = Options::new(12);
        options.push(1, &[1, 2, 3]);
        options.push(2, &[1, 2]);
        options.push(3, &[9]);
        assert_eq!(options.finish(), [0, 1, 0, 3, 1, 2, 3, 0, 3, 0, 1, 9]);
    }
}
