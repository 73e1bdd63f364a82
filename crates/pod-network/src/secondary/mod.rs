//! Secondary networks of pods, as network attachment definitions describe them.
//!
//! - [`definition`] parses a definition: pure;
//! - [`addresses`] leases addresses of a network's range;
//! - [`attach`] gives a pod an interface on a network, and takes it away.
//!
//! **Invariants**: a setting is carried out or refused with its name, never ignored. A bridge or link that
//! another program made is used, and never changed or removed. What this crate made carries an alias, by
//! which it is found again.

mod addresses;
mod attach;
mod definition;

pub(crate) use addresses::Addresses;
pub use attach::Attachment;
pub(crate) use attach::{Attached, is_bridge, is_of_pod, remove_macvlan, remove_port};
pub(crate) use definition::NetworkRoute;
pub use definition::{Definition, DefinitionError};
