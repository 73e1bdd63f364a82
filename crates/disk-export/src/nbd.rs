//! A client of the NBD protocol, as far as the disks of a backup need it: negotiation, reads, and the map of data
//! and zeros.
//!
//! **Invariants**: the server is not trusted. What it sends is bounded before memory is allocated for it, its answers
//! are those to our requests, and a read either fills the whole buffer in order or fails.

use std::io::{self, Read, Write};

const MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const CHUNK_MAGIC: u32 = 0x668e_33ef;

const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;

const OPTION_GO: u32 = 7;
const OPTION_STRUCTURED_REPLY: u32 = 8;
const OPTION_SET_META_CONTEXT: u32 = 10;

const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_META_CONTEXT: u32 = 4;
const REPLY_ERROR: u32 = 1 << 31;
const REPLY_UNKNOWN_EXPORT: u32 = REPLY_ERROR + 6;

const INFO_EXPORT: u16 = 0;

const COMMAND_READ: u16 = 0;
const COMMAND_BLOCK_STATUS: u16 = 7;

const CHUNK_DONE: u16 = 1;
const CHUNK_NONE: u16 = 0;
const CHUNK_DATA: u16 = 1;
const CHUNK_HOLE: u16 = 2;
const CHUNK_BLOCK_STATUS: u16 = 5;
const CHUNK_ERROR: u16 = 1 << 15;

/// Data or zeros, allocated or not.
const ALLOCATION: &str = "base:allocation";
/// Bytes of an answer to an option, and of an error.
const MOST_TEXT: u32 = 8 << 10;
/// Bytes of one answer about the map: QEMU sends at most a MiB.
const MOST_STATUS: u32 = (1 << 20) + 4;
/// Answers to one option, and pieces of one answer.
const MOST_ANSWERS: usize = 64;
/// Pieces of one read: a server may send a piece for each block.
const MOST_PIECES: usize = 4096;

/// Nothing is allocated there.
pub(crate) const HOLE: u32 = 1;
/// It reads as zeros.
pub(crate) const ZERO: u32 = 2;

/// A piece of a disk in which all blocks have the same flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) length: u32,
    pub(crate) flags: u32,
}

/// A connection to one disk of a server.
#[derive(Debug)]
pub(crate) struct Client<S> {
    stream: S,
    size: u64,
    /// Of the map.
    context: u32,
    cookie: u64,
}

fn malformed(what: &str) -> io::Error {
    let message = format!("the NBD server sends {what}");
    io::Error::new(io::ErrorKind::InvalidData, message)
}

