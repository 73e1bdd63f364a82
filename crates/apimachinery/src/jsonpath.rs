//! The subset of `JSONPath` that printer columns and scale paths need.
//!
//! Supported: `.a.b[0].c`, `['a']`, `\.` inside names, `[*]`, `[-1]`, `[?(@.type=='Ready')]` with
//! `== != < > <= >=` and plain existence. Recursive descent (`..name`) is not.

use serde_json::Value;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    All,
    Filter {
        path: Vec<Step>,
        test: Option<(Comparison, Value)>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    Greater,
    AtMost,
    AtLeast,
}

/// Why a path cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JsonPathError(String);

/// Longer paths are rejected; this also bounds how deeply filters nest.
const MAX_STEPS: usize = 64;
const MAX_LENGTH: usize = 1024;

impl JsonPath {
    /// Parses `.spec.x`, with or without the braces and the `$` of a template.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        let inner = text.trim();
        if inner.len() > MAX_LENGTH {
            return Err(fail("path is too long"));
        }
        let inner = match inner.strip_prefix('{') {
            Some(rest) => rest
                .strip_suffix('}')
                .ok_or_else(|| fail("unclosed action"))?,
            None => inner,
        };
        let mut chars = inner.strip_prefix('$').unwrap_or(inner).chars().peekable();
        let steps = steps(&mut chars, |_| false)?;
        Ok(Self { steps })
    }

    /// All values at the path, in document order; empty if the path matches nothing.
    pub fn find<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        walk(object, &self.steps)
    }

    /// The first of [`Self::find`].
    pub fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.find(object).into_iter().next()
    }
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn fail(why: &str) -> JsonPathError {
    JsonPathError(why.to_owned())
}

fn steps(chars: &mut Chars<'_>, ends: fn(char) -> bool) -> Result<Vec<Step>, JsonPathError> {
    let mut out = Vec::new();
    while let Some(c) = chars.peek().copied() {
        if ends(c) {
            break;
        }
        if out.len() == MAX_STEPS {
            return Err(fail("path is too long"));
        }
        match c {
            '.' => {
                chars.next();
                match chars.peek().copied() {
                    Some('.') => return Err(fail("recursive descent is not supported")),
                    // `.` alone and `.[0]`
                    None | Some('[') => {}
                    Some(c) if ends(c) => {}
                    Some(_) => out.push(name(chars, ends)?),
                }
            }
            '[' => {
                chars.next();
                out.push(bracket(chars)?);
            }
            _ if out.is_empty() => out.push(name(chars, ends)?),
            c => return Err(JsonPathError(format!("unexpected character {c:?} in path"))),
        }
    }
    Ok(out)
}

fn name(chars: &mut Chars<'_>, ends: fn(char) -> bool) -> Result<Step, JsonPathError> {
    let mut name = String::new();
    while let Some(c) = chars.peek().copied() {
        if c == '.' || c == '[' || ends(c) {
            break;
        }
        chars.next();
        if c == '\\' {
            name.push(
                chars
                    .next()
                    .ok_or_else(|| fail("path ends in a backslash"))?,
            );
        } else {
            name.push(c);
        }
    }
    match name.as_str() {
        "" => Err(fail("empty field name in path")),
        "*" => Ok(Step::All),
        _ => Ok(Step::Field(name)),
    }
}

fn bracket(chars: &mut Chars<'_>) -> Result<Step, JsonPathError> {
    let step = match chars.peek().copied() {
        Some('?') => {
            chars.next();
            return filter(chars);
        }
        Some(quote @ ('\'' | '"')) => Step::Field(string(chars, quote)?),
        _ => {
            let mut inner = String::new();
            while let Some(c) = chars.peek().copied().filter(|c| *c != ']') {
                inner.push(c);
                chars.next();
            }
            match inner.trim() {
                "*" => Step::All,
                number => Step::Index(
                    number
                        .parse()
                        .map_err(|_| JsonPathError(format!("invalid array index {number}")))?,
                ),
            }
        }
    };
    if chars.next() == Some(']') {
        Ok(step)
    } else {
        Err(fail("unterminated array"))
    }
}

fn string(chars: &mut Chars<'_>, quote: char) -> Result<String, JsonPathError> {
    chars.next();
    let mut out = String::new();
    loop {
        match chars.next() {
            None => return Err(fail("unterminated quoted string")),
            Some('\\') => out.extend(chars.next()),
            Some(c) if c == quote => return Ok(out),
            Some(c) => out.push(c),
        }
    }
}

/// `(@.a.b=='x')]`, after the question mark.
fn filter(chars: &mut Chars<'_>) -> Result<Step, JsonPathError> {
    fn space(chars: &mut Chars<'_>) {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
    }
    if chars.next() != Some('(') {
        return Err(fail("unterminated filter"));
    }
    space(chars);
    if chars.next() != Some('@') {
        return Err(fail("a filter compares a path that starts with @"));
    }
    let path = steps(chars, |c| c.is_whitespace() || "=!<>)".contains(c))?;
    space(chars);
    let mut operator = String::new();
    while let Some(c) = chars.next_if(|c| "=!<>".contains(*c)) {
        operator.push(c);
    }
    space(chars);
    let comparison = match operator.as_str() {
        "" => None,
        "==" => Some(Comparison::Equal),
        "!=" => Some(Comparison::NotEqual),
        "<" => Some(Comparison::Less),
        ">" => Some(Comparison::Greater),
        "<=" => Some(Comparison::AtMost),
        ">=" => Some(Comparison::AtLeast),
        other => {
            return Err(JsonPathError(format!(
                "unrecognized filter operator {other}"
            )));
        }
    };
    let test = match comparison {
        None => None,
        Some(comparison) => Some((comparison, literal(chars)?)),
    };
    space(chars);
    if chars.next() != Some(')') || chars.next() != Some(']') {
        return Err(fail("unterminated filter"));
    }
    Ok(Step::Filter { path, test })
}

