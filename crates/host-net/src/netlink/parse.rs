//! Parsing of netlink responses.

use rustix::io::Errno;

use super::HEADER;
use crate::NetError;

pub(super) const FLAG_DUMP_INTERRUPTED: u16 = 0x10;
const FLAG_CAPPED: u16 = 0x100;
const FLAG_ACK_ATTRIBUTES: u16 = 0x200;

pub(super) const KIND_ERROR: u16 = 2;
pub(super) const KIND_DONE: u16 = 3;
pub(super) const KIND_OVERRUN: u16 = 4;

const KIND_MASK: u16 = 0x3fff;

/// The kernel's refusal of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) errno: Errno,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn during(self, operation: impl Into<String>) -> NetError {
        let operation = operation.into();
        if self.errno == Errno::PERM || self.errno == Errno::ACCESS {
            return NetError::NotPermitted { operation };
        }
        NetError::Kernel {
            operation,
            errno: self.errno,
            message: self.message,
        }
    }
}

/// A received message with its header's fields.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    pub(super) payload: Vec<u8>,
}

/// Splits a datagram into its messages.
pub(super) fn received_messages(mut bytes: &[u8]) -> Result<Vec<Received>, NetError> {
    let mut messages = Vec::new();
    while let Some((header, _)) = bytes.split_first_chunk::<HEADER>() {
        let length = usize::try_from(u32_at(header, 0)).unwrap_or(usize::MAX);
        let payload = bytes.get(HEADER..length).ok_or(NetError::Response {
            problem: "malformed",
        })?;
        messages.push(Received {
            kind: u16_at(header, 4),
            flags: u16_at(header, 6),
            sequence: u32_at(header, 8),
            payload: payload.to_vec(),
        });
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(messages)
}

/// Reads an error message; code zero is an acknowledgement.
pub(super) fn acknowledgement(message: &Received) -> Result<(), Refusal> {
    let code = u32_at(&message.payload, 0).cast_signed();
    if code == 0 {
        return Ok(());
    }
    let mut explanation = String::new();
    if message.flags & FLAG_ACK_ATTRIBUTES != 0 {
        // The refused message follows the code: only its header if capped.
        let refused = if message.flags & FLAG_CAPPED != 0 {
            HEADER
        } else {
            usize::try_from(u32_at(&message.payload, 4))
                .unwrap_or(usize::MAX)
                .next_multiple_of(4)
        };
        let rest = message
            .payload
            .get(refused.saturating_add(4)..)
            .unwrap_or_default();
        explanation = attributes(rest)
            .find(|(kind, _)| *kind == 1)
            .map(|(_, text)| text_of(text))
            .unwrap_or_default();
    }
    Err(Refusal {
        errno: Errno::from_raw_os_error(code.wrapping_neg()),
        message: explanation,
    })
}

/// The attributes in these bytes, up to the first malformed one.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(bytes.get(..2).map(|_| u16_at(bytes, 0))?);
        let value = bytes.get(4..length)?;
        let kind = u16_at(bytes, 2) & KIND_MASK;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// A string up to its terminating zero.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// Zero if the bytes are too short: the kernel sends whole structures.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let field = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    field.map_or(0, |field| u32::from_ne_bytes(*field))
}

pub(super) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    let field = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    field.map_or(0, |field| u16::from_ne_bytes(*field))
}

#[cfg(test)]
mod tests {
    use super::{
        super::message::{ACK, Message},
        *,
    };

    #[test]
    fn attributes_are_nested_and_padded() {
        let mut message = Message::new(16, ACK);
        message.text(3, "ab");
        message.nest(18, |inside| inside.attribute(1, b"x"));
        let bytes = message.finish(7);
        assert_eq!(bytes.len(), 16 + 8 + 4 + 8);
        assert_eq!(u32_at(&bytes, 0), 36);
        assert_eq!(
            (u16_at(&bytes, 4), u16_at(&bytes, 6), u32_at(&bytes, 8)),
            (16, 5, 7)
        );
        let found: Vec<_> = attributes(&bytes[16..]).collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].0, text_of(found[0].1)), (3, "ab".to_owned()));
        assert_eq!(attributes(found[1].1).next(), Some((1, &b"x"[..])));
    }

    #[test]
    fn malformed_bytes_end_the_list_or_are_an_error() {
        for bytes in [
            &[][..],
            &[8],
            &[3, 0, 1, 0],
            &[9, 0, 1, 0, 1, 2, 3, 4],
            &[0; 4],
        ] {
            assert_eq!(attributes(bytes).count(), 0, "{bytes:?}");
        }
        let mut short = vec![0; HEADER];
        assert!(
            received_messages(&short).is_err(),
            "length below the header"
        );
        short[0] = 200;
        assert!(received_messages(&short).is_err(), "length past the end");
        assert!(received_messages(&[1, 2, 3]).unwrap().is_empty());
    }

    #[test]
    fn refusal_carries_the_message_of_the_kernel() {
        let mut payload = (-17_i32).to_ne_bytes().to_vec();
        payload.extend_from_slice(&[0; HEADER]);
        let mut text = Message { bytes: Vec::new() };
        text.text(1, "already here");
        payload.extend_from_slice(&text.bytes);
        let flags = FLAG_CAPPED | FLAG_ACK_ATTRIBUTES;
        let message = Received {
            kind: KIND_ERROR,
            flags,
            sequence: 1,
            payload,
        };
        let refusal = acknowledgement(&message).unwrap_err();
        assert_eq!(
            refusal,
            Refusal {
                errno: Errno::EXIST,
                message: "already here".to_owned()
            }
        );
    }
}
