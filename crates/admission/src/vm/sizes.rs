//! Checks of a VM against its instance type and preference.

use instancetype::{conflicts, requirements, topology::Layout};
use validation::Violation;

use super::{
    input::Input,
    template::{annotations, choice, completed},
};

/// Field to report for vCPUs that cannot be spread.
const VCPUS: &str = "instancetype.spec.cpu.guest";

pub(super) fn check_spread(input: &Input<'_>) -> Vec<Violation> {
    let Some(size) = input.found.instancetype else {
        return Vec::new();
    };
    let problem = Layout::of(input.found.preference).problem(size.cpu.guest);
    let violation = problem.map(|detail| Violation::invalid(VCPUS, detail));
    violation.into_iter().collect()
}

pub(super) fn check_conflicts(input: &Input<'_>) -> Vec<Violation> {
    match (input.template(), input.found.instancetype) {
        (Some(spec), Some(size)) => conflicts::find(spec, &annotations(input), size),
        _ => Vec::new(),
    }
}

/// Not checked while the instance type is unknown: it may satisfy the requirements.
pub(super) fn check_requirements(input: &Input<'_>) -> Vec<Violation> {
    let preference = input.found.preference;
    if preference.is_none_or(|preference| preference.requirements.is_none()) {
        return Vec::new();
    }
    match completed(input) {
        Some(Ok(completed)) => requirements::unmet(&completed.spec, choice(input)),
        Some(Err(_)) | None => Vec::new(),
    }
}