impl<S: Read + Write> Client<S> {
    /// Opens the disk of this name.
    pub(crate) fn open(stream: S, export: &str) -> io::Result<Self> {
        let mut client = Self {
            stream,
            size: 0,
            context: 0,
            cookie: 0,
        };
        client.greet()?;
        client.option(OPTION_STRUCTURED_REPLY, &[])?;
        client.expect_ack(OPTION_STRUCTURED_REPLY)?;
        client.choose_map(export)?;
        client.go(export)?;
        Ok(client)
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Fills the buffer.
    pub(crate) fn read(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let length = u32::try_from(buffer.len()).map_err(io::Error::other)?;
        self.request(COMMAND_READ, at, length)?;
        let mut filled = 0_usize;
        for _ in 0..MOST_PIECES {
            let chunk = self.chunk()?;
            match chunk.kind {
                CHUNK_NONE if chunk.length == 0 => {}
                CHUNK_DATA => {
                    let amount = chunk.length.checked_sub(8);
                    let amount = amount.ok_or_else(|| malformed("a piece without its place"))?;
                    let piece = self.place(at, (&mut filled, amount), buffer.len())?;
                    let piece = buffer.get_mut(piece);
                    let piece = piece.ok_or_else(|| malformed("more than was asked for"))?;
                    self.stream.read_exact(piece)?;
                }
                CHUNK_HOLE if chunk.length == 12 => {
                    let offset = self.u64()?;
                    let amount = self.u32()?;
                    let piece = within(at, offset, (&mut filled, amount), buffer.len())?;
                    let piece = buffer.get_mut(piece);
                    let piece = piece.ok_or_else(|| malformed("more than was asked for"))?;
                    piece.fill(0);
                }
                _ => return Err(malformed("an unknown answer to a read")),
            }
            if chunk.is_last {
                return if filled == buffer.len() {
                    Ok(())
                } else {
                    Err(malformed("less than was asked for"))
                };
            }
        }
        Err(malformed("too many pieces of one answer"))
    }

    fn place(
        &mut self,
        at: u64,
        piece: (&mut usize, u32),
        length: usize,
    ) -> io::Result<std::ops::Range<usize>> {
        let offset = self.u64()?;
        within(at, offset, piece, length)
    }

    /// What is at the beginning of this part of the disk: one piece or more, of at most `length` bytes together.
    pub(crate) fn map(&mut self, at: u64, length: u32) -> io::Result<Vec<Status>> {
        self.request(COMMAND_BLOCK_STATUS, at, length)?;
        let mut found = Vec::new();
        for _ in 0..MOST_ANSWERS {
            let chunk = self.chunk()?;
            match chunk.kind {
                CHUNK_NONE if chunk.length == 0 => {}
                CHUNK_BLOCK_STATUS if chunk.length <= MOST_STATUS => {
                    let payload = self.bytes(chunk.length)?;
                    let (context, entries) = payload
                        .split_first_chunk()
                        .ok_or_else(|| malformed("a map without a name"))?;
                    if u32::from_be_bytes(*context) == self.context {
                        found = statuses(entries, length)?;
                    }
                }
                _ => return Err(malformed("an unknown answer about its map")),
            }
            if chunk.is_last {
                return if found.is_empty() {
                    Err(malformed("an empty map"))
                } else {
                    Ok(found)
                };
            }
        }
        Err(malformed("too many pieces of one answer"))
    }

    fn greet(&mut self) -> io::Result<()> {
        if self.u64()? != MAGIC || self.u64()? != OPTION_MAGIC {
            return Err(malformed("another protocol"));
        }
        let flags = self.u16()?;
        if flags & FIXED_NEWSTYLE == 0 {
            return Err(malformed("an old form of the protocol"));
        }
        let flags = u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES));
        self.stream.write_all(&flags.to_be_bytes())
    }

    fn choose_map(&mut self, export: &str) -> io::Result<()> {
        let mut body = text(export)?;
        body.extend(1_u32.to_be_bytes());
        body.extend(text(ALLOCATION)?);
        self.option(OPTION_SET_META_CONTEXT, &body)?;
        let mut chosen = None;
        for _ in 0..MOST_ANSWERS {
            let (kind, body) = self.answer(OPTION_SET_META_CONTEXT)?;
            match kind {
                REPLY_ACK => {
                    self.context = chosen.ok_or_else(|| malformed("no map of data and zeros"))?;
                    return Ok(());
                }
                REPLY_META_CONTEXT => {
                    let (id, name) = body
                        .split_first_chunk()
                        .ok_or_else(|| malformed("a map without a name"))?;
                    if name == ALLOCATION.as_bytes() {
                        chosen = Some(u32::from_be_bytes(*id));
                    }
                }
                _ => return Err(malformed("an unknown answer about maps")),
            }
        }
        Err(malformed("too many maps"))
    }

    fn go(&mut self, export: &str) -> io::Result<()> {
        let mut body = text(export)?;
        body.extend(0_u16.to_be_bytes());
        self.option(OPTION_GO, &body)?;
        let mut size = None;
        for _ in 0..MOST_ANSWERS {
            let (kind, body) = self.answer(OPTION_GO)?;
            match kind {
                REPLY_ACK => {
                    self.size = size.ok_or_else(|| malformed("no size of its disk"))?;
                    return Ok(());
                }
                REPLY_INFO => {
                    let (info, rest) = body
                        .split_first_chunk()
                        .ok_or_else(|| malformed("an empty answer about its disk"))?;
                    if u16::from_be_bytes(*info) == INFO_EXPORT {
                        let (bytes, _) = rest
                            .split_first_chunk()
                            .ok_or_else(|| malformed("no size of its disk"))?;
                        size = Some(u64::from_be_bytes(*bytes));
                    }
                }
                _ => return Err(malformed("an unknown answer about its disk")),
            }
        }
        Err(malformed("too many answers about its disk"))
    }

    fn option(&mut self, option: u32, body: &[u8]) -> io::Result<()> {
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        let mut message = Vec::with_capacity(16 + body.len());
        message.extend(OPTION_MAGIC.to_be_bytes());
        message.extend(option.to_be_bytes());
        message.extend(length.to_be_bytes());
        message.extend(body);
        self.stream.write_all(&message)
    }

    fn expect_ack(&mut self, option: u32) -> io::Result<()> {
        match self.answer(option)? {
            (REPLY_ACK, _) => Ok(()),
            _ => Err(malformed("an unknown answer to an option")),
        }
    }

    fn answer(&mut self, option: u32) -> io::Result<(u32, Vec<u8>)> {
        if self.u64()? != OPTION_REPLY_MAGIC || self.u32()? != option {
            return Err(malformed("no answer to the option"));
        }
        let kind = self.u32()?;
        let length = self.u32()?;
        if length > MOST_TEXT {
            return Err(malformed("a long answer to an option"));
        }
        let body = self.bytes(length)?;
        match kind {
            REPLY_UNKNOWN_EXPORT => {
                let message = "the NBD server has no such disk";
                Err(io::Error::new(io::ErrorKind::NotFound, message))
            }
            kind if kind & REPLY_ERROR != 0 => {
                let message = format!("the NBD server refuses option {option}: {kind:#x}");
                Err(io::Error::other(message))
            }
            kind => Ok((kind, body)),
        }
    }

    fn request(&mut self, command: u16, at: u64, length: u32) -> io::Result<()> {
        self.cookie = self.cookie.wrapping_add(1);
        let mut message = Vec::with_capacity(28);
        message.extend(REQUEST_MAGIC.to_be_bytes());
        message.extend(0_u16.to_be_bytes());
        message.extend(command.to_be_bytes());
        message.extend(self.cookie.to_be_bytes());
        message.extend(at.to_be_bytes());
        message.extend(length.to_be_bytes());
        self.stream.write_all(&message)
    }

    /// The head of the next piece of the answer; an error of the server is one here.
    fn chunk(&mut self) -> io::Result<Chunk> {
        if self.u32()? != CHUNK_MAGIC {
            return Err(malformed("no structured answer"));
        }
        let flags = self.u16()?;
        let kind = self.u16()?;
        if self.u64()? != self.cookie {
            return Err(malformed("the answer to another request"));
        }
        let length = self.u32()?;
        if kind & CHUNK_ERROR != 0 {
            if length > MOST_TEXT {
                return Err(malformed("a long error"));
            }
            let body = self.bytes(length)?;
            let code = body.first_chunk().map(|code| u32::from_be_bytes(*code));
            let message = format!("the NBD server reports error {}", code.unwrap_or_default());
            return Err(io::Error::other(message));
        }
        Ok(Chunk {
            is_last: flags & CHUNK_DONE != 0,
            kind,
            length,
        })
    }

    /// The caller has bounded the length.
    fn bytes(&mut self, length: u32) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u16(&mut self) -> io::Result<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    fn u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }
}

