//! Templates of VMs: parameters are valid, used and produce a VM.
//!
//! A generated value is replaced by repetitions of the first character of its pattern, so that the
//! same template always has the same result.
//!
//! Invariants: the work is linear in the size of the template; the size of substituted values is
//! limited by [`MAX_SIZE`], however long a value is and however often it is referenced.

use std::collections::{BTreeMap, BTreeSet};

use kubevirt_api::{
    VirtualMachine,
    template::{Parameter, VirtualMachineTemplate, VirtualMachineTemplateRequest},
};
use serde_json::Value;
use validation::{Rule, Subject, Violation};

use super::{
    kind::{Check, Kind, Problem, TypedRequest},
    refusals::{is_empty, requires_gate},
};

type Request<'a> = TypedRequest<'a, VirtualMachineTemplate>;

const GATE: &str = "Template";
/// Length of a generated piece.
const LENGTHS: std::ops::RangeInclusive<u32> = 1..=255;
/// Maximum of substituted bytes; API servers do not accept larger objects.
const MAX_SIZE: usize = 3 << 20;
const ALPHABET: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

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
            references,
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
        let used: BTreeSet<&str> = used(request.new).into_iter().map(|one| one.name).collect();
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
    const RULES: &'static [Rule<Check<Self>>] = &[Rule::new(
        "template-request.gate",
        Subject::Template,
        "requests for templates need the gate Template",
        |request| requires_gate(request, GATE),
    )];
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
    let problems = generated.filter_map(|(i, one)| {
        let field = format!("spec.parameters[{i}].from");
        let problem = match one.from.as_deref().filter(|from| !from.is_empty()) {
            None => Violation::required(field, "give a pattern such as [a-z0-9]{8}"),
            Some(from) => Violation::invalid(field, example(from).err()?),
        };
        Some(problem.into())
    });
    problems.collect()
}

fn references(request: &Request<'_>) -> Vec<Problem> {
    let known: BTreeSet<&str> = parameters(request).map(|one| one.name.as_str()).collect();
    let mut reported = BTreeSet::new();
    let problems = used(request.new)
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
    let values: Option<BTreeMap<&str, String>> = parameters(request)
        .map(|one| Some((one.name.as_str(), value(one)?)))
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
        Err(SubstitutionError::Unknown) => None,
        Err(SubstitutionError::TooLarge) => Some(format!(
            "values exceed {} MiB; shorten one or reference it less often",
            MAX_SIZE >> 20
        )),
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

fn is_generated(one: &Parameter) -> bool {
    is_empty(one.value.as_deref()) && one.generate.is_some()
}

/// Whether the user of the template must provide the value.
fn is_open(one: &Parameter) -> bool {
    one.required == Some(true) && is_empty(one.value.as_deref()) && one.generate.is_none()
}

fn value(one: &Parameter) -> Option<String> {
    if is_generated(one) {
        return example(one.from.as_deref()?).ok();
    }
    Some(one.value.clone().unwrap_or_default())
}

/// A reference to a parameter.
struct Reference<'a> {
    field: String,
    name: &'a str,
}

/// All references to parameters, in order.
fn used(template: &VirtualMachineTemplate) -> Vec<Reference<'_>> {
    let mut all = Vec::new();
    collect(
        &template.spec.virtual_machine.0,
        "spec.virtualMachine",
        &mut all,
    );
    let message = template.spec.message.as_deref().unwrap_or_default();
    let field = "spec.message";
    all.extend(named(message).map(|name| Reference {
        field: field.to_owned(),
        name,
    }));
    all
}

