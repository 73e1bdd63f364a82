//! The launchers of this node's pods: finding, authenticating and calling them.

mod answer;
mod connection;
mod container;
mod file_watch;
mod peer;
mod rate_limit;
mod session;
mod usage;

pub(crate) use container::Right;
pub(crate) use peer::check_peer;
pub use peer::{Peer, PeerError};
pub use session::CallError;
pub(crate) use session::{Link, Session};
