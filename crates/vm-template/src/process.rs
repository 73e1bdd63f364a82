//! Makes a VM of a template.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use kubevirt_api::{
    VirtualMachine,
    template::{Parameter, VirtualMachineTemplate},
};
use serde_json::{Map, Value};

use crate::{
    parameters::default,
    pattern::{MAX_GENERATED, generate},
    references::{named, references, whole},
    substitute::{MAX_SIZE, SubstitutionError, substitute, substitute_text},
};

/// Names of parameters of at most so many bytes are in the message about an unknown one.
const SHOWN_NAMES: usize = 1000;

/// What the user of a template gives.
pub struct Values<'a> {
    /// Values by the names of their parameters.
    pub given: &'a BTreeMap<String, String>,
    /// Picks one of so many, from 0.
    pub choose: &'a mut dyn FnMut(usize) -> usize,
}

impl fmt::Debug for Values<'_> {
    /// Without the values, which may be passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.given.keys()).finish()
    }
}

/// A VM, and what its template tells its user.
#[derive(Debug, Clone, PartialEq)]
pub struct Processed {
    pub vm: Value,
    pub message: Option<String>,
}

/// A field of the template, or a given value, that is wrong, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {detail}")]
pub struct Problem {
    pub field: String,
    pub detail: String,
}

impl Problem {
    fn new(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            detail: detail.into(),
        }
    }
}

/// The VM with all parameters filled in, or everything that is wrong.
pub fn process(
    template: &VirtualMachineTemplate,
    values: Values<'_>,
) -> Result<Processed, Vec<Problem>> {
    let Values { given, choose } = values;
    let spec = &template.spec;
    let mut problems = unknown(template, given);
    let mut known = BTreeMap::new();
    let mut budget = MAX_GENERATED;
    for (i, one) in spec.parameters.iter().enumerate() {
        match value(one, given, &mut budget, choose) {
            Ok(value) => drop(known.insert(one.name.as_str(), value)),
            Err((member, detail)) => {
                problems.push(Problem::new(
                    format!("spec.parameters[{i}].{member}"),
                    detail,
                ));
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    filled(template, &known).map_err(|problem| vec![problem])
}

/// Given values that no parameter takes.
fn unknown(template: &VirtualMachineTemplate, given: &BTreeMap<String, String>) -> Vec<Problem> {
    let all = template.spec.parameters.iter();
    let names: Vec<&str> = all.map(|one| one.name.as_str()).collect();
    let known = match names.join(", ") {
        known if known.is_empty() => "it has none".to_owned(),
        known if known.len() <= SHOWN_NAMES => format!("it has {known}"),
        _ => "spec.parameters lists them".to_owned(),
    };
    let names: BTreeSet<&str> = names.into_iter().collect();
    let unknown = given.keys().filter(|name| !names.contains(name.as_str()));
    let problems = unknown.map(|name| {
        let detail = format!("the template has no such parameter; {known}");
        Problem::new(format!("parameters.{name}"), detail)
    });
    problems.collect()
}

/// The value of a parameter, or the member that is wrong.
fn value(
    one: &Parameter,
    given: &BTreeMap<String, String>,
    budget: &mut usize,
    choose: &mut dyn FnMut(usize) -> usize,
) -> Result<String, (&'static str, String)> {
    let given = given.get(&one.name).map(String::as_str);
    if let Some(value) = given.filter(|value| !value.is_empty()) {
        return Ok(value.to_owned());
    }
    // An empty value is one, except for a required parameter.
    if given.is_some() && one.required != Some(true) {
        return Ok(String::new());
    }
    if let Some(value) = default(one) {
        return Ok(value.to_owned());
    }
    if one.generate.is_some() {
        let from = one.from.as_deref().filter(|from| !from.is_empty());
        let from = from.ok_or_else(|| ("from", "give a pattern such as [a-z0-9]{8}".to_owned()))?;
        return generate(from, budget, choose).map_err(|error| ("from", error.to_string()));
    }
    if one.required == Some(true) {
        let detail = format!("{0} has no value; give one as {0}=VALUE", one.name);
        return Err(("value", detail));
    }
    Ok(String::new())
}

fn filled(
    template: &VirtualMachineTemplate,
    values: &BTreeMap<&str, String>,
) -> Result<Processed, Problem> {
    let spec = &template.spec;
    let vm = "spec.virtualMachine";
    let wrong = |error: SubstitutionError| {
        let field = match &error {
            SubstitutionError::Unknown { name } => references(template)
                .into_iter()
                .find(|one| one.name == name)
                .map(|one| one.field),
            SubstitutionError::TooLarge => None,
        };
        Problem::new(field.unwrap_or_else(|| vm.to_owned()), error.to_string())
    };
    let mut budget = MAX_SIZE;
    let made = substitute(&spec.virtual_machine.0, values, &mut budget).map_err(wrong)?;
    let Value::Object(mut made) = made else {
        return Err(Problem::new(vm, "give the VM of the template"));
    };
    if made.is_empty() {
        return Err(Problem::new(vm, "give the VM of the template"));
    }
    if has_fixed_namespace(&spec.virtual_machine.0)
        && let Some(Value::Object(metadata)) = made.get_mut("metadata")
    {
        metadata.remove("namespace");
    }
    let vm_object = with_kind(made);
    serde_json::from_value::<VirtualMachine>(vm_object.clone()).map_err(|error| {
        let detail =
            format!("after substitution of the parameters, it is not a VirtualMachine: {error}");
        Problem::new(vm, detail)
    })?;
    let message = spec
        .message
        .as_deref()
        .map(|text| substitute_text(text, values, &mut budget).map_err(wrong));
    Ok(Processed {
        vm: vm_object,
        message: message.transpose()?,
    })
}

/// Whether the namespace of the VM is no parameter: that of the template's author, not of its user.
fn has_fixed_namespace(vm: &Value) -> bool {
    let namespace = vm.pointer("/metadata/namespace").and_then(Value::as_str);
    namespace.is_some_and(|text| whole(text).is_none() && named(text).next().is_none())
}

/// The VM with its kind in front, which templates may leave out.
fn with_kind(mut made: Map<String, Value>) -> Value {
    let mut vm = Map::new();
    for (field, default) in [("apiVersion", "kubevirt.io/v1"), ("kind", "VirtualMachine")] {
        let value = made.shift_remove(field);
        vm.insert(field.to_owned(), value.unwrap_or_else(|| default.into()));
    }
    vm.extend(made);
    vm.into()
}
