//! Substitution of parameters.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::references::{reference, whole};

/// Maximum of substituted bytes; API servers do not accept larger objects.
pub const MAX_SIZE: usize = 3 << 20;

/// Why parameters cannot be substituted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubstitutionError {
    #[error("there is no parameter {name}; add it to spec.parameters")]
    Unknown { name: String },
    #[error(
        "values exceed {} MiB; shorten one or reference it less often",
        MAX_SIZE >> 20
    )]
    TooLarge,
}

/// The value with all parameters substituted.
pub fn substitute(
    value: &Value,
    values: &BTreeMap<&str, String>,
    budget: &mut usize,
) -> Result<Value, SubstitutionError> {
    match value {
        Value::String(text) => {
            if let Some(name) = whole(text) {
                let given = given(values, name, budget)?;
                let read = serde_json::from_str(given);
                return Ok(read.unwrap_or_else(|_| Value::from(given)));
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

/// The text with all parameters substituted. Values are not scanned again: a value may contain `${NAME}`
/// literally.
pub fn substitute_text(
    text: &str,
    values: &BTreeMap<&str, String>,
    budget: &mut usize,
) -> Result<String, SubstitutionError> {
    let mut pieces = text.split("${");
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        if let Some((name, after)) = reference(piece) {
            filled.push_str(given(values, name, budget)?);
            filled.push_str(after);
        } else {
            filled.push_str("${");
            filled.push_str(piece);
        }
    }
    Ok(filled)
}

fn given<'a>(
    values: &'a BTreeMap<&str, String>,
    name: &str,
    budget: &mut usize,
) -> Result<&'a str, SubstitutionError> {
    let given = values.get(name).ok_or_else(|| SubstitutionError::Unknown {
        name: name.to_owned(),
    })?;
    *budget = budget
        .checked_sub(given.len())
        .ok_or(SubstitutionError::TooLarge)?;
    Ok(given)
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
        assert_eq!(filled("${{A}}", "true").unwrap(), true);
        assert_eq!(filled("${{A}}", "three").unwrap(), "three");
        let name = "B".to_owned();
        assert_eq!(filled("${B}", ""), Err(SubstitutionError::Unknown { name }));
        // A value of one megabyte, referenced a hundred thousand times.
        let found = filled(&"${A}".repeat(100_000), &"y".repeat(1 << 20));
        assert_eq!(found, Err(SubstitutionError::TooLarge));
    }
}
