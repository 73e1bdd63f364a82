//! Validation of the API's objects, as pure functions: typed objects in, violations out. [`review`]
//! answers the requests of the webhooks with them and with the crate `defaults`.
//!
//! Invariants: no I/O, no clock, no randomness of its own (see [`defaults::Environment`]); a violation
//! names the field, the problem and the remedy; a patch never drops a field that the types do not
//! know.
//!
//! To add a check: write a `fn(&Input) -> Vec<Violation>`, add it to [`checks::ALL`] and add cases
//! under `tests/cases/`. To support a field that was unsupported: delete its row in
//! [`model::unsupported`].

mod request;
pub mod unsupported;

pub mod checks;
mod guest_warnings;
pub mod kinds;
pub mod suspend;
pub mod vm;
pub mod vmi;

pub mod review;
pub mod rules;

pub use review::{review, review_with};
