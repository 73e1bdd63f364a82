//! Netlink: messages with attributes, and a socket for requests and their responses.
//!
//! The kernel handles a message while it is being sent, so responses are there at once; the time
//! limit only guards against a kernel that never responds. Numbers in messages are in host byte
//! order; those of packet rules are big-endian and encoded by the caller.

mod message;
mod parse;
mod socket;

pub(crate) use message::{ACK, APPEND, CREATE, DUMP, EXCLUSIVE, Message, REPLACE};
pub(crate) use parse::{Refusal, attributes, text_of, u32_at};
pub(crate) use socket::{Failure, Socket};

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
