//! gRPC over unix sockets and connections of guests, with HTTP/2 by hyper and messages by prost.
//!
//! Only a subset is implemented: unary and server-streaming calls, without compression and metadata.
//!
//! **Invariants**: no message is larger than [`MAX_MESSAGE`], or the [`Limits`] of its connection, and no memory is allocated for a length
//! beyond it; every unary call has a time limit; this crate knows no specific service.

mod client;
mod frame;
mod server;
mod socket;
mod status;

pub use client::{Client, Streaming};
pub use frame::{MAX_MESSAGE, decode, encode};
pub use server::{Limits, Reply, Service, serve, serve_connection, unary, unimplemented};
pub use socket::{bind, connect};
pub use status::{Code, Status};
