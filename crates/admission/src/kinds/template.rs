//! Templates of VMs: parameters are given, used and lead to a VM.
//!
//! Values that would be made up by chance are stood in for by the first character of their
//! pattern, so that the same template gets the same answer twice.
//!
//! Invariants: the work grows with the size of the template, and what is filled in is bounded by
//! [`LARGEST`], however long a value is and however often it is referred to.

use std::collections::{BTreeMap, BTreeSet};

use kubevirt_api::{
    VirtualMachine,
    template::{Parameter, VirtualMachineTemplate, VirtualMachineTemplateRequest},
};
use serde_json::Value;

use super::{Asked, Check, Fault, Kind, behind, is_empty};
use crate::{Violation, rules::Rule};

type Question<'a> = Asked<'a, VirtualMachineTemplate>;

const GATE: &str = "Template";
/// So many characters a made-up piece may have.
const LENGTHS: std::ops::RangeInclusive<u32> = 1..=255;
/// Bytes that are filled in; an API server takes no larger object.
const LARGEST: usize = 3 << 20;
const ALPHABET: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

impl Kind for VirtualMachineTemplate {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "template.gate",
            "4",
            "templates need the gate Template",
            |asked| behind(asked, GATE),
        ),
        Rule::new(
            "template.parameter-names",
            "4",
            "parameters have names of their own",
            names,
        ),
        Rule::new(
            "template.generated",
            "4",
            "what is made up has a pattern that can be followed",
            generated,
        ),
        Rule::new(
            "template.references",
            "4",
            "the VM refers to parameters that there are",
            references,
        ),
        Rule::new(
            "template.machine",
            "4",
            "with its parameters filled in, the VM is one",
            machine,
        ),
    ];

    fn warnings(asked: &Asked<'_, Self>) -> Vec<String> {
        let spec = &asked.new.spec;
        let used: BTreeSet<&str> = used(asked.new).into_iter().map(|(_, name)| name).collect();
        let numbered = || spec.parameters.iter().enumerate();
        let is_idle = |one: &Parameter| is_name(&one.name) && !used.contains(one.name.as_str());
        let idle = numbered().filter(|(_, one)| is_idle(one));
        let idle = idle.map(|(i, one)| {
            format!(
                "spec.parameters[{i}].name: nothing refers to {}; write ${{{0}}} where it goes or \
                 take it out",
                one.name
            )
        });
        let open = numbered().filter(|(_, one)| is_open(one));
        let open = open.map(|(i, one)| {
            format!(
                "spec.parameters[{i}]: {} has no value yet, so the VM was not looked at with all \
                 parameters filled in",
                one.name
            )
        });
        idle.chain(open).collect()
    }
}

impl Kind for VirtualMachineTemplateRequest {
    const RULES: &'static [Rule<Check<Self>>] = &[Rule::new(
        "template-request.gate",
        "4",
        "requests for templates need the gate Template",
        |asked| behind(asked, GATE),
    )];
}

fn names(asked: &Question<'_>) -> Vec<Fault> {
    let mut seen = BTreeSet::new();
    let parameters = asked.new.spec.parameters.iter().enumerate();
    let faults = parameters.filter_map(|(i, one)| {
        let field = format!("spec.parameters[{i}].name");
        if !is_name(&one.name) {
            let detail = "give a name of letters, digits and _, such as NAME";
            return Some(Violation::invalid(field, detail).into());
        }
        let is_new = seen.insert(&one.name);
        (!is_new).then(|| Violation::duplicate(field, &one.name).into())
    });
    faults.collect()
}

fn generated(asked: &Question<'_>) -> Vec<Fault> {
    let parameters = asked.new.spec.parameters.iter().enumerate();
    let generated = parameters.filter(|(_, one)| is_made_up(one));
    let faults = generated.filter_map(|(i, one)| {
        let field = format!("spec.parameters[{i}].from");
        let fault = match one.from.as_deref().filter(|from| !from.is_empty()) {
            None => Violation::required(field, "give a pattern such as [a-z0-9]{8}"),
            Some(from) => Violation::invalid(field, example(from).err()?),
        };
        Some(fault.into())
    });
    faults.collect()
}

