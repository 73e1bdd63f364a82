//! References to other objects by group, kind and name.

use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use kubevirt_api::{GROUP, VirtualMachine};
use validation::Violation;

use super::kind::Problem;

/// Whether a reference has this group and kind.
pub(super) fn is(reference: &TypedLocalObjectReference, group: &str, kind: &str) -> bool {
    reference.api_group.as_deref().unwrap_or_default() == group && reference.kind == kind
}

pub(super) fn same(a: &TypedLocalObjectReference, b: &TypedLocalObjectReference) -> bool {
    is(a, b.api_group.as_deref().unwrap_or_default(), &b.kind) && a.name == b.name
}

/// Problems of a group that is not that of VMs.
pub(super) fn group_of_vm(field: &str, reference: &TypedLocalObjectReference) -> Vec<Problem> {
    let field = format!("{field}.apiGroup");
    match reference.api_group.as_deref() {
        Some(GROUP) => Vec::new(),
        Some(other) => {
            let detail = format!("{other:?} is not supported; use {GROUP}");
            vec![Violation::invalid(field, detail).into()]
        }
        None => vec![Violation::not_found(field, format!("missing; use {GROUP}")).into()],
    }
}

/// Problems of a kind that is not VM.
pub(super) fn kind_of_vm(field: &str, reference: &TypedLocalObjectReference) -> Vec<Problem> {
    if reference.kind == VirtualMachine::KIND {
        return Vec::new();
    }
    let detail = format!(
        "{:?} is not supported; use {}",
        reference.kind,
        VirtualMachine::KIND
    );
    vec![Violation::invalid(format!("{field}.kind"), detail).into()]
}
