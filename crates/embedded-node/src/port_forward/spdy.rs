//! As much of SPDY/3.1 as port forwarding uses: streams that a client opens, their data and ends.
//!
//! **Invariants**: no frame is longer than [`LONGEST_FRAME`]; what is not understood is skipped,
//! what contradicts itself ends the connection.

use bytes::{Buf as _, Bytes, BytesMut};

use super::Malformed;
use super::inflate::{Inflate, packed};

/// No client sends longer ones; it copies in pieces of 32 KiB.
const LONGEST_FRAME: usize = 1 << 20;
/// Of control and data frames alike.
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

/// What a client says.
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
    /// Nothing more comes on this stream.
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

/// Takes frames out of bytes as they come.
#[derive(Debug)]
pub(super) struct Reader {
    buffer: BytesMut,
    inflate: Inflate,
    /// Of the data frame that was given out last.
    ends: Option<u32>,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self {
            buffer: BytesMut::new(),
            inflate: Inflate::new(),
            ends: None,
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame that is whole.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, Malformed> {
        loop {
            if let Some(id) = self.ends.take() {
                return Ok(Some(Frame::End { id }));
            }
            let Some(head) = self.buffer.get(..HEAD) else {
                return Ok(None);
            };
            let (mut head, is_control) = (head, head.first().is_some_and(|b| b & CONTROL != 0));
            let what = head.get_u32();
            let length = head.get_u32();
            let flags = u8::try_from(length >> 24).unwrap_or_default();
            let length = usize::try_from(length & 0x00ff_ffff).unwrap_or(usize::MAX);
            if length > LONGEST_FRAME {
                return Err(Malformed("a frame is too long"));
            }
            if self.buffer.len() < HEAD + length {
                return Ok(None);
            }
            self.buffer.advance(HEAD);
            let body = self.buffer.split_to(length).freeze();
            let id = what & 0x7fff_ffff;
            if is_control {
                let kind = u16::try_from(what & 0xffff).unwrap_or_default();
                if id >> 16 != u32::from(VERSION) {
                    return Err(Malformed(
                        "not the version of the protocol that was agreed on",
                    ));
                }
                if let Some(frame) = self.control(kind, flags, body)? {
                    return Ok(Some(frame));
                }
                continue;
            }
            self.ends = (flags & FIN != 0).then_some(id);
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
                // The stream it belongs to, its priority and a slot: of no use here.
                if body.len() < 6 {
                    return Err(short);
                }
                body.advance(6);
                let headers = self.headers(&body)?;
                self.ends = (flags & FIN != 0).then_some(id);
                Ok(Some(Frame::Open { id, headers }))
            }
            SYN_REPLY | HEADERS => {
                let id = number().map_err(|_| short)?;
                // Read although nobody asks: those that follow refer to them.
                self.headers(&body)?;
                self.ends = (flags & FIN != 0).then_some(id);
                Ok(None)
            }
            RST_STREAM => Ok(Some(Frame::Reset {
                id: number().map_err(|_| short)?,
            })),
            PING => Ok(Some(Frame::Ping {
                id: body.try_get_u32().map_err(|_| short)?,
            })),
            GO_AWAY => Ok(Some(Frame::GoAway)),
            // Settings and windows: there is no flow control on these connections.
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
            let mut word = || {
                let length = text.try_get_u32().ok()?;
                let length = usize::try_from(length).ok()?;
                let word = (length <= text.len()).then(|| text.split_to(length))?;
                Some(String::from_utf8_lossy(&word).into_owned())
            };
            let (Some(name), Some(value)) = (word(), word()) else {
                return Err(short);
            };
            headers.push((name, value));
        }
        Ok(headers)
    }
}

/// Makes frames.
#[derive(Debug, Default)]
pub(super) struct Writer {
    has_replied: bool,
}

impl Writer {
    /// The stream is there.
    pub(super) fn reply(&mut self, id: u32) -> Vec<u8> {
        let no_headers = packed(&0_u32.to_be_bytes(), !self.has_replied);
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

/// The stream is not wanted.
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

fn frame(what: u32, flags: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let length = u32::try_from(length).unwrap_or_default() & 0x00ff_ffff;
    let mut out = what.to_be_bytes().to_vec();
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
        // Whatever the pieces are.
        for byte in bytes {
            reader.feed(&[*byte]);
            while let Some(frame) = reader.next()? {
                found.push(frame);
            }
        }
        Ok(found)
    }

    #[test]
    fn frames_are_read_in_pieces_and_ends_come_after_the_data() {
        let mut bytes = data(1, b"abc");
        bytes.extend(frame(3, FIN, &[b"last"]));
        bytes.extend(end(5));
        bytes.extend(pong(7));
        bytes.extend(refuse(9));
        // Settings, which are skipped.
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
    fn streams_say_what_they_are_for() {
        // As another implementation packs it: with the dictionary, one stream for all blocks.
        let block = |text: &str| {
            let pairs: Vec<&str> = text.split([' ', '=']).collect();
            let count = u32::try_from(pairs.len() / 2).expect("few");
            let mut out = count.to_be_bytes().to_vec();
            for word in pairs {
                out.extend(u32::try_from(word.len()).expect("short").to_be_bytes());
                out.extend_from_slice(word.as_bytes());
            }
            out
        };
        let open =
            |id: u32, packed: &[u8]| control(SYN_STREAM, &[&id.to_be_bytes(), &[0; 6], packed]);
        let mut first = vec![0x78, 0xf9, 0xe3, 0xc6, 0xa7, 0xc2];
        first.extend(packed(
            &block("streamtype=error port=80 requestid=0"),
            false,
        ));
        let second = packed(&block("streamtype=data port=80 requestid=0"), false);
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
    fn nonsense_ends_the_connection() {
        let long = [&1_u32.to_be_bytes()[..], &[0, 0xff, 0xff, 0xff]].concat();
        let other_version = [&0x8002_0001_u32.to_be_bytes()[..], &[0; 4]].concat();
        let cut = control(SYN_STREAM, &[&[0; 3]]);
        let mut claims = vec![0x78, 0xf9, 0, 0, 0, 0];
        claims.extend(packed(&[0xff; 8], false));
        let claims = control(SYN_STREAM, &[&[0; 10], &claims]);
        for bytes in [long, other_version, cut, claims] {
            all(&bytes).expect_err("malformed");
        }
    }
}