/// The head of a piece of an answer.
struct Chunk {
    is_last: bool,
    kind: u16,
    length: u32,
}

/// The part of the buffer that a piece at this offset of the disk fills. Pieces come in order: what was not sent
/// would look like zeros.
fn within(
    at: u64,
    offset: u64,
    (filled, amount): (&mut usize, u32),
    length: usize,
) -> io::Result<std::ops::Range<usize>> {
    let place = offset
        .checked_sub(at)
        .and_then(|one| usize::try_from(one).ok());
    if place != Some(*filled) || amount == 0 {
        return Err(malformed("pieces out of order"));
    }
    let amount = usize::try_from(amount).map_err(io::Error::other)?;
    let end = filled.checked_add(amount).filter(|end| *end <= length);
    let end = end.ok_or_else(|| malformed("more than was asked for"))?;
    let begin = std::mem::replace(filled, end);
    Ok(begin..end)
}

/// The entries of a map. The last one may reach further than was asked.
fn statuses(entries: &[u8], length: u32) -> io::Result<Vec<Status>> {
    let (entries, rest) = entries.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(malformed("half an entry of its map"));
    }
    let mut left = length;
    let mut found = Vec::with_capacity(entries.len());
    for [a, b, c, d, flags @ ..] in entries {
        let entry = u32::from_be_bytes([*a, *b, *c, *d]);
        if entry == 0 {
            return Err(malformed("an empty entry of its map"));
        }
        if left == 0 {
            break;
        }
        let length = entry.min(left);
        left -= length;
        found.push(Status {
            length,
            flags: u32::from_be_bytes(*flags),
        });
    }
    Ok(found)
}

