//! Devices that pods ask for as resources: the kubelet's side of the device-plugin protocol.
//!
//! Plugins register over `kubelet.sock`; what they offer becomes capacity of the Node; containers
//! are given devices by number, and the plugin says what that means for them ([`Given`]). A plugin
//! that ends keeps its resource on the Node, with nothing to allocate, until it registers again.
//!
//! **Invariants**: nothing is given twice: what a pod was given is in a file of the pod's directory
//! before anybody uses it, and is read before the first plugin is heard after a restart. Nothing
//! here knows what a device is for.

mod book;
mod given;
mod plugins;

pub(crate) use book::{Amounts, RECORD_FILE};
pub(crate) use given::{Given, wanted};
pub(crate) use plugins::Devices;
