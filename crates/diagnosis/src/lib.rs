//! Why a virtual machine does not run, derived from the observed objects.
//!
//! - [`Observed`] holds the objects that were read, [`References`] the other objects that a spec names;
//! - [`TABLE`] lists every cause, the deepest first: a missing claim before the pod that waits for it,
//!   the pod before the VMI, the VMI before the VM;
//! - [`diagnose`] evaluates every row and orders the results.
//!
//! **Invariants**: pure, no I/O and no clock; a cause names its evidence, each piece an object, a field
//! and its value; a cause names one next command; a cause that follows from a [`reasons::Reason`] names
//! it and its remedy; an object that could not be read is no evidence. Ids of causes are stable, because
//! programs match on them.
//!
//! To add a cause: a function in the file of its subject, a row in `TABLE` above all causes that follow
//! from it, a case in `tests/causes.yaml`.

mod cause;
mod diagnosis;
mod observed;

mod table;

mod backup_restores;
mod backups;
mod components;
mod deletion;
mod ending;
mod images;
mod log;
mod moves;
mod nodes;
mod paused;
mod pod_images;
mod pods;
mod refusals;
mod vm;
mod vmi;
mod volumes;

pub use cause::{Cause, Evidence, Finding, Rule, Severity, When};
pub use diagnosis::{Diagnosis, PathEntry, Warning, diagnose};
pub use observed::{Installation, Observed, References, references};
pub use table::TABLE;
