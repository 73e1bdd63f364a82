//! `port-forward`: local ports, or standard input and output, as ports of a guest.

pub(super) mod copy;
mod run;
mod tcp;
mod udp;

pub(crate) use run::port_forward;
