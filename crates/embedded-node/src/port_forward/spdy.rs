//! The subset of SPDY/3.1 that port forwarding uses: client streams, their data and ends.
//!
//! **Invariants**: no frame is longer than [`MAX_FRAME`]; unknown frames are skipped, malformed
//! ones end the connection.

use bytes::{Buf as _, Bytes, BytesMut};

use super::Malformed;
use super::inflate::{Inflate, Position, packed};

/// Clients send chunks of 32 KiB.
const MAX_FRAME: usize = 1 << 20;
/// Length of the header of control and data frames.
const HEAD: usize = 8;
const CONTROL: u8 = 0x80;
const VERSION: u16 = 3;
const FIN: u8 = 1;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GO_AWAY: u16 = 7;
const HEADERS: u16 = 8;

/// A frame from the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame {
    Open {
        id: u32,
        headers: Vec<(String, String)>,
    },
    Data {
        id: u32,
        bytes: Bytes,
    },
    /// The client ended this stream.
    End {
        id: u32,
    },
    Reset {
        id: u32,
    },
    Ping {
        id: u32,
    },
    GoAway,
}

/// Parses frames incrementally.
#[derive(Debug)]
pub(super) struct Reader {
    buffer: BytesMut,
    inflate: Inflate,
    /// Stream whose end follows the frame returned last.
    ended: Option<u32>,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self {
            buffer: BytesMut::new(),
            inflate: Inflate::new(),
            ended: None,
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, Malformed> {
        loop {
            if let Some(id) = self.ended.take() {
                return Ok(Some(Frame::End { id }));
            }
            let Some(head) = self.buffer.get(..HEAD) else {
                return Ok(None);
            };
            let (mut head, is_control) = (head, head.first().is_some_and(|b| b & CONTROL != 0));
            let tag = head.get_u32();
            let length = head.get_u32();
            let flags = u8::try_from(length >> 24).unwrap_or_default();
            let length = usize::try_from(length & 0x00ff_ffff).unwrap_or(usize::MAX);
            if length > MAX_FRAME {
                return Err(Malformed("a frame is too long"));
            }
            if self.buffer.len() < HEAD + length {
                return Ok(None);
            }
            self.buffer.advance(HEAD);
            let body = self.buffer.split_to(length).freeze();
            let id = tag & 0x7fff_ffff;
            if is_control {
                let kind = u16::try_from(tag & 0xffff).unwrap_or_default();
                if id >> 16 != u32::from(VERSION) {
                    return Err(Malformed("wrong protocol version"));
                }
                if let Some(frame) = self.control(kind, flags, body)? {
                    return Ok(Some(frame));
                }
                continue;
            }
            self.ended = (flags & FIN != 0).then_some(id);
            if !body.is_empty() {
                return Ok(Some(Frame::Data { id, bytes: body }));
            }
        }
    }

    fn control(
        &mut self,
        kind: u16,
        flags: u8,
        mut body: Bytes,
    ) -> Result<Option<Frame>, Malformed> {
        let short = Malformed("a frame is too short");
        let mut number = || body.try_get_u32().map(|id| id & 0x7fff_ffff);
        match kind {
            SYN_STREAM => {
                let id = number().map_err(|_| short)?;
                // Skip the associated stream, the priority and the slot.
                if body.len() < 6 {
                    return Err(short);
                }
                body.advance(6);
                let headers = self.headers(&body)?;
                self.ended = (flags & FIN != 0).then_some(id);
                Ok(Some(Frame::Open { id, headers }))
            }
            SYN_REPLY | HEADERS => {
                let id = number().map_err(|_| short)?;
                // Must be decompressed, as later blocks refer to this one.
                self.headers(&body)?;
                self.ended = (flags & FIN != 0).then_some(id);
                Ok(None)
            }
            RST_STREAM => Ok(Some(Frame::Reset {
                id: number().map_err(|_| short)?,
            })),
            PING => Ok(Some(Frame::Ping {
                id: body.try_get_u32().map_err(|_| short)?,
            })),
            GO_AWAY => Ok(Some(Frame::GoAway)),
            // Settings and window updates: these connections have no flow control.
            _ => Ok(None),
        }
    }

    fn headers(&mut self, block: &[u8]) -> Result<Vec<(String, String)>, Malformed> {
        let text = self.inflate.block(block)?;
        let mut text = Bytes::from(text);
        let short = Malformed("headers end too early");
        let count = text.try_get_u32().map_err(|_| short)?;
        let mut headers = Vec::new();
        for _ in 0..count {
            let mut string = || {
                let length = text.try_get_u32().ok()?;
                let length = usize::try_from(length).ok()?;
                let bytes = (length <= text.len()).then(|| text.split_to(length))?;
                Some(String::from_utf8_lossy(&bytes).into_owned())
            };
            let (Some(name), Some(value)) = (string(), string()) else {
                return Err(short);
            };
            headers.push((name, value));
        }
        Ok(headers)
    }
}

/// Renders replies, whose headers share one zlib stream.
#[derive(Debug, Default)]
pub(super) struct Writer {
    has_replied: bool,
}

impl Writer {
    /// Accepts the stream.
    pub(super) fn reply(&mut self, id: u32) -> Vec<u8> {
        let position = if self.has_replied {
            Position::Later
        } else {
            Position::First
        };
        let no_headers = packed(&0_u32.to_be_bytes(), position);
        self.has_replied = true;
        control(SYN_REPLY, &[&id.to_be_bytes(), &no_headers])
    }
}

pub(super) fn data(id: u32, bytes: &[u8]) -> Vec<u8> {
    frame(id, 0, &[bytes])
}

pub(super) fn end(id: u32) -> Vec<u8> {
    frame(id, FIN, &[])
}

/// Refuses the stream.
pub(super) fn refuse(id: u32) -> Vec<u8> {
    const REFUSED: u32 = 3;
    control(RST_STREAM, &[&id.to_be_bytes(), &REFUSED.to_be_bytes()])
}

pub(super) fn pong(id: u32) -> Vec<u8> {
    control(PING, &[&id.to_be_bytes()])
}

fn control(kind: u16, parts: &[&[u8]]) -> Vec<u8> {
    let version = u32::from(CONTROL) << 24 | u32::from(VERSION) << 16;
    frame(version | u32::from(kind), 0, parts)
}

fn frame(tag: u32, flags: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let length = u32::try_from(length).unwrap_or_default() & 0x00ff_ffff;
    let mut out = tag.to_be_bytes().to_vec();
    out.extend((u32::from(flags) << 24 | length).to_be_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<Frame>, Malformed> {
        let mut reader = Reader::new();
        let mut found = Vec::new();
        // In the smallest chunks.
        for byte in bytes {
            reader.feed(&[*byte]);
            while let Some(frame) = reader.next()? {
                found.push(frame);
            }
        }
        Ok(found)
    }

    #[test]
    fn frames_are_parsed_incrementally() {
        let mut bytes = data(1, b"abc");
        bytes.extend(frame(3, FIN, &[b"last"]));
        bytes.extend(end(5));
        bytes.extend(pong(7));
        bytes.extend(refuse(9));
        // Settings are skipped.
        bytes.extend(control(4, &[&0_u32.to_be_bytes()]));
        bytes.extend(control(GO_AWAY, &[&[0; 8]]));
        let read = |text: &'static str, id| Frame::Data {
            id,
            bytes: Bytes::from(text),
        };
        let expected = [
            read("abc", 1),
            read("last", 3),
            Frame::End { id: 3 },
            Frame::End { id: 5 },
            Frame::Ping { id: 7 },
            Frame::Reset { id: 9 },
            Frame::GoAway,
        ];
        assert_eq!(all(&bytes).expect("frames"), expected);
    }

    #[test]
    fn stream_headers_are_decompressed() {
        // As another implementation compresses it: with the dictionary, one stream for all blocks.
        let block = |text: &str| {
            let pairs: Vec<&str> = text.split([' ', '=']).collect();
            let count = u32::try_from(pairs.len() / 2).expect("few");
            let mut out = count.to_be_bytes().to_vec();
            for string in pairs {
                out.extend(u32::try_from(string.len()).expect("short").to_be_bytes());
                out.extend_from_slice(string.as_bytes());
            }
            out
        };
        let open =
            |id: u32, packed: &[u8]| control(SYN_STREAM, &[&id.to_be_bytes(), &[0; 6], packed]);
        let mut first = vec![0x78, 0xf9, 0xe3, 0xc6, 0xa7, 0xc2];
        first.extend(packed(
            &block("streamtype=error port=80 requestid=0"),
            Position::Later,
        ));
        let second = packed(
            &block("streamtype=data port=80 requestid=0"),
            Position::Later,
        );
        let mut bytes = open(1, &first);
        bytes.extend(open(3, &second));
        let found = all(&bytes).expect("frames");
        let of = |id, kind: &str| {
            let pairs = [("streamtype", kind), ("port", "80"), ("requestid", "0")];
            let headers = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
            Frame::Open {
                id,
                headers: headers.to_vec(),
            }
        };
        assert_eq!(found, [of(1, "error"), of(3, "data")]);
    }

    #[test]
    fn malformed_frames_are_errors() {
        let long = [&1_u32.to_be_bytes()[..], &[0, 0xff, 0xff, 0xff]].concat();
        let other_version = [&0x8002_0001_u32.to_be_bytes()[..], &[0; 4]].concat();
        let cut = control(SYN_STREAM, &[&[0; 3]]);
        let mut headers = vec![0x78, 0xf9, 0, 0, 0, 0];
        headers.extend(packed(&[0xff; 8], Position::Later));
        let many = control(SYN_STREAM, &[&[0; 10], &headers]);
        for bytes in [long, other_version, cut, many] {
            all(&bytes).expect_err("malformed");
        }
    }
}
