//! The DHCP server of one guest, on the bridge between the guest and its pod.
//!
//! There is one address and one client, so the server is stateless: every reply follows from the
//! request alone. [`reply`] is pure; [`serve`] owns the socket.
//!
//! The guest is not trusted: requests have a bounded size, replies have a bounded rate, and packets
//! that are malformed or not from the guest are dropped silently.

mod options;
mod reply;
mod serve;

pub(crate) use serve::serve;