/// A name with its length.
fn text(name: &str) -> io::Result<Vec<u8>> {
    let length = u32::try_from(name.len()).map_err(io::Error::other)?;
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend(name.as_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::nbd_server::{Answers, Scripted, disk};

    fn open(answers: Answers) -> io::Result<Client<Scripted>> {
        Client::open(Scripted::new(answers), "root")
    }

    #[test]
    fn disk_is_read_in_pieces_and_holes() {
        let mut client = open(Answers::default()).unwrap();
        let disk = disk();
        assert_eq!(client.size(), 4096);
        let mut buffer = vec![7; 4096];
        client.read(0, &mut buffer).unwrap();
        assert!(buffer == disk);
        let mut buffer = vec![7; 100];
        client.read(1000, &mut buffer).unwrap();
        assert_eq!(buffer, &disk[1000..1100]);
        let map = client.map(0, 4096).unwrap();
        let status = |length, flags| Status { length, flags };
        assert_eq!(
            map,
            [status(1024, 0), status(1024, HOLE | ZERO), status(2048, 0)]
        );
        assert_eq!(client.map(0, 1500).unwrap()[1], status(476, HOLE | ZERO));
    }

    #[test]
    fn missing_disk_is_told_from_other_errors() {
        let missing = Answers {
            is_missing: true,
            ..Answers::default()
        };
        let error = open(missing).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let failing = Answers {
            fails: true,
            ..Answers::default()
        };
        let mut client = open(failing).unwrap();
        let error = client.read(0, &mut [0; 8]).unwrap_err();
        assert!(error.to_string().contains("error 5"), "{error}");
    }

    /// A read that the server does not fill is an error, not zeros.
    #[test]
    fn short_and_shifted_answers_are_errors() {
        for shift in [-1, 1, 4096] {
            let answers = Answers {
                shift,
                ..Answers::default()
            };
            let mut client = open(answers).unwrap();
            let error = client.read(100, &mut [0; 64]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{shift}");
        }
        let short = Answers {
            is_short: true,
            ..Answers::default()
        };
        let mut client = open(short).unwrap();
        assert!(client.read(100, &mut [0; 64]).is_err());
    }

    #[test]
    fn map_has_whole_entries_that_are_not_empty() {
        for (entries, is_valid) in [
            (vec![0, 0, 0, 1, 0, 0, 0, 2], true),
            (vec![0, 0, 0, 0, 0, 0, 0, 2], false),
            (vec![0, 0, 0, 1, 0, 0, 0], false),
        ] {
            assert_eq!(statuses(&entries, 10).is_ok(), is_valid, "{entries:?}");
        }
    }

    proptest! {
        /// Whatever a server sends, the client ends, and allocates what it has bounded.
        #[test]
        fn any_bytes_end_the_client(bytes in prop::collection::vec(any::<u8>(), 0..200), good in 0..120_usize) {
            let stream = Scripted::damaged(good, bytes);
            if let Ok(mut client) = Client::open(stream, "root") {
                let mut buffer = [0; 64];
                let _read = client.read(0, &mut buffer);
                let _map = client.map(0, 64);
            }
        }
    }
}
