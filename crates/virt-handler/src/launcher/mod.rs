//! The launchers of this node's pods: finding them, proving who they are, talking to them.

mod appear;
mod pace;
mod peer;
mod session;

pub use peer::{Peer, PeerError};
pub use session::CallError;
pub(crate) use session::{Link, Session};