fn literal(chars: &mut Chars<'_>) -> Result<Value, JsonPathError> {
    if let Some(quote @ ('\'' | '"')) = chars.peek().copied() {
        return string(chars, quote).map(Value::from);
    }
    let mut literal = String::new();
    while let Some(c) = chars.next_if(|c| !c.is_whitespace() && *c != ')') {
        literal.push(c);
    }
    serde_json::from_str(&literal)
        .map_err(|_| JsonPathError(format!("cannot compare with {literal}")))
}

fn walk<'a>(from: &'a Value, steps: &[Step]) -> Vec<&'a Value> {
    let mut found = vec![from];
    for step in steps {
        found = found.into_iter().flat_map(|at| take(at, step)).collect();
    }
    found
}

fn take<'a>(at: &'a Value, step: &Step) -> Vec<&'a Value> {
    match step {
        Step::Field(name) => at.get(name.as_str()).into_iter().collect(),
        Step::Index(index) => at
            .as_array()
            .and_then(|items| nth(items, *index))
            .into_iter()
            .collect(),
        Step::All => match at {
            Value::Array(items) => items.iter().collect(),
            Value::Object(fields) => fields.values().collect(),
            _ => Vec::new(),
        },
        Step::Filter { path, test } => {
            let items = at.as_array().map_or(&[][..], Vec::as_slice);
            items
                .iter()
                .filter(|item| passes(item, path, test.as_ref()))
                .collect()
        }
    }
}

fn nth(items: &[Value], index: i64) -> Option<&Value> {
    match usize::try_from(index) {
        Ok(index) => items.get(index),
        Err(_) => items
            .len()
            .checked_sub(usize::try_from(index.unsigned_abs()).ok()?)
            .and_then(|i| items.get(i)),
    }
}

fn passes(item: &Value, path: &[Step], test: Option<&(Comparison, Value)>) -> bool {
    let found = walk(item, path);
    let Some((comparison, wanted)) = test else {
        return !found.is_empty();
    };
    found
        .first()
        .is_some_and(|value| compare(*comparison, value, wanted))
}

fn compare(comparison: Comparison, left: &Value, right: &Value) -> bool {
    use std::cmp::Ordering::{Greater, Less};
    let order = match (left, right) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Number(a), Value::Number(b)) => a
            .as_f64()
            .zip(b.as_f64())
            .and_then(|(a, b)| a.partial_cmp(&b)),
        _ => None,
    };
    match comparison {
        Comparison::Equal => left == right || order.is_some_and(std::cmp::Ordering::is_eq),
        Comparison::NotEqual => left != right && !order.is_some_and(std::cmp::Ordering::is_eq),
        Comparison::Less => order == Some(Less),
        Comparison::Greater => order == Some(Greater),
        Comparison::AtMost => order.is_some_and(std::cmp::Ordering::is_le),
        Comparison::AtLeast => order.is_some_and(std::cmp::Ordering::is_ge),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_select_values() {
        let object = json!({
            "metadata": {"labels": {"kubevirt.io/nodeName": "n", "a.b": "c"}, "name": "x"},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True", "n": 3}, {"type": "Paused"}],
            },
        });
        let cases = [
            (".metadata.name", json!(["x"])),
            ("metadata.name", json!(["x"])),
            ("{.metadata.name}", json!(["x"])),
            ("$.metadata.name", json!(["x"])),
            (r".metadata.labels.a\.b", json!(["c"])),
            (r".metadata.labels.kubevirt\.io/nodeName", json!(["n"])),
            (".metadata.labels['a.b']", json!(["c"])),
            (".status.conditions[0].type", json!(["Ready"])),
            (".status.conditions[-1].type", json!(["Paused"])),
            (".status.conditions[9].type", json!([])),
            (".status.conditions[*].type", json!(["Ready", "Paused"])),
            (
                ".status.conditions[?(@.type=='Ready')].status",
                json!(["True"]),
            ),
            (
                ".status.conditions[?(@.type == \"Ready\")].status",
                json!(["True"]),
            ),
            (".status.conditions[?(@.n>=3)].type", json!(["Ready"])),
            (".status.conditions[?(@.n)].type", json!(["Ready"])),
            (
                ".status.conditions[?(@.type!='Ready')].type",
                json!(["Paused"]),
            ),
            (".status.none.deeper", json!([])),
        ];
        for (path, expected) in cases {
            let found = JsonPath::parse(path).expect(path);
            assert_eq!(json!(found.find(&object)), expected, "{path}");
        }
    }

    #[test]
    fn malformed_paths_are_rejected() {
        for path in [
            ".a[",
            ".a[x]",
            "{.a",
            ".a[?(@.b<>1)]",
            ".a..b",
            ".a['b",
            ".a\\",
        ] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }
}
