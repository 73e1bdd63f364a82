//! RFC 6902 patches.
//!
//! One deviation that existing clients rely on: `test` against `null` passes when the path does not
//! exist, so that "not set" can be tested.

use serde_json::Value;

use super::PatchError;

/// More operations than this are rejected.
pub const MAX_OPERATIONS: usize = 10_000;

/// `copy` must not grow the object beyond this number of values.
const MAX_VALUES: usize = 1_000_000;

/// The JSON reader's own limit; patches must not nest an object deeper than it could be read back.
const MAX_DEPTH: usize = 127;

/// Applies the operations in order, all or none.
pub fn apply(target: &Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Array(operations) = patch else {
        return Err(PatchError::Malformed(
            "a JSON patch is a list of operations".to_owned(),
        ));
    };
    if operations.len() > MAX_OPERATIONS {
        let got = operations.len();
        return Err(PatchError::TooManyOperations {
            max: MAX_OPERATIONS,
            got,
        });
    }
    let mut out = target.clone();
    let mut copied = 0;
    for operation in operations {
        step(&mut out, operation, &mut copied)?;
    }
    Ok(out)
}

fn step(doc: &mut Value, operation: &Value, copied: &mut usize) -> Result<(), PatchError> {
    let op = text(operation, "op")?;
    let path = Pointer::parse(text(operation, "path")?)?;
    match op {
        "add" => add(doc, &path, value(operation)?),
        "remove" => remove(doc, &path).map(drop),
        "replace" => {
            let value = value(operation)?;
            set(doc, &path, value)
        }
        "move" => {
            let from = Pointer::parse(text(operation, "from")?)?;
            if from.tokens.len() < path.tokens.len() && path.tokens.starts_with(&from.tokens) {
                let why = format!("move operation from {from} into its own child {path}");
                return Err(PatchError::Inapplicable(why));
            }
            let value = remove(doc, &from)?;
            add(doc, &path, value)
        }
        "copy" => {
            let from = Pointer::parse(text(operation, "from")?)?;
            let value = find(doc, &from.tokens)
                .ok_or_else(|| missing("copy", &from))?
                .clone();
            *copied = copied.saturating_add(count(&value));
            if *copied > MAX_VALUES {
                let why = "copy operations grow the object too much".to_owned();
                return Err(PatchError::Inapplicable(why));
            }
            add(doc, &path, value)
        }
        "test" => {
            let wanted = value(operation)?;
            let found = find(doc, &path.tokens).unwrap_or(&Value::Null);
            if same(found, &wanted) {
                return Ok(());
            }
            Err(PatchError::Inapplicable(format!(
                "testing value {path} failed: test failed"
            )))
        }
        other => Err(PatchError::Inapplicable(format!(
            "unexpected kind of operation: {other}"
        ))),
    }
}

struct Pointer {
    tokens: Vec<String>,
}

impl Pointer {
    fn parse(text: &str) -> Result<Self, PatchError> {
        if text.is_empty() {
            return Ok(Self { tokens: Vec::new() });
        }
        let Some(rest) = text.strip_prefix('/') else {
            let why = format!("a JSON pointer starts with a slash: {text:?}");
            return Err(PatchError::Malformed(why));
        };
        let tokens = rest
            .split('/')
            .map(|t| t.replace("~1", "/").replace("~0", "~"))
            .collect();
        Ok(Self { tokens })
    }
}

impl std::fmt::Display for Pointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for token in &self.tokens {
            write!(f, "/{}", token.replace('~', "~0").replace('/', "~1"))?;
        }
        Ok(())
    }
}

fn text<'a>(operation: &'a Value, key: &str) -> Result<&'a str, PatchError> {
    operation.get(key).and_then(Value::as_str).ok_or_else(|| {
        PatchError::Malformed(format!(
            "operation without the text field {key:?}: {operation}"
        ))
    })
}

/// The value to set; an absent value means null, as in kube-apiserver.
fn value(operation: &Value) -> Result<Value, PatchError> {
    match operation {
        Value::Object(fields) => Ok(fields.get("value").cloned().unwrap_or(Value::Null)),
        _ => Err(PatchError::Malformed(
            "an operation is an object".to_owned(),
        )),
    }
}

fn find<'a>(doc: &'a Value, tokens: &[String]) -> Option<&'a Value> {
    tokens.iter().try_fold(doc, |at, token| match at {
        Value::Object(fields) => fields.get(token),
        Value::Array(items) => items.get(index(token)?),
        _ => None,
    })
}

fn find_mut<'a>(doc: &'a mut Value, tokens: &[String]) -> Option<&'a mut Value> {
    tokens.iter().try_fold(doc, |at, token| match at {
        Value::Object(fields) => fields.get_mut(token),
        Value::Array(items) => items.get_mut(index(token)?),
        _ => None,
    })
}

fn add(doc: &mut Value, path: &Pointer, value: Value) -> Result<(), PatchError> {
    if path.tokens.len() + depth(&value) > MAX_DEPTH {
        return Err(too_deep());
    }
    let Some((last, parents)) = path.tokens.split_last() else {
        *doc = value;
        return Ok(());
    };
    match find_mut(doc, parents) {
        Some(Value::Object(fields)) => {
            fields.insert(last.clone(), value);
            Ok(())
        }
        Some(Value::Array(items)) => {
            let at = if last == "-" {
                Some(items.len())
            } else {
                index(last)
            };
            match at {
                Some(at) if at <= items.len() => {
                    items.insert(at, value);
                    Ok(())
                }
                _ => Err(missing("add", path)),
            }
        }
        _ => Err(missing("add", path)),
    }
}

