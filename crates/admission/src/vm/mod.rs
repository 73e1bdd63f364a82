//! Checks of a `VirtualMachine`.
//!
//! The template of a VM is completed by all defaults and then checked like a VMI.

mod input;

mod busy;
mod data_volumes;
mod matchers;
mod run_state;
mod sizes;
mod template;
mod volume_requests;

mod list;
mod warnings;

pub use input::{Check, Found, Input};
pub use list::{ALL, validate, validate_status};
pub use warnings::warnings;
