//! Construction of netlink messages.

use super::{HEADER, parse::u16_at};

const REQUEST: u16 = 0x1;
pub(crate) const ACK: u16 = 0x4;
pub(crate) const REPLACE: u16 = 0x100;
pub(crate) const EXCLUSIVE: u16 = 0x200;
pub(crate) const DUMP: u16 = 0x300;
pub(crate) const CREATE: u16 = 0x400;
pub(crate) const APPEND: u16 = 0x800;

const NESTED: u16 = 0x8000;

/// A message under construction.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(super) bytes: Vec<u8>,
}

impl Message {
    /// `REQUEST` is always set.
    pub(crate) fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | REQUEST).to_ne_bytes());
        Self { bytes }
    }

    #[must_use]
    pub(crate) fn with(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Adds flags.
    #[must_use]
    pub(crate) fn with_flags(mut self, flags: u16) -> Self {
        let flags = u16_at(&self.bytes, 6) | flags;
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        self
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.nest_as(kind, |message| message.bytes.extend_from_slice(value));
    }

    /// A string with its terminating zero.
    pub(crate) fn text(&mut self, kind: u16, value: &str) {
        self.nest_as(kind, |message| {
            message.bytes.extend_from_slice(value.as_bytes());
            message.bytes.push(0);
        });
    }

    pub(crate) fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    pub(crate) fn big_endian(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_be_bytes());
    }

    pub(crate) fn nest(&mut self, kind: u16, inside: impl FnOnce(&mut Self)) {
        self.nest_as(kind | NESTED, inside);
    }

    fn nest_as(&mut self, kind: u16, inside: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        inside(self);
        let length = self.bytes.len() - start;
        let length = u16::try_from(length).expect("an attribute is far shorter than 64 KiB");
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes[start + 2..start + 4].copy_from_slice(&kind.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    pub(super) fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).expect("a message is far shorter than 4 GiB");
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}
