//! Templates of VMs: parameters are valid, used and produce a VM.
//!
//! A generated value is replaced by repetitions of the first character of its pattern, so that the
//! same template always has the same result.
//!
//! `vm-template` has the rules of parameters and their patterns.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::names::{is_label, is_subdomain};
use kubevirt_api::{
    VirtualMachine,
    template::{Parameter, VirtualMachineTemplate, VirtualMachineTemplateRequest},
};
use validation::{Rule, Subject, Violation};
use vm_template::{
    MAX_GENERATED, MAX_SIZE, Reference, SubstitutionError, example, is_generated, is_name, is_open,
    references, substitute,
};

use super::{
    kind::{Check, Kind, Problem, TypedRequest},
    refusals::requires_gate,
};

type Request<'a> = TypedRequest<'a, VirtualMachineTemplate>;

const GATE: &str = "Template";

impl Kind for VirtualMachineTemplate {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "template.gate",
            Subject::Template,
            "templates need the gate Template",
            |request| requires_gate(request, GATE),
        ),
        Rule::new(
            "template.parameter-names",
            Subject::Template,
            "parameters have unique names",
            names,
        ),
        Rule::new(
            "template.generated",
            Subject::Template,
            "generated parameters have a valid pattern",
            generated,
        ),
        Rule::new(
            "template.references",
            Subject::Template,
            "the VM references existing parameters",
            known_references,
        ),
        Rule::new(
            "template.machine",
            Subject::Template,
            "the VM is valid after substitution of its parameters",
            vm,
        ),
    ];

    fn warnings(request: &TypedRequest<'_, Self>) -> Vec<String> {
        let spec = &request.new.spec;
        let used: BTreeSet<&str> = references(request.new)
            .into_iter()
            .map(|one| one.name)
            .collect();
        let numbered = || spec.parameters.iter().enumerate();
        let is_unused = |one: &Parameter| is_name(&one.name) && !used.contains(one.name.as_str());
        let unused = numbered().filter(|(_, one)| is_unused(one));
        let unused = unused.map(|(i, one)| {
            format!(
                "spec.parameters[{i}].name: nothing references {}; use ${{{0}}} in the VM, or remove \
                 the parameter",
                one.name
            )
        });
        let open = numbered().filter(|(_, one)| is_open(one));
        let open = open.map(|(i, one)| {
            format!(
                "spec.parameters[{i}]: {} has no value yet, so the VM was not checked with all \
                 parameters substituted",
                one.name
            )
        });
        unused.chain(open).collect()
    }
}

impl Kind for VirtualMachineTemplateRequest {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "template-request.gate",
            Subject::Template,
            "requests for templates need the gate Template",
            |request| requires_gate(request, GATE),
        ),
        Rule::new(
            "template-request.source",
            Subject::Template,
            "the VM of a request has a name that VMs and namespaces can have",
            source,
        ),
    ];
}

/// Both become parts of paths. The webhooks of virt-api ask whether the user may copy that VM.
fn source(request: &TypedRequest<'_, VirtualMachineTemplateRequest>) -> Vec<Problem> {
    let reference = &request.new.spec.virtual_machine_ref;
    let namespace = reference.namespace.as_deref();
    let name = reference.name.as_deref();
    let mut problems = Vec::new();
    if namespace.is_some_and(|namespace| !is_label(namespace)) {
        let field = "spec.virtualMachineRef.namespace";
        let detail = "no namespace can have this name; give the namespace of the VM";
        problems.push(Violation::invalid(field, detail).into());
    }
    if name.is_some_and(|name| !is_subdomain(name)) {
        let field = "spec.virtualMachineRef.name";
        let detail = "no VM can have this name; give the name of the VM";
        problems.push(Violation::invalid(field, detail).into());
    }
    problems
}

fn names(request: &Request<'_>) -> Vec<Problem> {
    let mut known = BTreeSet::new();
    let parameters = request.new.spec.parameters.iter().enumerate();
    let problems = parameters.filter_map(|(i, one)| {
        let field = format!("spec.parameters[{i}].name");
        if !is_name(&one.name) {
            let detail = "give a name of letters, digits and _, such as NAME";
            return Some(Violation::invalid(field, detail).into());
        }
        let is_new = known.insert(&one.name);
        (!is_new).then(|| Violation::duplicate(field, &one.name).into())
    });
    problems.collect()
}

fn generated(request: &Request<'_>) -> Vec<Problem> {
    let parameters = request.new.spec.parameters.iter().enumerate();
    let generated = parameters.filter(|(_, one)| is_generated(one));
    let mut budget = MAX_GENERATED;
    let problems = generated.filter_map(|(i, one)| {
        let field = format!("spec.parameters[{i}].from");
        let problem = match one.from.as_deref().filter(|from| !from.is_empty()) {
            None => Violation::required(field, "give a pattern such as [a-z0-9]{8}"),
            Some(from) => Violation::invalid(field, example(from, &mut budget).err()?.to_string()),
        };
        Some(problem.into())
    });
    problems.collect()
}

fn known_references(request: &Request<'_>) -> Vec<Problem> {
    let known: BTreeSet<&str> = parameters(request).map(|one| one.name.as_str()).collect();
    let mut reported = BTreeSet::new();
    let problems = references(request.new)
        .into_iter()
        .filter_map(|Reference { field, name }| {
            let is_reported = known.contains(name) || !reported.insert(name);
            let detail = format!("there is no parameter {name}; add it to spec.parameters");
            (!is_reported).then(|| Violation::invalid(field, detail).into())
        });
    problems.collect()
}

fn vm(request: &Request<'_>) -> Vec<Problem> {
    let spec = &request.new.spec;
    let members = spec.virtual_machine.0.as_object();
    let is_blank = members.is_none_or(serde_json::Map::is_empty);
    if is_blank {
        let detail = "give the VM of the template";
        return vec![Violation::invalid("spec.virtualMachine", detail).into()];
    }
    if parameters(request).any(is_open) {
        return Vec::new();
    }
    let mut left = MAX_GENERATED;
    let values: Option<BTreeMap<&str, String>> = parameters(request)
        .map(|one| Some((one.name.as_str(), value(one, &mut left)?)))
        .collect();
    let Some(values) = values else {
        // Another rule reports the missing value.
        return Vec::new();
    };
    let mut budget = MAX_SIZE;
    let wrong = match substitute(&spec.virtual_machine.0, &values, &mut budget) {
        Ok(filled) => serde_json::from_value::<VirtualMachine>(filled)
            .err()
            .map(|error| format!("it is not a VirtualMachine: {error}")),
        // Another rule reports it.
        Err(SubstitutionError::Unknown { .. }) => None,
        Err(error @ SubstitutionError::TooLarge) => Some(error.to_string()),
    };
    let problem = wrong.map(|wrong| {
        let detail = format!("after substitution of the parameters, {wrong}");
        Violation::invalid("spec.virtualMachine", detail).into()
    });
    problem.into_iter().collect()
}

fn parameters<'a>(request: &Request<'a>) -> impl Iterator<Item = &'a Parameter> {
    request.new.spec.parameters.iter()
}

fn value(one: &Parameter, budget: &mut usize) -> Option<String> {
    if is_generated(one) {
        return example(one.from.as_deref()?, budget).ok();
    }
    Some(one.value.clone().unwrap_or_default())
}
