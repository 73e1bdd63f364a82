//! The DHCP server of one guest, on the bridge between the guest and its pod.
//!
//! There is one address to give and one client to give it to, so nothing is remembered: every
//! answer follows from the question alone. [`answer`] is pure; [`serve`] owns the socket.
//!
//! The guest is not trusted: a question has a size, answers have a rate, and whatever is malformed
//! or not from the guest is dropped without a word.

mod answer;
mod options;
mod serve;

pub(crate) use serve::serve;
