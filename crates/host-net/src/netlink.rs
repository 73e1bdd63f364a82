//! Netlink as such: messages with attributes, and a socket that asks and waits for the answer.
//!
//! The kernel handles a message while it is being sent, so answers are there at once; the time
//! limit only guards against a kernel that never answers. Numbers in messages are in the byte
//! order of the host; those of packet rules are big-endian and encoded where they are used.

use std::{io, os::fd::OwnedFd, time::Duration};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType,
        netlink::SocketAddrNetlink,
        sockopt::{self, Timeout},
    },
};

use crate::NetError;

const HEADER: usize = 16;
/// The kernel's largest piece of a dump, doubled.
const RECEIVE: usize = 64 << 10;
/// No dump of a sane host is longer; beyond it something is wrong.
const MAX_MESSAGES: usize = 1 << 18;
/// Dumps that changed under way are asked for again, so often.
const DUMP_TRIES: usize = 5;
const TIMEOUT: Duration = Duration::from_secs(5);
/// Room for a table with thousands of rules, which travels as one piece.
const SEND_BUFFER: usize = 8 << 20;

pub(crate) const REQUEST: u16 = 0x1;
pub(crate) const ACK: u16 = 0x4;
pub(crate) const EXCLUSIVE: u16 = 0x200;
pub(crate) const REPLACE: u16 = 0x100;
pub(crate) const CREATE: u16 = 0x400;
pub(crate) const APPEND: u16 = 0x800;
pub(crate) const DUMP: u16 = 0x300;

const FLAG_DUMP_INTERRUPTED: u16 = 0x10;
const FLAG_CAPPED: u16 = 0x100;
const FLAG_ACK_ATTRIBUTES: u16 = 0x200;

const KIND_ERROR: u16 = 2;
const KIND_DONE: u16 = 3;
const KIND_OVERRUN: u16 = 4;

const NESTED: u16 = 0x8000;
const KIND_MASK: u16 = 0x3fff;

/// A message under construction.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    bytes: Vec<u8>,
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

    /// With these flags too.
    #[must_use]
    pub(crate) fn asking(mut self, flags: u16) -> Self {
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

    /// A string with its final zero.
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
        // Names and addresses are far below this; rules are split into messages.
        let length = u16::try_from(length).expect("an attribute is far shorter than 64 KiB");
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes[start + 2..start + 4].copy_from_slice(&kind.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).expect("a message is far shorter than 4 GiB");
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// A message from the kernel: its kind and what follows the header.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) kind: u16,
    pub(crate) payload: Vec<u8>,
}

/// The kernel said no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) errno: Errno,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn while_doing(self, doing: impl Into<String>) -> NetError {
        let doing = doing.into();
        if self.errno == Errno::PERM || self.errno == Errno::ACCESS {
            return NetError::NotPermitted { doing };
        }
        NetError::Kernel {
            doing,
            errno: self.errno,
            message: self.message,
        }
    }
}

/// What came of a request: refused by the kernel, or not even heard.
#[derive(Debug)]
pub(crate) enum Failure {
    Refused(Refusal),
    Broken(NetError),
}

impl Failure {
    pub(crate) fn while_doing(self, doing: impl Into<String>) -> NetError {
        match self {
            Self::Refused(refusal) => refusal.while_doing(doing),
            Self::Broken(err) => err,
        }
    }

    pub(crate) fn is(&self, errno: Errno) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.errno == errno)
    }
}

impl From<NetError> for Failure {
    fn from(err: NetError) -> Self {
        Self::Broken(err)
    }
}

/// A request socket; it keeps talking to the namespace it was opened in.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

