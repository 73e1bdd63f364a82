//! The vocabulary of all checks and defaults: a [`Rule`] is a named pure function, a [`Violation`] is
//! what a check reports about a field.
//!
//! Invariant: no knowledge of any kind of object.

mod rule;
mod subject;
mod violation;

pub use rule::{Rule, Summary};
pub use subject::Subject;
pub use violation::{Cause, Violation};