/// Replaces the value at the path.
fn set(doc: &mut Value, path: &Pointer, value: Value) -> Result<(), PatchError> {
    if path.tokens.len() + depth(&value) > MAX_DEPTH {
        return Err(too_deep());
    }
    if let Some(slot) = find_mut(doc, &path.tokens) {
        *slot = value;
        return Ok(());
    }
    // A field that does not exist yet may be replaced, too.
    match path.tokens.split_last() {
        Some((last, parents)) => match find_mut(doc, parents) {
            Some(Value::Object(fields)) => {
                fields.insert(last.clone(), value);
                Ok(())
            }
            _ => Err(missing("replace", path)),
        },
        None => Err(missing("replace", path)),
    }
}

fn too_deep() -> PatchError {
    PatchError::Inapplicable("operations nest the object too deeply".to_owned())
}

fn remove(doc: &mut Value, path: &Pointer) -> Result<Value, PatchError> {
    let Some((last, parents)) = path.tokens.split_last() else {
        return Ok(doc.take());
    };
    let removed = match find_mut(doc, parents) {
        Some(Value::Object(fields)) => fields.shift_remove(last),
        Some(Value::Array(items)) => index(last)
            .filter(|at| *at < items.len())
            .map(|at| items.remove(at)),
        _ => None,
    };
    removed.ok_or_else(|| missing("remove", path))
}

fn index(token: &str) -> Option<usize> {
    let plain = token == "0" || !token.starts_with('0');
    if plain && token.bytes().all(|b| b.is_ascii_digit()) {
        token.parse().ok()
    } else {
        None
    }
}

fn missing(op: &str, path: &Pointer) -> PatchError {
    PatchError::Inapplicable(format!(
        "{op} operation does not apply: doc is missing path: {path}"
    ))
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(count).sum::<usize>(),
        _ => 1,
    }
}

/// Value equality; numbers by value, so that 1 equals 1.0.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| same(v, w)))
        }
        _ => left == right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operations_apply_in_order() {
        let doc = json!({"metadata": {"labels": {"a/b": "1", "m~n": "2"}}, "l": [1, 2]});
        let cases = [
            (
                json!([{"op":"add","path":"/l/-","value":3}]),
                json!([1, 2, 3]),
                "/l",
            ),
            (
                json!([{"op":"add","path":"/l/0","value":0}]),
                json!([0, 1, 2]),
                "/l",
            ),
            (json!([{"op":"remove","path":"/l/0"}]), json!([2]), "/l"),
            (
                json!([{"op":"replace","path":"/metadata/labels/a~1b","value":"x"}]),
                json!("x"),
                "/metadata/labels/a~1b",
            ),
            (
                json!([{"op":"copy","from":"/l","path":"/k"}]),
                json!([1, 2]),
                "/k",
            ),
            (
                json!([{"op":"move","from":"/metadata/labels/m~0n","path":"/k"}]),
                json!("2"),
                "/k",
            ),
            (
                json!([{"op":"test","path":"/none/x","value":null}]),
                json!([1, 2]),
                "/l",
            ),
            (
                json!([{"op":"test","path":"/l","value":[1.0,2]}]),
                json!([1, 2]),
                "/l",
            ),
            (
                json!([{"op":"add","path":"/a-b","value":{}},{"op":"add","path":"/a-b/-","value":1}]),
                json!({"-": 1}),
                "/a-b",
            ),
        ];
        for (patch, expected, at) in cases {
            let out = apply(&doc, &patch).expect("applies");
            assert_eq!(out.pointer(at), Some(&expected), "{patch}");
        }
    }

    #[test]
    fn copies_cannot_grow_without_bound() {
        let deeper: Value =
            std::iter::repeat_n(json!({"op":"copy","from":"","path":"/a"}), 200).collect();
        assert!(apply(&json!({"a": 1}), &deeper).is_err());
        let wider: Value =
            std::iter::repeat_n(json!({"op":"copy","from":"/a","path":"/a/-"}), 100).collect();
        assert!(apply(&json!({"a": [[1]]}), &wider).is_err());
    }

    #[test]
    fn failing_operations_have_the_right_code() {
        let doc = json!({"l": [1]});
        let cases = [
            (json!([{"op":"test","path":"/l/0","value":2}]), 422),
            (json!([{"op":"remove","path":"/x"}]), 422),
            (json!([{"op":"replace","path":"/l/1","value":2}]), 422),
            (json!([{"op":"add","path":"/l/01","value":2}]), 422),
            (json!([{"op":"add","path":"/x/y","value":2}]), 422),
            (json!([{"op":"move","from":"/l","path":"/l/0"}]), 422),
            (json!([{"op":"jump","path":"/x"}]), 422),
            (json!([{"path":"/x"}]), 400),
            (json!({"op":"add"}), 400),
            (json!([{"op":"add","path":"x"}]), 400),
        ];
        for (patch, code) in cases {
            let status = apply(&doc, &patch).expect_err("is rejected").to_status();
            assert_eq!(status.code(), code, "{patch}");
        }
    }
}
