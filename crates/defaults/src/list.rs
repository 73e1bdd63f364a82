//! The list of all rules of this crate.

use validation::{Rule, Summary};

use crate::{vm, vmi};

/// All rules of this crate.
pub fn summaries() -> impl Iterator<Item = Summary> {
    let of_vm = vm::ALL.iter().map(Rule::summary);
    let of_spec = vmi::SPEC.iter().map(Rule::summary);
    let of_object = vmi::OBJECT.iter().map(Rule::summary);
    of_vm.chain(of_spec).chain(of_object)
}
