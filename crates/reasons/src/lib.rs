//! Every reason that Ferrovirt writes to a condition, an event or an error, or reads from Kubernetes.
//!
//! - [`Reason`] is the closed list, [`Reason::ALL`] its order in the documentation;
//! - each reason has a [`Retry`] class, a one-line meaning and a remedy;
//! - errors, conditions, events, `virtctl why` and the troubleshooting page take their texts from here.
//!
//! **Invariants**: names are stable, because programs match on them; names that `KubeVirt` or Kubernetes
//! define are spelled as they spell them; a VMI fails only for a reason of class [`Retry::Permanent`];
//! no dependency on another crate of the workspace.
//!
//! To add a reason: a row in `table.rs`, the golden list in `tests/`, `cargo xtask generate`.

mod declare;
mod reason;
mod row;
mod table;

pub use reason::{UnknownReason, advise, without_advice};
pub use row::{Retry, Row, Subject};
pub use table::Reason;
