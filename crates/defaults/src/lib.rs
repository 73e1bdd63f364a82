//! Default values: what the mutating webhook fills into VMs and VMIs, and what the VM controller
//! fills into the VMI that it creates. Each function is one rule and never changes a field that is
//! already set.
//!
//! - [`vm`], [`vmi`]: the lists of rules, in order;
//! - [`controller`]: devices and identity of a VMI that is made of a template;
//! - [`template`]: a template completed by default devices, instance type and preference;
//! - [`expand()`]: a VM with instance type and preference written out;
//! - [`source`]: the architecture that a VM's disk is made for.
//!
//! Invariants: no clock, no randomness of its own (see [`Environment`]); defaults are idempotent.

mod carry_over;
mod environment;

mod devices;
mod features;
pub mod growth;
mod machine;
mod network;
pub mod source;

pub mod controller;
pub mod vm;
pub mod vmi;

mod expand;
pub mod template;

mod list;

pub use carry_over::{carry_over, write_fractions_as_text};
pub use environment::Environment;
pub use expand::expand;
pub use list::summaries;
