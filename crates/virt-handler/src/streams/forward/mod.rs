//! Port forwarding: connects a websocket to a port of a guest.
//!
//! A frame of a TCP connection is a part of its bytes; a frame of UDP is one datagram.

mod dial;
mod handler;
mod limits;

pub(super) use handler::forward;
pub(super) use limits::OpenForwards;
