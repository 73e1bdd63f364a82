//! The template of a VM, checked as the VMI it will become.

use std::collections::BTreeMap;

use defaults::{template::complete, vmi::set_spec};
use instancetype::{Choice, TEMPLATE_PATH, Target};
use kubevirt_api::vmi::VirtualMachineInstanceSpec;
use validation::Violation;

use super::input::Input;
use crate::checks::{self, Origin};

pub(super) fn is_given(input: &Input<'_>) -> Vec<Violation> {
    let template = &input.vm.spec.template;
    if template.spec.is_some() {
        return Vec::new();
    }
    let field = match template.metadata {
        Some(_) => "spec.template.spec",
        None => "spec.template",
    };
    let detail = "missing; describe the guest in spec.template.spec, at least domain";
    vec![Violation::required(field, detail)]
}

/// Violations of the template, as those of the VMI.
pub(super) fn violations(input: &Input<'_>) -> Vec<Violation> {
    let completed = match completed(input) {
        Some(Ok(completed)) => completed,
        Some(Err(found)) => return found,
        None => return Vec::new(),
    };
    let none = BTreeMap::new();
    let metadata = input.vm.spec.template.metadata.as_ref();
    let labels = metadata.and_then(|metadata| metadata.labels.as_ref());
    checks::run(&checks::Input {
        spec: &completed.spec,
        labels: labels.unwrap_or(&none),
        annotations: &completed.annotations,
        config: input.config,
        origin: Origin::VmTemplate,
        occasion: input.occasion(),
        requester: input.requester,
    })
}

/// A template as the VMI it will become.
#[derive(Debug)]
pub(super) struct Completed {
    pub(super) spec: VirtualMachineInstanceSpec,
    pub(super) annotations: BTreeMap<String, String>,
}

/// The template with instance type, preference and defaults. `None` without a template, and when
/// instance type or preference do not exist: then missing fields are not the author's mistake.
pub(super) fn completed(input: &Input<'_>) -> Option<Result<Completed, Vec<Violation>>> {
    let mut spec = input.template()?.clone();
    let vm = &input.vm.spec;
    let is_unknown = (vm.instancetype.is_some() && input.found.instancetype.is_none())
        || (vm.preference.is_some() && input.found.preference.is_none());
    if is_unknown {
        return None;
    }
    let mut annotations = annotations(input);
    let mut target = Target {
        spec: &mut spec,
        annotations: &mut annotations,
    };
    let choice = choice(input);
    let is_chosen = choice.instancetype.is_some() || choice.preference.is_some();
    let applied = if is_chosen {
        complete(&mut target, choice, input.config, TEMPLATE_PATH)
    } else {
        Ok(())
    };
    let filled = applied.and_then(|()| set_spec(&mut spec, input.config, input.env, TEMPLATE_PATH));
    Some(filled.map(|()| Completed { spec, annotations }))
}

pub(super) fn choice<'a>(input: &Input<'a>) -> Choice<'a> {
    Choice {
        instancetype: input.found.instancetype,
        preference: input.found.preference,
    }
}

pub(super) fn annotations(input: &Input<'_>) -> BTreeMap<String, String> {
    let metadata = input.vm.spec.template.metadata.as_ref();
    let own = metadata.and_then(|metadata| metadata.annotations.clone());
    own.unwrap_or_default()
}