impl Socket {
    pub(crate) fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let fd = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )?;
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        sockopt::set_socket_timeout(&fd, Timeout::Recv, Some(TIMEOUT))?;
        sockopt::set_socket_timeout(&fd, Timeout::Send, Some(TIMEOUT))?;
        // Both only make errors better and shorter; an old kernel does without.
        switch_on(&fd, libc::NETLINK_EXT_ACK);
        switch_on(&fd, libc::NETLINK_CAP_ACK);
        Ok(Self { fd, sequence: 0 })
    }

    /// Sends one request and gathers its answers up to the acknowledgement or the dump's end.
    pub(crate) fn request(&mut self, message: &Message) -> Result<Vec<Reply>, Failure> {
        for _ in 0..DUMP_TRIES {
            let sequence = self.next_sequence();
            self.send(&message.clone().finish(sequence))?;
            if let Some(replies) = self.gather(sequence)? {
                return Ok(replies);
            }
        }
        Err(NetError::Answer {
            problem: "a list that changes all the time",
        }
        .into())
    }

    /// Sends several messages as one piece and answers with the first refusal and the position of
    /// the message it is about. The last message must ask for an acknowledgement.
    pub(crate) fn batch(
        &mut self,
        messages: Vec<Message>,
    ) -> Result<Option<(usize, Refusal)>, NetError> {
        let first = self.next_sequence();
        let mut bytes = Vec::new();
        let mut last = first;
        for (position, message) in messages.into_iter().enumerate() {
            last = if position == 0 {
                first
            } else {
                self.next_sequence()
            };
            bytes.extend_from_slice(&message.finish(last));
        }
        if bytes.len() > 64 << 10 {
            // Without the capability the plain limit stays, and a piece too long is refused.
            let _ = sockopt::set_socket_send_buffer_size_force(&self.fd, SEND_BUFFER);
        }
        self.send(&bytes)?;
        let answers = self.batch_answers()?;
        let refusal = answers.into_iter().find_map(|(sequence, answer)| {
            let position = usize::try_from(sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
            answer.err().map(|refusal| (position, refusal))
        });
        tracing::trace!(
            bytes = bytes.len(),
            messages = last.wrapping_sub(first) + 1,
            "sent a batch"
        );
        Ok(refusal)
    }

    /// All answers are queued by the time a batch was sent: reads what is there.
    fn batch_answers(&mut self) -> Result<Vec<Answer>, NetError> {
        let mut answers = Vec::new();
        let mut overrun = false;
        for _ in 0..MAX_MESSAGES {
            match self.receive(RecvFlags::DONTWAIT) {
                Ok(pieces) => {
                    answers.extend(pieces.into_iter().filter_map(|piece| {
                        (piece.kind == KIND_ERROR)
                            .then(|| (piece.sequence, acknowledgement(&piece)))
                    }));
                }
                // Too many refusals for the queue: the first ones are in it still.
                Err(NetError::Socket(err)) if is(&err, Errno::NOBUFS) => overrun = true,
                Err(NetError::Socket(err)) if is(&err, Errno::AGAIN) => break,
                Err(err) => return Err(err),
            }
        }
        if answers.is_empty() {
            let problem = if overrun { "too long" } else { "missing" };
            return Err(NetError::Answer { problem });
        }
        Ok(answers)
    }

    /// `None`: the list changed while it was read.
    fn gather(&mut self, sequence: u32) -> Result<Option<Vec<Reply>>, Failure> {
        let mut replies = Vec::new();
        let mut interrupted = false;
        while replies.len() < MAX_MESSAGES {
            for piece in self.receive(RecvFlags::empty())? {
                if piece.sequence != sequence {
                    continue;
                }
                interrupted |= piece.flags & FLAG_DUMP_INTERRUPTED != 0;
                match piece.kind {
                    KIND_ERROR => {
                        acknowledgement(&piece).map_err(Failure::Refused)?;
                        return Ok(Some(replies));
                    }
                    KIND_DONE => return Ok((!interrupted).then_some(replies)),
                    KIND_OVERRUN => {
                        return Err(NetError::Answer {
                            problem: "incomplete",
                        }
                        .into());
                    }
                    kind => replies.push(Reply {
                        kind,
                        payload: piece.payload,
                    }),
                }
            }
        }
        Err(NetError::Answer { problem: "endless" }.into())
    }

    fn send(&self, bytes: &[u8]) -> Result<(), NetError> {
        let sent = rustix::io::retry_on_intr(|| {
            rustix::net::sendto(
                &self.fd,
                bytes,
                SendFlags::empty(),
                &SocketAddrNetlink::new(0, 0),
            )
        });
        match sent {
            Ok(length) if length == bytes.len() => Ok(()),
            Ok(_) => Err(NetError::Answer {
                problem: "to a request cut short",
            }),
            Err(errno) => Err(NetError::Socket(errno.into())),
        }
    }

    fn receive(&self, flags: RecvFlags) -> Result<Vec<Piece>, NetError> {
        let mut buffer = vec![0; RECEIVE];
        let (_, length) = rustix::io::retry_on_intr(|| {
            rustix::net::recv(&self.fd, &mut buffer[..], flags | RecvFlags::TRUNC)
        })
        .map_err(|errno| NetError::Socket(errno.into()))?;
        let bytes = buffer.get(..length).ok_or(NetError::Answer {
            problem: "cut short",
        })?;
        pieces(bytes)
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }
}

