//! Consoles, screens, ports and verbs of this node's guests, and uploads into pods of this node, served to
//! `virt-api`.
//!
//! The paths end like those of the aggregated API. A caller must authenticate as `virt-api` by
//! certificate; `virt-api` has authorised the user. A new stream to a device closes the previous one.
//! A USB device takes a free port of the guest.

mod active_streams;
mod copy;
mod forward;
mod open;
mod response;
mod router;
#[cfg(test)]
mod tests;
mod upload;
mod verbs;
mod vsock;

pub(crate) use router::{StreamsState, router};
