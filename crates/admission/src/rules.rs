//! The list of what the API checks and fills in: one row per rule, beside its function.
//!
//! Invariants: ids are unique; every violation carries the id of the rule that found it; every row
//! has cases under `tests/cases/` or `tests/kinds/`, at least one that the rule lets pass and one
//! that it does not (for a default, and for what instance types and preferences set: one that it
//! fills in and one that it leaves alone). `tests/rules.rs` counts all of them against [`all`].

use crate::{checks, defaults, instancetype, kinds, presets, violation::Violation, vm, vmi};

/// One rule: what it is called, where it stands in the reference, what it says, what carries it
/// out. `C` is the type of the function, which differs by what a rule looks at.
#[derive(Clone, Copy, Debug)]
pub struct Rule<C> {
    pub id: &'static str,
    /// Of the specification of checks or defaults: `1.2`, or `D3` for section 3 of the defaults.
    pub section: &'static str,
    /// One line: what is wrong, or what is filled in.
    pub says: &'static str,
    pub apply: C,
}

/// A rule without its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    pub id: &'static str,
    pub section: &'static str,
    pub says: &'static str,
}

impl<C> Rule<C> {
    pub const fn new(
        id: &'static str,
        section: &'static str,
        says: &'static str,
        apply: C,
    ) -> Self {
        Self {
            id,
            section,
            says,
            apply,
        }
    }

    pub const fn summary(&self) -> Summary {
        Summary {
            id: self.id,
            section: self.section,
            says: self.says,
        }
    }

    /// Signs what this rule found.
    pub(crate) fn sign(&self, found: Vec<Violation>) -> impl Iterator<Item = Violation> + use<C> {
        let id = self.id;
        found.into_iter().map(move |violation| violation.of(id))
    }
}

/// Every rule there is, of every kind.
pub fn all() -> Vec<Summary> {
    let checks = checks::ALL.iter().map(Rule::summary);
    let updates = vmi::ALL.iter().map(Rule::summary);
    let vms = vm::ALL.iter().map(Rule::summary);
    checks
        .chain(updates)
        .chain(vms)
        .chain(defaults::summaries())
        .chain(kinds::rules())
        .chain([presets::summary()])
        .chain(instancetype::summaries())
        .collect()
}
