//! Defaults and checks of the API, as pure functions: typed objects in, typed objects or
//! violations out, and [`review`] around them for the webhooks.
//!
//! Invariants: no I/O, no clock, no randomness of its own (see [`Surroundings`]); a violation
//! names the field, what is wrong and what would be right; a patch never drops a field that the
//! types do not know.
//!
//! To add a check: write a `fn(&Input) -> Vec<Violation>`, put it into [`checks::ALL`], add a row to
//! the tests. To support a field that this version cannot run yet, delete its row in [`model::unsupported`].

pub mod cluster_config;
pub mod gates;
pub mod legacy_config;
pub mod rules;
pub mod violation;

pub mod checks;
pub mod defaults;
pub mod instancetype;
pub mod kinds;
pub mod presets;
pub mod unsupported;
pub mod vm;
pub mod vmi;

pub mod merge;
pub mod review;

pub use cluster_config::ClusterConfig;
pub use defaults::Surroundings;
pub use review::{review, review_among};
pub use violation::{Cause, Violation};
