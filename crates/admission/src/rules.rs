//! The list of all checks and defaults.
//!
//! Invariants: ids are unique; every violation names the rule that reports it; every rule has cases
//! under `tests/cases/` or `tests/kinds/`, at least one that it accepts and one that it refuses (for
//! a default, an instance type or a preference: one that it fills in and one that it leaves
//! unchanged). `tests/integration/rules.rs` compares the cases with [`all`].

use validation::{Rule, Summary};

use crate::{checks, kinds, vm, vmi};

/// All rules of all kinds.
pub fn all() -> Vec<Summary> {
    let checks = checks::ALL.iter().map(Rule::summary);
    let updates = vmi::ALL.iter().map(Rule::summary);
    let vms = vm::ALL.iter().map(Rule::summary);
    checks
        .chain(updates)
        .chain(vms)
        .chain(defaults::summaries())
        .chain(kinds::rules())
        .chain(instancetype::summaries())
        .collect()
}