fn references(asked: &Question<'_>) -> Vec<Fault> {
    let known: BTreeSet<&str> = parameters(asked).map(|one| one.name.as_str()).collect();
    let mut told = BTreeSet::new();
    let faults = used(asked.new).into_iter().filter_map(|(field, name)| {
        let is_told = known.contains(name) || !told.insert(name);
        let detail = format!("there is no parameter {name}; add it to spec.parameters");
        (!is_told).then(|| Violation::invalid(field, detail).into())
    });
    faults.collect()
}

fn machine(asked: &Question<'_>) -> Vec<Fault> {
    let spec = &asked.new.spec;
    let members = spec.virtual_machine.0.as_object();
    let is_blank = members.is_none_or(serde_json::Map::is_empty);
    if is_blank {
        let detail = "give the VM that is made of the template";
        return vec![Violation::invalid("spec.virtualMachine", detail).into()];
    }
    if parameters(asked).any(is_open) {
        return Vec::new();
    }
    let values: Option<BTreeMap<&str, String>> = parameters(asked)
        .map(|one| Some((one.name.as_str(), value(one)?)))
        .collect();
    let Some(values) = values else {
        // Another rule has told why there is none.
        return Vec::new();
    };
    let mut room = LARGEST;
    let wrong = match fill(&spec.virtual_machine.0, &values, &mut room) {
        Ok(filled) => serde_json::from_value::<VirtualMachine>(filled)
            .err()
            .map(|error| format!("this is no VirtualMachine: {error}")),
        // Another rule tells of that.
        Err(Unfilled::Unknown) => None,
        Err(Unfilled::TooLarge) => Some(format!(
            "values come to more than {} MiB; shorten one or refer to it less often",
            LARGEST >> 20
        )),
    };
    let fault = wrong.map(|wrong| {
        let detail = format!("with its parameters filled in, {wrong}");
        Violation::invalid("spec.virtualMachine", detail).into()
    });
    fault.into_iter().collect()
}

fn parameters<'a>(asked: &Question<'a>) -> impl Iterator<Item = &'a Parameter> {
    asked.new.spec.parameters.iter()
}

fn is_made_up(one: &Parameter) -> bool {
    is_empty(one.value.as_deref()) && one.generate.is_some()
}

/// Whoever uses the template must say what it is.
fn is_open(one: &Parameter) -> bool {
    one.required == Some(true) && is_empty(one.value.as_deref()) && one.generate.is_none()
}

fn value(one: &Parameter) -> Option<String> {
    if is_made_up(one) {
        return example(one.from.as_deref()?).ok();
    }
    Some(one.value.clone().unwrap_or_default())
}

/// Field and name of every reference to a parameter, in order.
fn used(template: &VirtualMachineTemplate) -> Vec<(String, &str)> {
    let mut all = Vec::new();
    collect(
        &template.spec.virtual_machine.0,
        "spec.virtualMachine",
        &mut all,
    );
    let message = template.spec.message.as_deref().unwrap_or_default();
    all.extend(named(message).map(|name| ("spec.message".to_owned(), name)));
    all
}

