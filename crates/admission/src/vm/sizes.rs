//! What instance type and preference of a VM make of its template, and what they demand of it.

use std::collections::BTreeMap;

use kubevirt_api::vmi::VirtualMachineInstanceSpec;

use super::Input;
use crate::{
    Violation,
    checks::Origin,
    defaults,
    instancetype::{
        self, Choice, Target, conflicts as clashes, requirements as demands, topology::Layout,
    },
};

/// Where the vCPUs that cannot be spread are written.
const VCPUS: &str = "instancetype.spec.cpu.guest";

/// A template as the instance it will be.
#[derive(Debug)]
pub(super) struct Completed {
    pub(super) spec: VirtualMachineInstanceSpec,
    pub(super) annotations: BTreeMap<String, String>,
}

/// The template with all that completes it. Nothing when there is no template, or when what
/// would complete it was not found: then its gaps are no faults of the author.
pub(super) fn completed(input: &Input<'_>) -> Option<Result<Completed, Vec<Violation>>> {
    let mut spec = input.template()?.clone();
    let vm = &input.vm.spec;
    let is_unknown = (vm.instancetype.is_some() && input.found.instancetype.is_none())
        || (vm.preference.is_some() && input.found.preference.is_none());
    if is_unknown {
        return None;
    }
    let mut annotations = annotations(input);
    let path = Origin::TemplateOfVm.path();
    let mut target = Target {
        spec: &mut spec,
        annotations: &mut annotations,
    };
    let choice = choice(input);
    let is_chosen = choice.instancetype.is_some() || choice.preference.is_some();
    let applied = if is_chosen {
        instancetype::complete(&mut target, choice, input.config, path)
    } else {
        Ok(())
    };
    let filled =
        applied.and_then(|()| defaults::vmi::set_spec(&mut spec, input.config, input.around, path));
    Some(filled.map(|()| Completed { spec, annotations }))
}

fn choice<'a>(input: &Input<'a>) -> Choice<'a> {
    Choice {
        instancetype: input.found.instancetype,
        preference: input.found.preference,
    }
}

fn annotations(input: &Input<'_>) -> BTreeMap<String, String> {
    let metadata = input.vm.spec.template.metadata.as_ref();
    let own = metadata.and_then(|metadata| metadata.annotations.clone());
    own.unwrap_or_default()
}

pub(super) fn spread(input: &Input<'_>) -> Vec<Violation> {
    let Some(size) = input.found.instancetype else {
        return Vec::new();
    };
    let fault = Layout::of(input.found.preference).fault(size.cpu.guest);
    let violation = fault.map(|detail| Violation::invalid(VCPUS, detail));
    violation.into_iter().collect()
}

pub(super) fn conflicts(input: &Input<'_>) -> Vec<Violation> {
    match (input.template(), input.found.instancetype) {
        (Some(spec), Some(size)) => clashes::find(spec, &annotations(input), size),
        _ => Vec::new(),
    }
}

/// An unknown instance type may give what is demanded.
pub(super) fn requirements(input: &Input<'_>) -> Vec<Violation> {
    let preference = input.found.preference;
    if preference.is_none_or(|preference| preference.requirements.is_none()) {
        return Vec::new();
    }
    match completed(input) {
        Some(Ok(completed)) => demands::unmet(&completed.spec, choice(input)),
        Some(Err(_)) | None => Vec::new(),
    }
}
