//! Why a virtual machine does not run, from what can be seen of it: one home for the reasons.
//!
//! - [`Observed`] is what was looked at, [`References`] what else must be looked at for a spec;
//! - [`TABLE`] is every cause, the deepest first: a missing claim before the pod that waits for it,
//!   the pod before the instance, the instance before the machine;
//! - [`diagnose`] asks each row and puts the answers in order.
//!
//! **Invariants**: pure, no I/O and no clock; a cause names its evidence, each piece an object, a
//! place in it and what stands there; a cause names one next command; what could not be looked at
//! is no evidence. Ids of causes never change their meaning: programs match on them.
//!
//! To add a cause: a function in the file of its subject, a row in `TABLE` above everything that
//! follows from it, a case in `tests/causes.yaml`.

mod cause;
mod observed;
mod verdict;

mod table;

mod components;
mod end;
mod images;
mod instance;
mod machine;
mod nodes;
mod pods;
mod refusals;
mod volumes;

pub use cause::{Cause, Evidence, Finding, Rule, Severity, Turn};
pub use observed::{Installation, Observed, References, references};
pub use table::TABLE;
pub use verdict::{Diagnosis, Stop, Warning, diagnose};