fn collect<'a>(value: &'a Value, field: &str, all: &mut Vec<(String, &'a str)>) {
    match value {
        Value::String(text) => {
            let names = whole(text).into_iter().chain(named(text));
            all.extend(names.map(|name| (field.to_owned(), name)));
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

/// Why a VM cannot be filled in.
#[derive(Debug)]
enum Unfilled {
    /// A parameter that is not there.
    Unknown,
    TooLarge,
}

/// The value with every parameter filled in.
fn fill(
    value: &Value,
    values: &BTreeMap<&str, String>,
    room: &mut usize,
) -> Result<Value, Unfilled> {
    match value {
        Value::String(text) => {
            if let Some(name) = whole(text) {
                let given = values.get(name).ok_or(Unfilled::Unknown)?;
                take(room, given)?;
                let read = serde_json::from_str(given);
                return Ok(read.unwrap_or_else(|_| Value::String(given.clone())));
            }
            fill_text(text, values, room).map(Value::String)
        }
        Value::Array(items) => items.iter().map(|item| fill(item, values, room)).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| Ok((name.clone(), fill(member, values, room)?)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(value.clone()),
    }
}

/// What is filled in is not looked at again: a value may say `${NAME}` and mean it.
fn fill_text(
    text: &str,
    values: &BTreeMap<&str, String>,
    room: &mut usize,
) -> Result<String, Unfilled> {
    let mut pieces = text.split("${");
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        if let Some((name, after)) = reference(piece) {
            let given = values.get(name).ok_or(Unfilled::Unknown)?;
            take(room, given)?;
            filled.push_str(given);
            filled.push_str(after);
        } else {
            filled.push_str("${");
            filled.push_str(piece);
        }
    }
    Ok(filled)
}

fn take(room: &mut usize, given: &str) -> Result<(), Unfilled> {
    *room = room.checked_sub(given.len()).ok_or(Unfilled::TooLarge)?;
    Ok(())
}

/// NAME of `${{NAME}}`, if the text is that.
fn whole(text: &str) -> Option<&str> {
    let name = text.strip_prefix("${{")?.strip_suffix("}}")?;
    is_name(name).then_some(name)
}

/// Each NAME of `${NAME}` in a text.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let pieces = text.split("${").skip(1);
    pieces.filter_map(|piece| reference(piece).map(|(name, _)| name))
}

/// NAME and what follows, of what stands behind `${`.
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

/// What a pattern could make, or what is wrong with it.
fn example(pattern: &str) -> Result<String, String> {
    let mut made = String::new();
    let mut rest = pattern;
    while let Some((before, class, length, after)) = piece(rest) {
        let length = length.parse::<u32>().ok();
        let length = length.filter(|length| LENGTHS.contains(length));
        let length = length.ok_or("a length in braces is a number from 1 to 255")?;
        let first = first_of(class)?;
        made.push_str(before);
        made.extend((0..length).map(|_| first));
        rest = after;
    }
    made.push_str(rest);
    Ok(made)
}

/// Splits at the first `[CLASS]{LENGTH}`.
fn piece(text: &str) -> Option<(&str, &str, &str, &str)> {
    text.match_indices('[').find_map(|(at, _)| {
        let inner = &text[at + 1..];
        // No further than the class goes, however long the text is.
        let is_class = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '\\';
        let (class, rest) = inner.split_at(inner.find(|c| !is_class(c))?);
        let rest = rest.strip_prefix("]{")?;
        let (length, after) = rest.split_at(rest.find(|c| !is_of_name(c))?);
        let after = after.strip_prefix('}')?;
        let is_piece = !class.is_empty() && !length.is_empty();
        is_piece.then(|| (&text[..at], class, length, after))
    })
}

/// A character of the class, or what is wrong with it.
fn first_of(class: &str) -> Result<char, String> {
    let mut characters = class.chars().peekable();
    let mut first = None;
    while let Some(c) = characters.next() {
        let found = match c {
            '\\' => match characters.next() {
                Some('w' | 'a') => 'a',
                Some('d') => '0',
                Some('A') => '!',
                _ => return Err(format!("[{class}]: after \\ comes one of w, d, a and A")),
            },
            _ if characters.peek() == Some(&'-') => {
                characters.next();
                let end = characters.next();
                let place = |c: char| ALPHABET.find(c);
                match (place(c), end.and_then(place)) {
                    (Some(from), Some(to)) if from <= to => c,
                    _ => return Err(format!("[{class}]: a range such as a-z goes upwards")),
                }
            }
            '-' => continue,
            _ => c,
        };
        first.get_or_insert(found);
    }
    first.ok_or_else(|| format!("[{class}]: names no character"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_in_is_not_looked_at_again_and_bounded() {
        let filled = |text: &str, value: &str| {
            let values = BTreeMap::from([("A", value.to_owned())]);
            fill(&Value::from(text), &values, &mut LARGEST.clone())
        };
        assert_eq!(filled("x${A}-${A}$A${", "${A}").unwrap(), "x${A}-${A}$A${");
        assert_eq!(filled("${{A}}", "3").unwrap(), 3);
        assert!(matches!(filled("${B}", ""), Err(Unfilled::Unknown)));
        // A megabyte that is named a hundred thousand times.
        let found = filled(&"${A}".repeat(100_000), &"y".repeat(1 << 20));
        assert!(matches!(found, Err(Unfilled::TooLarge)));
    }

    #[test]
    fn patterns_are_followed_in_one_go() {
        assert_eq!(example("a[b-d]{2}[0]{1}]{").unwrap(), "abb0]{");
        assert_eq!(example("[[x]{1}").unwrap(), "[x");
        let brackets = "[".repeat(1 << 20);
        assert_eq!(example(&brackets).unwrap(), brackets);
    }
}
