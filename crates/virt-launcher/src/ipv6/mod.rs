//! The router advertisements and the `DHCPv6` server of one guest.
//!
//! A guest starts `DHCPv6` when a router says so, and learns its default route from nobody else. Sending
//! advertisements by a socket needs a capability, which the pod lacks. So the server has a tap of its own
//! on the bridge between the guest and its pod, and handles whole frames.
//!
//! As the DHCP server for IPv4 it is stateless: every reply follows from the request alone. [`answer`],
//! [`advertisement`], [`dhcp`] and [`frame`] are pure; [`serve`] and [`tap`] do the work.
//!
//! The guest is not trusted: the kernel passes frames of the guest alone, their number and the number of
//! replies are limited, and what is malformed is dropped silently.

mod advertisement;
mod answer;
mod dhcp;
mod frame;
mod options;
mod serve;
mod settings;
mod tap;

pub(crate) use serve::serve;
