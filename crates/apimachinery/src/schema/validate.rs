//! Every violation of a schema in an object, with the wording of kube-apiserver.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Map, Number, Value};

use super::{Bound, Checks, Kind, ListType, Marks, Schema, format, join};
use crate::{Fault, Violation};

/// Bounds the size of the response to a malicious object.
const MAX_VIOLATIONS: usize = 1_000;

pub(super) fn root(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<Violation> {
    let mut out = Vec::new();
    check(schema, object, old, "", &mut out);
    out
}

fn check(
    schema: &Schema,
    value: &Value,
    old: Option<&Value>,
    path: &str,
    out: &mut Vec<Violation>,
) {
    if out.len() >= MAX_VIOLATIONS
        || (value.is_null() && schema.marks.has(Marks::NULLABLE))
        || old == Some(value)
    {
        return;
    }
    check_type(schema, value, path, out);
    if value.is_null() && schema.kind.is_some() {
        // The type is all that is wrong with it.
        return;
    }
    if let Some(checks) = &schema.checks {
        check_common(checks, value, path, out);
        match value {
            Value::String(text) => check_string(checks, text, path, out),
            Value::Number(number) => check_number(checks, number, path, out),
            Value::Array(items) => check_array(checks, items, path, out),
            Value::Object(fields) => check_object(checks, fields, path, out),
            Value::Null | Value::Bool(_) => {}
        }
        check_junctions(checks, value, path, out);
    }
    match value {
        Value::Array(items) => {
            if let Some(item_schema) = schema.items() {
                for (index, item) in items.iter().enumerate() {
                    let before = schema.counterpart(item, old);
                    check(item_schema, item, before, &format!("{path}[{index}]"), out);
                }
            }
            check_list_type(schema, items, path, out);
        }
        Value::Object(fields) => {
            if schema.is_embedded() {
                check_embedded(fields, path, out);
            }
            for (name, member) in fields {
                if let Some(child) = schema.child(name) {
                    let before = old.and_then(|old| old.get(name));
                    check(child, member, before, &join(path, name), out);
                }
            }
        }
        _ => {}
    }
}

/// An object embedded in another has a type, too.
fn check_embedded(fields: &Map<String, Value>, path: &str, out: &mut Vec<Violation>) {
    for name in ["apiVersion", "kind"] {
        if fields.get(name).is_none_or(|value| value == "") {
            out.push(Violation::required(join(path, name), ""));
        }
    }
}

impl Schema {
    /// The old value of a list item, for lists whose items have an identity.
    pub(super) fn counterpart<'a>(
        &self,
        item: &Value,
        old: Option<&'a Value>,
    ) -> Option<&'a Value> {
        let ListType::Map(keys) = self.list_type() else {
            return None;
        };
        let same = |old: &&Value| keys.iter().all(|key| old.get(key) == item.get(key));
        old?.as_array()?.iter().find(same)
    }
}

/// `spec.x in body <what>`
fn in_body(path: &str, what: &str) -> String {
    if path.is_empty() {
        format!("\"\" in body {what}")
    } else {
        format!("{path} in body {what}")
    }
}

fn at(path: &str) -> &str {
    if path.is_empty() { "<nil>" } else { path }
}

fn invalid(out: &mut Vec<Violation>, path: &str, value: impl Into<Value>, what: impl AsRef<str>) {
    out.push(Violation::invalid(
        at(path),
        value,
        in_body(path, what.as_ref()),
    ));
}