fn collect<'a>(value: &'a Value, field: &str, all: &mut Vec<Reference<'a>>) {
    match value {
        Value::String(text) => {
            let names = whole(text).into_iter().chain(named(text));
            all.extend(names.map(|name| Reference {
                field: field.to_owned(),
                name,
            }));
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                collect(item, &format!("{field}[{i}]"), all);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                collect(member, &format!("{field}.{name}"), all);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Why parameters cannot be substituted.
#[derive(Debug)]
enum SubstitutionError {
    /// A parameter does not exist.
    Unknown,
    TooLarge,
}

/// The value with all parameters substituted.
fn substitute(
    value: &Value,
    values: &BTreeMap<&str, String>,
    budget: &mut usize,
) -> Result<Value, SubstitutionError> {
    match value {
        Value::String(text) => {
            if let Some(name) = whole(text) {
                let given = values.get(name).ok_or(SubstitutionError::Unknown)?;
                take(budget, given)?;
                let read = serde_json::from_str(given);
                return Ok(read.unwrap_or_else(|_| Value::String(given.clone())));
            }
            substitute_text(text, values, budget).map(Value::String)
        }
        Value::Array(items) => items
            .iter()
            .map(|item| substitute(item, values, budget))
            .collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| Ok((name.clone(), substitute(member, values, budget)?)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(value.clone()),
    }
}

/// Substituted values are not scanned again: a value may contain `${NAME}` literally.
fn substitute_text(
    text: &str,
    values: &BTreeMap<&str, String>,
    budget: &mut usize,
) -> Result<String, SubstitutionError> {
    let mut pieces = text.split("${");
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        if let Some((name, after)) = reference(piece) {
            let given = values.get(name).ok_or(SubstitutionError::Unknown)?;
            take(budget, given)?;
            filled.push_str(given);
            filled.push_str(after);
        } else {
            filled.push_str("${");
            filled.push_str(piece);
        }
    }
    Ok(filled)
}

fn take(budget: &mut usize, given: &str) -> Result<(), SubstitutionError> {
    *budget = budget
        .checked_sub(given.len())
        .ok_or(SubstitutionError::TooLarge)?;
    Ok(())
}

/// NAME, if the text is `${{NAME}}`.
fn whole(text: &str) -> Option<&str> {
    let name = text.strip_prefix("${{")?.strip_suffix("}}")?;
    is_name(name).then_some(name)
}

/// Each NAME of `${NAME}` in a text.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let pieces = text.split("${").skip(1);
    pieces.filter_map(|piece| reference(piece).map(|(name, _)| name))
}

/// Splits text after `${` into NAME and the rest.
fn reference(piece: &str) -> Option<(&str, &str)> {
    let (name, after) = piece.split_once('}')?;
    is_name(name).then_some((name, after))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_of_name)
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// An example value of a pattern, or why the pattern is invalid.
fn example(pattern: &str) -> Result<String, String> {
    let mut made = String::new();
    let mut rest = pattern;
    while let Some(piece) = Piece::first(rest) {
        let length = piece.length.parse::<u32>().ok();
        let length = length.filter(|length| LENGTHS.contains(length));
        let length = length.ok_or("a length in braces is a number from 1 to 255")?;
        let first = first_of(piece.class)?;
        made.push_str(piece.before);
        made.extend((0..length).map(|_| first));
        rest = piece.after;
    }
    made.push_str(rest);
    Ok(made)
}

/// A `[CLASS]{LENGTH}` in a pattern.
struct Piece<'a> {
    before: &'a str,
    class: &'a str,
    length: &'a str,
    after: &'a str,
}

impl<'a> Piece<'a> {
    fn first(text: &'a str) -> Option<Self> {
        text.match_indices('[').find_map(|(at, _)| {
            let inner = &text[at + 1..];
            // Bounded by the end of the class, however long the text is.
            let is_class = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '\\';
            let (class, rest) = inner.split_at(inner.find(|c| !is_class(c))?);
            let rest = rest.strip_prefix("]{")?;
            let (length, after) = rest.split_at(rest.find(|c| !is_of_name(c))?);
            let after = after.strip_prefix('}')?;
            let is_complete = !class.is_empty() && !length.is_empty();
            is_complete.then_some(Self {
                before: &text[..at],
                class,
                length,
                after,
            })
        })
    }
}

/// The first character of a class, or why the class is invalid.
fn first_of(class: &str) -> Result<char, String> {
    let mut characters = class.chars().peekable();
    let mut first = None;
    while let Some(c) = characters.next() {
        let found = match c {
            '\\' => match characters.next() {
                Some('w' | 'a') => 'a',
                Some('d') => '0',
                Some('A') => '!',
                _ => return Err(format!("[{class}]: after \\, use one of w, d, a and A")),
            },
            _ if characters.peek() == Some(&'-') => {
                characters.next();
                let end = characters.next();
                let index = |c: char| ALPHABET.find(c);
                match (index(c), end.and_then(index)) {
                    (Some(from), Some(to)) if from <= to => c,
                    _ => return Err(format!("[{class}]: a range must ascend, such as a-z")),
                }
            }
            '-' => continue,
            _ => c,
        };
        first.get_or_insert(found);
    }
    first.ok_or_else(|| format!("[{class}]: contains no character"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substituted_values_are_not_scanned_and_bounded() {
        let filled = |text: &str, value: &str| {
            let values = BTreeMap::from([("A", value.to_owned())]);
            substitute(&Value::from(text), &values, &mut MAX_SIZE.clone())
        };
        assert_eq!(filled("x${A}-${A}$A${", "${A}").unwrap(), "x${A}-${A}$A${");
        assert_eq!(filled("${{A}}", "3").unwrap(), 3);
        assert!(matches!(
            filled("${B}", ""),
            Err(SubstitutionError::Unknown)
        ));
        // A value of one megabyte, referenced a hundred thousand times.
        let found = filled(&"${A}".repeat(100_000), &"y".repeat(1 << 20));
        assert!(matches!(found, Err(SubstitutionError::TooLarge)));
    }

    #[test]
    fn patterns_are_parsed_in_linear_time() {
        assert_eq!(example("a[b-d]{2}[0]{1}]{").unwrap(), "abb0]{");
        assert_eq!(example("[[x]{1}").unwrap(), "[x");
        let brackets = "[".repeat(1 << 20);
        assert_eq!(example(&brackets).unwrap(), brackets);
    }
}