fn is(err: &io::Error, errno: Errno) -> bool {
    err.raw_os_error() == Some(errno.raw_os_error())
}

fn switch_on(fd: &OwnedFd, option: libc::c_int) {
    use std::os::fd::AsRawFd as _;
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).expect("an int is short");
    // SAFETY: the pointer and length describe `on`, which outlives the call.
    let done = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_NETLINK,
            option,
            (&raw const on).cast(),
            length,
        )
    };
    if done != 0 {
        tracing::debug!(option, "the kernel lacks a netlink option");
    }
}

/// What came of the message of this number.
type Answer = (u32, Result<(), Refusal>);

/// A received message with its header's fields.
#[derive(Debug)]
struct Piece {
    kind: u16,
    flags: u16,
    sequence: u32,
    payload: Vec<u8>,
}

fn pieces(mut bytes: &[u8]) -> Result<Vec<Piece>, NetError> {
    let mut pieces = Vec::new();
    while let Some((header, _)) = bytes.split_first_chunk::<HEADER>() {
        let length = usize::try_from(u32_at(header, 0)).unwrap_or(usize::MAX);
        let payload = bytes.get(HEADER..length).ok_or(NetError::Answer {
            problem: "malformed",
        })?;
        pieces.push(Piece {
            kind: u16_at(header, 4),
            flags: u16_at(header, 6),
            sequence: u32_at(header, 8),
            payload: payload.to_vec(),
        });
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(pieces)
}

/// Reads an error message; number zero is the acknowledgement.
fn acknowledgement(piece: &Piece) -> Result<(), Refusal> {
    let code = u32_at(&piece.payload, 0).cast_signed();
    if code == 0 {
        return Ok(());
    }
    let mut message = String::new();
    if piece.flags & FLAG_ACK_ATTRIBUTES != 0 {
        // The refused message follows the number: its header alone if capped.
        let refused = if piece.flags & FLAG_CAPPED != 0 {
            HEADER
        } else {
            usize::try_from(u32_at(&piece.payload, 4))
                .unwrap_or(usize::MAX)
                .next_multiple_of(4)
        };
        let rest = piece
            .payload
            .get(refused.saturating_add(4)..)
            .unwrap_or_default();
        message = attributes(rest)
            .find(|(kind, _)| *kind == 1)
            .map(|(_, text)| text_of(text))
            .unwrap_or_default();
    }
    Err(Refusal {
        errno: Errno::from_raw_os_error(code.wrapping_neg()),
        message,
    })
}

/// The attributes in these bytes, up to the first that does not fit.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(bytes.get(..2).map(|_| u16_at(bytes, 0))?);
        let value = bytes.get(4..length)?;
        let kind = u16_at(bytes, 2) & KIND_MASK;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// A string up to its final zero.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// Zero where the bytes end early: the kernel sends whole structures.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let field = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    field.map_or(0, |field| u32::from_ne_bytes(*field))
}

pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    let field = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    field.map_or(0, |field| u16::from_ne_bytes(*field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_nest_and_are_padded() {
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
    fn broken_bytes_end_the_list_or_are_an_error() {
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
        assert!(pieces(&short).is_err(), "a length below its header");
        short[0] = 200;
        assert!(pieces(&short).is_err(), "a length past the end");
        assert!(pieces(&[1, 2, 3]).unwrap().is_empty());
    }

    #[test]
    fn refusals_carry_the_sentence_of_the_kernel() {
        let mut payload = (-17_i32).to_ne_bytes().to_vec();
        payload.extend_from_slice(&[0; HEADER]);
        let mut text = Message { bytes: Vec::new() };
        text.text(1, "already here");
        payload.extend_from_slice(&text.bytes);
        let flags = FLAG_CAPPED | FLAG_ACK_ATTRIBUTES;
        let piece = Piece {
            kind: KIND_ERROR,
            flags,
            sequence: 1,
            payload,
        };
        let refusal = acknowledgement(&piece).unwrap_err();
        assert_eq!(
            refusal,
            Refusal {
                errno: Errno::EXIST,
                message: "already here".to_owned()
            }
        );
    }
}