fn check_type(schema: &Schema, value: &Value, path: &str, out: &mut Vec<Violation>) {
    let wanted = if schema.marks.has(Marks::INT_OR_STRING) {
        if value.is_string() || is_integer(value) {
            return;
        }
        "integer,string"
    } else {
        let Some(kind) = schema.kind else { return };
        if kind_holds(kind, value) {
            return;
        }
        kind.name()
    };
    let mut found = type_name(value);
    let mut wanted = wanted;
    if schema.kind == Some(Kind::Integer) && value.is_number() {
        // Integers with a size are distinguished by their size.
        let format = schema
            .checks
            .as_ref()
            .and_then(|checks| checks.format.as_deref());
        let what = match format {
            Some(format @ ("int32" | "int64")) => {
                (wanted, found) = (format, "float64");
                format!("with format {format}")
            }
            _ => "(default format)".to_owned(),
        };
        let why = format!("Checked value must be of type integer {what} in {path}");
        out.push(Violation::invalid("<nil>", "", why));
    }
    let why = in_body(path, &format!("must be of type {wanted}: \"{found}\""));
    out.push(Violation::new(Fault::TypeInvalid, at(path), found, why));
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

fn kind_holds(kind: Kind, value: &Value) -> bool {
    match kind {
        Kind::Object => value.is_object(),
        Kind::Array => value.is_array(),
        Kind::String => value.is_string(),
        Kind::Integer => is_integer(value),
        Kind::Number => value.is_number(),
        Kind::Boolean => value.is_boolean(),
    }
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check_common(checks: &Checks, value: &Value, path: &str, out: &mut Vec<Violation>) {
    let allowed = &checks.one_of_values;
    if !allowed.is_empty() && !allowed.contains(value) {
        let texts: Vec<String> = allowed
            .iter()
            .map(|value| {
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned)
            })
            .collect();
        let texts = texts.iter().map(String::as_str);
        out.push(Violation::not_supported(at(path), value.clone(), texts));
    }
}

fn check_string(checks: &Checks, text: &str, path: &str, out: &mut Vec<Violation>) {
    let length = count(text.chars().count());
    if let Some(max) = checks.length.max.filter(|max| length > *max) {
        out.push(Violation::too_long(at(path), text, max));
    } else if let Some(min) = checks.length.min.filter(|min| length < *min) {
        let why = format!("should be at least {min} chars long");
        invalid(out, path, text, why);
    } else if let Some(pattern) = &checks.pattern
        && !pattern.regex.is_match(text)
    {
        invalid(out, path, text, format!("should match '{}'", pattern.text));
    }
    if let Some(name) = &checks.format
        && !format::holds(name, text)
    {
        let shown = crate::violation::quoted(text);
        let why = in_body(path, &format!("must be of type {name}: {shown}"));
        out.push(Violation::new(Fault::TypeInvalid, at(path), text, why));
    }
}

fn check_number(checks: &Checks, number: &Number, path: &str, out: &mut Vec<Violation>) {
    use std::cmp::Ordering::{Greater, Less};
    let value = || Value::Number(number.clone());
    let whole = number.as_i64();
    let fits = match checks.format.as_deref() {
        Some("int32") => whole.is_none_or(|number| i32::try_from(number).is_ok()),
        Some("int64") => whole.is_some() || number.is_f64(),
        _ => true,
    };
    if !fits {
        let format = checks.format.as_deref().unwrap_or_default();
        let why = format!("Checked value must be of type integer with format {format} in {path}");
        out.push(Violation::invalid("<nil>", "", why));
    }
    if let Some(Bound {
        value: max,
        exclusive,
    }) = &checks.maximum
    {
        let order = order(number, max);
        if order == Some(Greater) || (*exclusive && order != Some(Less)) {
            let or = if *exclusive { "" } else { " or equal to" };
            invalid(out, path, value(), format!("should be less than{or} {max}"));
        }
    }
    if let Some(Bound {
        value: min,
        exclusive,
    }) = &checks.minimum
    {
        let order = order(number, min);
        if order == Some(Less) || (*exclusive && order != Some(Greater)) {
            let or = if *exclusive { "" } else { " or equal to" };
            invalid(
                out,
                path,
                value(),
                format!("should be greater than{or} {min}"),
            );
        }
    }
    if let Some(factor) = &checks.multiple_of
        && let (Some(n), Some(f)) = (number.as_f64(), factor.as_f64())
        && (n / f).fract() != 0.0
    {
        invalid(
            out,
            path,
            value(),
            format!("should be a multiple of {factor}"),
        );
    }
}

/// Integers are compared as such: a float cannot represent all of them.
fn order(left: &Number, right: &Number) -> Option<std::cmp::Ordering> {
    let whole = |n: &Number| n.as_i128();
    match (whole(left), whole(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

fn check_array(checks: &Checks, items: &[Value], path: &str, out: &mut Vec<Violation>) {
    let size = count(items.len());
    if let Some(min) = checks.items.min.filter(|min| size < *min) {
        invalid(out, path, size, format!("should have at least {min} items"));
    }
    if let Some(max) = checks.items.max.filter(|max| size > *max) {
        out.push(Violation::too_many(at(path), items.len(), max));
    }
    if checks.unique {
        let distinct: BTreeSet<String> = items.iter().map(canonical).collect();
        if distinct.len() < items.len() {
            invalid(out, path, "", "shouldn't contain duplicates");
        }
    }
}

fn check_object(
    checks: &Checks,
    fields: &Map<String, Value>,
    path: &str,
    out: &mut Vec<Violation>,
) {
    for name in checks
        .required
        .iter()
        .filter(|name| !fields.contains_key(name.as_str()))
    {
        out.push(Violation::required(join(path, name), ""));
    }
    let size = count(fields.len());
    if let Some(min) = checks.properties.min.filter(|min| size < *min) {
        invalid(
            out,
            path,
            size,
            format!("should have at least {min} properties"),
        );
    }
    if let Some(max) = checks.properties.max.filter(|max| size > *max) {
        out.push(Violation::too_many(at(path), fields.len(), max));
    }
}

fn check_junctions(checks: &Checks, value: &Value, path: &str, out: &mut Vec<Violation>) {
    let violations = |branch: &Schema| {
        let mut wrong = Vec::new();
        check(branch, value, None, path, &mut wrong);
        wrong
    };
    let validate_all = |branches: &[Arc<Schema>]| {
        branches
            .iter()
            .map(|branch| violations(branch))
            .collect::<Vec<_>>()
    };
    let valid = |results: &[Vec<Violation>]| results.iter().filter(|v| v.is_empty()).count();
    // kube-apiserver reports these without a field, so the text names it.
    let problem = |what: &str| {
        let why = format!("{} {what}", crate::violation::quoted(path));
        Violation::invalid("<nil>", "", why)
    };
    if !checks.any_of.is_empty() {
        let results = validate_all(&checks.any_of);
        if valid(&results) == 0 {
            out.push(problem("must validate at least one schema (anyOf)"));
            out.extend(results.into_iter().next().unwrap_or_default());
        }
    }
    if !checks.one_of.is_empty() {
        let results = validate_all(&checks.one_of);
        match valid(&results) {
            1 => {}
            0 => {
                let what = "must validate one and only one schema (oneOf). Found none valid";
                out.push(problem(what));
                out.extend(results.into_iter().next().unwrap_or_default());
            }
            found => out.push(problem(&format!(
                "must validate one and only one schema (oneOf). Found {found} valid alternatives"
            ))),
        }
    }
    if let Some(not) = &checks.not
        && violations(not).is_empty()
    {
        out.push(problem("must not validate the schema (not)"));
    }
    let results = validate_all(&checks.all_of);
    if valid(&results) < results.len() {
        out.push(problem("must validate all the schemas (allOf)"));
        out.extend(results.into_iter().flatten());
    }
}

fn check_list_type(schema: &Schema, items: &[Value], path: &str, out: &mut Vec<Violation>) {
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        if matches!(schema.list_type(), ListType::Map(_)) && !item.is_object() {
            let why = "must be an object for an array of list-type map";
            out.push(Violation::invalid(
                format!("{path}[{index}]"),
                item.clone(),
                why,
            ));
            continue;
        }
        let id = match schema.list_type() {
            ListType::Atomic => return,
            ListType::Set => item.clone(),
            ListType::Map(keys) => keys
                .iter()
                .filter_map(|key| {
                    let default = || schema.items()?.child(key)?.default_value();
                    Some((key.clone(), item.get(key).or_else(default)?.clone()))
                })
                .collect::<Map<_, _>>()
                .into(),
        };
        if !seen.insert(canonical(&id)) {
            out.push(Violation::duplicate(format!("{path}[{index}]"), id));
        }
    }
}

/// Equal texts for equal values, regardless of field order.
pub(super) fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut parts: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), canonical(value)))
                .collect();
            parts.sort();
            format!("{{{}}}", parts.join(","))
        }
        Value::Array(items) => {
            let parts: Vec<String> = items.iter().map(canonical).collect();
            format!("[{}]", parts.join(","))
        }
        scalar => scalar.to_string(),
    }
}

fn count(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}
