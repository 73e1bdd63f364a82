//! Frames: a length that includes itself, a header of six 32-bit values, a body.
//!
//! The protocol can pass file descriptors with a frame; no call of this crate uses that.

use crate::ProtocolError;
use crate::xdr::{Decoder, Encoder};

/// The largest frame that is read or written, including its length field.
pub const MAX_FRAME: usize = (32 << 20) + 4;
/// The length field and the header.
pub(crate) const MIN_FRAME: usize = 28;

const VERSION: u32 = 1;

/// The type of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Call,
    Reply,
    /// Sent without a request: events, pings, pongs.
    Message,
    /// Data of a stream.
    Stream,
    CallWithFds,
    ReplyWithFds,
    /// A gap in a sparse stream, which this crate never requests.
    StreamHole,
}

impl Kind {
    const TABLE: [Self; 7] = [
        Self::Call,
        Self::Reply,
        Self::Message,
        Self::Stream,
        Self::CallWithFds,
        Self::ReplyWithFds,
        Self::StreamHole,
    ];

    fn decode(number: u32) -> Result<Self, ProtocolError> {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        Self::TABLE
            .get(at)
            .copied()
            .ok_or(ProtocolError::Malformed("unknown type of frame"))
    }

    fn number(self) -> u32 {
        match self {
            Self::Call => 0,
            Self::Reply => 1,
            Self::Message => 2,
            Self::Stream => 3,
            Self::CallWithFds => 4,
            Self::ReplyWithFds => 5,
            Self::StreamHole => 6,
        }
    }
}

/// The outcome of a call, or the state of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Ok,
    Error,
    /// The stream continues.
    Continue,
}

impl Status {
    fn decode(number: u32) -> Result<Self, ProtocolError> {
        match number {
            0 => Ok(Self::Ok),
            1 => Ok(Self::Error),
            2 => Ok(Self::Continue),
            _ => Err(ProtocolError::Malformed("unknown status of a frame")),
        }
    }

    fn number(self) -> u32 {
        match self {
            Self::Ok => 0,
            Self::Error => 1,
            Self::Continue => 2,
        }
    }
}

/// The six values after the length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) program: u32,
    pub(crate) procedure: i32,
    pub(crate) kind: Kind,
    pub(crate) serial: u32,
    pub(crate) status: Status,
}

/// A frame without its length field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) header: Header,
    pub(crate) body: Vec<u8>,
}

/// The number of bytes after the length field.
pub(crate) fn rest_length(length: [u8; 4]) -> Result<usize, ProtocolError> {
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if (MIN_FRAME..=MAX_FRAME).contains(&length) {
        Ok(length - 4)
    } else {
        Err(ProtocolError::FrameLength { length })
    }
}

impl Frame {
    /// Parses the bytes after the length field.
    pub(crate) fn parse(rest: &[u8]) -> Result<Self, ProtocolError> {
        let mut from = Decoder::new(rest);
        let program = from.u32()?;
        let version = from.u32()?;
        let header = Header {
            program,
            procedure: from.i32()?,
            kind: Kind::decode(from.u32()?)?,
            serial: from.u32()?,
            status: Status::decode(from.u32()?)?,
        };
        if version != VERSION {
            return Err(ProtocolError::Malformed("unknown version of a program"));
        }
        let body = rest.get(MIN_FRAME - 4..).unwrap_or_default().to_vec();
        Ok(Self { header, body })
    }

    /// The bytes on the wire, including the length field.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, ProtocolError> {
        let length = MIN_FRAME + self.body.len();
        let field = u32::try_from(length).ok().filter(|_| length <= MAX_FRAME);
        let mut bytes = Encoder::new()
            .u32(field.ok_or(ProtocolError::FrameLength { length })?)
            .u32(self.header.program)
            .u32(VERSION)
            .i32(self.header.procedure)
            .u32(self.header.kind.number())
            .u32(self.header.serial)
            .u32(self.header.status.number())
            .finish();
        bytes.extend_from_slice(&self.body);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn encoded_frame_is_parsed_back(procedure: i32, serial: u32, kind in 0_u32..7, body: Vec<u8>) {
            let header = Header {
                program: crate::procedure::REMOTE,
                procedure,
                kind: Kind::decode(kind).unwrap(),
                serial,
                status: Status::Continue,
            };
            let frame = Frame { header, body };
            let bytes = frame.encode().unwrap();
            let (length, rest) = bytes.split_first_chunk().unwrap();
            prop_assert_eq!(rest_length(*length), Ok(rest.len()));
            prop_assert_eq!(Frame::parse(rest), Ok(frame));
        }
    }

    #[test]
    fn lengths_outside_the_bounds_are_refused() {
        for length in [0_u32, 27, 32 * 1024 * 1024 + 5, u32::MAX] {
            assert!(rest_length(length.to_be_bytes()).is_err(), "{length}");
        }
        assert_eq!(rest_length(28_u32.to_be_bytes()), Ok(24));
    }
}
