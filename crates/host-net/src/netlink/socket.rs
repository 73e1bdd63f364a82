//! The request socket.

use std::{io, os::fd::OwnedFd, time::Duration};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType,
        netlink::SocketAddrNetlink,
        sockopt::{self, Timeout},
    },
};

use super::{
    Message,
    parse::{
        FLAG_DUMP_INTERRUPTED, KIND_DONE, KIND_ERROR, KIND_OVERRUN, Received, Refusal,
        acknowledgement, received_messages,
    },
};
use crate::NetError;

/// Twice the kernel's largest part of a dump.
const RECEIVE_BUFFER: usize = 64 << 10;
/// Upper bound on the messages of one dump.
const MAX_MESSAGES: usize = 1 << 18;
/// Attempts at a dump that is interrupted by changes.
const DUMP_TRIES: usize = 5;
const TIMEOUT: Duration = Duration::from_secs(5);
/// Enough for a table with thousands of rules, which is sent as one message.
const SEND_BUFFER: usize = 8 << 20;
/// Batches above this size need the larger send buffer.
const LARGE_BATCH: usize = 64 << 10;

/// A message from the kernel: its kind and its payload after the header.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) kind: u16,
    pub(crate) payload: Vec<u8>,
}

/// Why a request failed: the kernel refused it, or communication broke.
#[derive(Debug)]
pub(crate) enum Failure {
    Refused(Refusal),
    Broken(NetError),
}

impl Failure {
    pub(crate) fn during(self, operation: impl Into<String>) -> NetError {
        match self {
            Self::Refused(refusal) => refusal.during(operation),
            Self::Broken(error) => error,
        }
    }

    pub(crate) fn is(&self, errno: Errno) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.errno == errno)
    }
}

impl From<NetError> for Failure {
    fn from(error: NetError) -> Self {
        Self::Broken(error)
    }
}

/// A request socket, bound to the namespace it was opened in.
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
        // Both only improve error messages; old kernels lack them.
        enable(&fd, libc::NETLINK_EXT_ACK);
        enable(&fd, libc::NETLINK_CAP_ACK);
        Ok(Self { fd, sequence: 0 })
    }

    /// Sends one request and collects its responses up to the acknowledgement or the end of the dump.
    pub(crate) fn request(&mut self, message: &Message) -> Result<Vec<Reply>, Failure> {
        for _ in 0..DUMP_TRIES {
            let sequence = self.next_sequence();
            self.send(&message.clone().finish(sequence))?;
            if let Some(replies) = self.collect(sequence)? {
                return Ok(replies);
            }
        }
        Err(NetError::Response {
            problem: "a list that keeps changing",
        }
        .into())
    }

    /// Sends several messages in one datagram; returns the first refusal with the position of its
    /// message. The last message must request an acknowledgement.
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
        if bytes.len() > LARGE_BATCH {
            // Without the capability the default limit stays, and the kernel refuses a larger batch.
            let _ = sockopt::set_socket_send_buffer_size_force(&self.fd, SEND_BUFFER);
        }
        self.send(&bytes)?;
        let results = self.batch_results()?;
        let refusal = results
            .into_iter()
            .find_map(|MessageResult { sequence, result }| {
                let position = usize::try_from(sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
                result.err().map(|refusal| (position, refusal))
            });
        tracing::trace!(
            bytes = bytes.len(),
            messages = last.wrapping_sub(first) + 1,
            "sent a batch"
        );
        Ok(refusal)
    }

    /// Reads the results of a batch, which are all queued once it was sent.
    fn batch_results(&mut self) -> Result<Vec<MessageResult>, NetError> {
        let mut results = Vec::new();
        let mut overrun = false;
        for _ in 0..MAX_MESSAGES {
            match self.receive(RecvFlags::DONTWAIT) {
                Ok(messages) => {
                    let errors = messages.iter().filter(|message| message.kind == KIND_ERROR);
                    results.extend(errors.map(|message| MessageResult {
                        sequence: message.sequence,
                        result: acknowledgement(message),
                    }));
                }
                // The queue overflowed with refusals: it still holds the first ones.
                Err(NetError::Socket(error)) if is(&error, Errno::NOBUFS) => overrun = true,
                Err(NetError::Socket(error)) if is(&error, Errno::AGAIN) => break,
                Err(error) => return Err(error),
            }
        }
        if results.is_empty() {
            let problem = if overrun { "too long" } else { "missing" };
            return Err(NetError::Response { problem });
        }
        Ok(results)
    }

    /// `None` if the list changed while it was read.
    fn collect(&mut self, sequence: u32) -> Result<Option<Vec<Reply>>, Failure> {
        let mut replies = Vec::new();
        let mut interrupted = false;
        while replies.len() < MAX_MESSAGES {
            for message in self.receive(RecvFlags::empty())? {
                if message.sequence != sequence {
                    continue;
                }
                interrupted |= message.flags & FLAG_DUMP_INTERRUPTED != 0;
                match message.kind {
                    KIND_ERROR => {
                        acknowledgement(&message).map_err(Failure::Refused)?;
                        return Ok(Some(replies));
                    }
                    KIND_DONE => return Ok((!interrupted).then_some(replies)),
                    KIND_OVERRUN => {
                        return Err(NetError::Response {
                            problem: "incomplete",
                        }
                        .into());
                    }
                    kind => replies.push(Reply {
                        kind,
                        payload: message.payload,
                    }),
                }
            }
        }
        Err(NetError::Response { problem: "endless" }.into())
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
            Ok(_) => Err(NetError::Response {
                problem: "missing: the request was truncated",
            }),
            Err(errno) => Err(NetError::Socket(errno.into())),
        }
    }

    fn receive(&self, flags: RecvFlags) -> Result<Vec<Received>, NetError> {
        let mut buffer = vec![0; RECEIVE_BUFFER];
        let (_, length) = rustix::io::retry_on_intr(|| {
            rustix::net::recv(&self.fd, &mut buffer[..], flags | RecvFlags::TRUNC)
        })
        .map_err(|errno| NetError::Socket(errno.into()))?;
        let bytes = buffer.get(..length).ok_or(NetError::Response {
            problem: "truncated",
        })?;
        received_messages(bytes)
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

fn enable(fd: &OwnedFd, option: libc::c_int) {
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
        tracing::debug!(option, "the kernel does not support a netlink option");
    }
}

/// The kernel's result for the message of that sequence number.
#[derive(Debug)]
struct MessageResult {
    sequence: u32,
    result: Result<(), Refusal>,
}
