//! What several components read of a cluster beside the objects that are their business.
//!
//! - [`Configuration`]: the administrator's configuration, as it is now;
//! - [`sizes`]: the instance type and the preference of a VM.
//!
//! **Invariants**: nothing here writes; nothing here decides, which is for `admission`.

mod configuration;
pub mod sizes;

pub use configuration::Configuration;
