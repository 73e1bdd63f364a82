//! References to parameters: `${NAME}` in a text, `${{NAME}}` as a whole value.

use kubevirt_api::template::VirtualMachineTemplate;
use serde_json::Value;

/// A reference to a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference<'a> {
    /// The path of the field with the reference.
    pub field: String,
    pub name: &'a str,
}

/// All references of a template, in order.
pub fn references(template: &VirtualMachineTemplate) -> Vec<Reference<'_>> {
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

/// NAME, if the text is `${{NAME}}`.
pub(crate) fn whole(text: &str) -> Option<&str> {
    let name = text.strip_prefix("${{")?.strip_suffix("}}")?;
    is_name(name).then_some(name)
}

/// Each NAME of `${NAME}` in a text.
pub(crate) fn named(text: &str) -> impl Iterator<Item = &str> {
    let pieces = text.split("${").skip(1);
    pieces.filter_map(|piece| reference(piece).map(|(name, _)| name))
}

/// Splits text after `${` into NAME and the rest.
pub(crate) fn reference(piece: &str) -> Option<(&str, &str)> {
    let (name, after) = piece.split_once('}')?;
    is_name(name).then_some((name, after))
}

/// Whether a text is the name of a parameter: letters, digits and _.
pub fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_of_name)
}

pub(crate) fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
